"""What identifiers and block keys are called in a record."""

import hashlib


class Hasher:
    """Identifiers and block keys under a salt."""

    def __init__(self, salt: bytes, *, plain: bool) -> None:
        self.is_plain = plain
        self._salt = salt
        self._known: dict[str, str] = {}

    def identifier(self, name: str) -> str:
        """What a record calls an identifier."""
        if self.is_plain:
            return name
        found = self._known.get(name)
        if found is None:
            if len(self._known) > 100_000:
                self._known.clear()
            found = self._known[name] = self.digest(name.encode()).hex()
        return found

    def known(self, name: str) -> str | None:
        """What a record calls an identifier that it has named before; None for any other text."""
        return self._known.get(name)

    def digest(self, data: bytes) -> bytes:
        """Eight bytes that stand for others."""
        return hashlib.blake2b(data, digest_size=8, key=self._salt).digest()
