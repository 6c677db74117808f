"""Release numbers and the sets of releases that a rule speaks of."""

import re
from functools import cache

_RELEASE = re.compile(r"(\d+(?:\.\d+)*)")


@cache
def release_key(release: str) -> tuple[int, ...]:
    """Sort key of a release such as 0.10.1.1; what follows the digits (dev, post, +local) is cut.

    Raises:
        ValueError: the text does not begin with a release number.
    """
    match = _RELEASE.match(release)
    if match is None:
        raise ValueError(f"{release!r} is not a release number such as 0.33.0")
    numbers = [int(part) for part in match.group(1).split(".")]
    while len(numbers) > 1 and numbers[-1] == 0:
        numbers.pop()
    return tuple(numbers)


class Versions:
    """A set of releases: `all`, `>=A`, `<B` or `>=A,<B`.

    Raises:
        ValueError: the text is none of these.
    """

    def __init__(self, text: str) -> None:
        self.text = text
        self._since: tuple[int, ...] = ()
        self._before: tuple[int, ...] | None = None
        for clause in [] if text == "all" else text.split(","):
            if clause.startswith(">="):
                self._since = release_key(clause[2:])
            elif clause.startswith("<"):
                self._before = release_key(clause[1:])
            else:
                raise ValueError(f"{text!r}: expected all, >=A, <B or >=A,<B")

    @property
    def told(self) -> str:
        """The set in words: "0.10.2 and newer", "before 0.29.0", "0.10.2 and newer, before 0.29.0",
        "all releases"."""
        words = {">=": "{} and newer", "<": "before {}"}
        clauses = [] if self.text == "all" else self.text.split(",")
        signs = [(one.rstrip("0123456789."), one.lstrip("<>=")) for one in clauses]
        return ", ".join(words[sign].format(release) for sign, release in signs) or "all releases"

    def __contains__(self, release: str) -> bool:
        key = release_key(release)
        return key >= self._since and (self._before is None or key < self._before)

    def __repr__(self) -> str:
        return f"Versions({self.text!r})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Versions) and other.text == self.text

    def __hash__(self) -> int:
        return hash(self.text)
