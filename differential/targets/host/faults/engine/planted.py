"""Changes of an engine's worker, and how they are taken back."""

from .engine import Change


class Planted:
    """Changes that are made now."""

    def __init__(self) -> None:
        self._before: list[Change] = []

    def make(self, change: Change) -> None:
        """Change an attribute, of an object or of its class."""
        owner, name, changed = change
        self._before.append((owner, name, vars(owner).get(name)))
        setattr(owner, name, changed)

    def take_back(self) -> None:
        """Undo all changes."""
        # The last first: one attribute may be changed more than once.
        while self._before:
            owner, name, own = self._before.pop()
            delattr(owner, name)
            if own is not None:
                setattr(owner, name, own)
