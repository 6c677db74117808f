"""A digest of code: whether two processes, or two runs, have the same."""

import hashlib
from collections.abc import Sequence
from pathlib import Path

PACKAGE = Path(__file__).parent.parent


def code_digest(parts: Sequence[str], root: Path = PACKAGE) -> str:
    """The digest of all code in these parts of a folder, by default the package: 64 hex digits."""
    found = hashlib.sha256()
    for part in parts:
        for path in sorted((root / part).rglob("*.py")):
            name = path.relative_to(root).as_posix().encode()
            data = path.read_bytes()
            # lengths in front: no name or text runs into the next
            found.update(b"%d %s %d " % (len(name), name, len(data)) + data)
    return found.hexdigest()
