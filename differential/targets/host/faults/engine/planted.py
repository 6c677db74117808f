"""Changes of an engine's worker, and how they are taken back."""

from typing import Any

from .engine import Change


class Planted:
    """What is changed now."""

    def __init__(self) -> None:
        self._before: list[tuple[Any, str, Any]] = []

    def make(self, change: Change) -> None:
        """Change an attribute, of one object or of all."""
        owner, name, changed = change
        self._before.append((owner, name, vars(owner).get(name)))
        setattr(owner, name, changed)

    def take_back(self) -> None:
        """Let all be as it was."""
        while self._before:
            owner, name, own = self._before.pop()
            delattr(owner, name)
            if own is not None:
                setattr(owner, name, own)
