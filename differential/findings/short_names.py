"""Hashes in a text, each by as few of its digits as tell it from the others."""

import re
from collections.abc import Iterable
from itertools import pairwise

DIGITS_MIN = 6
_HASH = re.compile(r"\b(?=[0-9]*[a-f])[0-9a-f]{12,}\b")


class ShortNames:
    """The hashes of some texts, which it shortens.

    Attributes:
        full: each short name, and the hash that it stands for, in order.
    """

    def __init__(self, texts: Iterable[str]) -> None:
        known = sorted({name for text in texts for name in _HASH.findall(text)})
        digits = dict.fromkeys(known, DIGITS_MIN)
        for one, other in pairwise(known):
            apart = 1 + _shared(one, other)
            digits[one] = max(digits[one], apart)
            digits[other] = max(digits[other], apart)
        self._short = {
            name: name if count >= len(name) else f"{name[:count]}…"
            for name, count in digits.items()
        }
        self.full = {short: name for name, short in self._short.items() if short != name}

    def say(self, text: str) -> str:
        """The text with its hashes shortened; a hash of no text that was given stays as it is."""
        return _HASH.sub(lambda match: self._short.get(match[0], match[0]), text)


def _shared(one: str, other: str) -> int:
    """How many characters both begin with."""
    pairs = zip(one, other, strict=False)
    return next((count for count, (a, b) in enumerate(pairs) if a != b), min(len(one), len(other)))
