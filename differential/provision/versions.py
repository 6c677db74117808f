"""vLLM's version numbers: what one looks like, and which come first."""

import re

from cacheproof.differential.errors import InputError

_SHAPE = re.compile(r"(\d{1,4}(?:\.\d{1,4}){1,3})(?:(rc|post)(\d{1,4}))?", re.ASCII)
_DOTTED_SUFFIX = re.compile(r"\.(?=post|rc)")
_RANK = {"rc": -1, None: 0, "post": 1}
NUMBERS_MIN = 3
"""Fewest numbers in a release's version: 0.33.0 is never called 0.33."""

FIRST_WITH_NEWER_LIBRARIES = "0.24.0"
"""The first release for the shared libraries: it refuses transformers 4. The release before it
needs what later ones do without."""

FIRST_ENGINE = "0.20.0"
"""The oldest engine that runs here: compiled parts before it are for a torch before 2.11.0."""

FIRST_ENGINE_WITH_NEWER_TORCH = "0.27.0"
"""The first engine for a newer torch: compiled parts before it are for torch 2.11.0."""

FIRST_ENGINE_WITH_NEWER_LIBRARIES = "0.31.0"
"""The first engine for the newest transformers: engines before it import what that lacks."""

FIRST_WITH_SCHEDULER = "0.10.0"
"""The first release that imports here: those before it import what the libraries here lack, and
only their hasher runs."""


def parse(text: str, before: str = "") -> str:
    """The version, checked: nothing else may become part of a path or of a command. `before` is
    what the user wrote in front of it, for the refusal to repeat.

    Raises:
        InputError: not the shape of a version, or not as releases write theirs, which nothing on
            the package index is called.
    """
    match = _SHAPE.fullmatch(_DOTTED_SUFFIX.sub("", text.removeprefix("v")))
    if match is None:
        raise InputError(
            f"{text[:60]!r} is no vLLM version; expected numbers such as 0.33.0 or 0.9.0.1"
        )
    if text != (written := _as_releases_write(match)):
        raise InputError(f"{before}{text} names no release; did you mean {before}{written}?")
    return text


def _as_releases_write(match: re.Match[str]) -> str:
    """A version with at least three numbers, no leading zeros, and no trailing 0 beyond three."""
    numbers = [int(part) for part in match[1].split(".")]
    while len(numbers) > NUMBERS_MIN and numbers[-1] == 0:
        numbers.pop()
    numbers += [0] * (NUMBERS_MIN - len(numbers))
    suffix = f"{'.' if match[2] == 'post' else ''}{match[2]}{int(match[3])}" if match[2] else ""
    return f"{'.'.join(map(str, numbers))}{suffix}"


def parse_engine(text: str, target: str = "") -> str:
    """The version of an engine, checked; `target` is what the user wrote, for the refusal.

    Raises:
        InputError: as `parse`, or older than can run here.
    """
    version = parse(text, target.removesuffix(text))
    if order(version) < order(FIRST_ENGINE):
        raise InputError(
            f"{target or version}: no engine before {FIRST_ENGINE} runs here; expected "
            f"{FIRST_ENGINE} or newer"
        )
    return version


def order(version: str) -> tuple[tuple[int, ...], int, int]:
    """Key that sorts versions from old to new: a release candidate comes before its release, a
    post-release after it. Below all versions where the text is none."""
    match = _SHAPE.fullmatch(_DOTTED_SUFFIX.sub("", version))
    if match is None:
        return (), 0, 0
    numbers = tuple(int(part) for part in match[1].split("."))
    while numbers and numbers[-1] == 0:
        numbers = numbers[:-1]
    return numbers, _RANK[match[2]], int(match[3] or 0)


def nearest(version: str, available: set[str], count: int = 4) -> list[str]:
    """At most `count` of the `available` versions around this one, from old to new."""
    known = sorted((name for name in available if order(name)[0]), key=order)
    older = [name for name in known if order(name) < order(version)]
    newer = known[len(older) :]
    # Where one side has too few, the other gives more, so that `count` are named if there are.
    half = count // 2
    return [*older[-max(half, count - len(newer)) :], *newer[: max(half, count - len(older))]]


def needs_older_libraries(version: str) -> bool:
    """Whether a release (or a checkout based on one) was written for the older libraries."""
    numbers = order(version.partition("+")[0])
    return bool(numbers[0]) and numbers < order(FIRST_WITH_NEWER_LIBRARIES)


def runs_hasher_alone(version: str) -> bool:
    """Whether only the media hasher of a release can run here."""
    numbers = order(version.partition("+")[0])
    return bool(numbers[0]) and numbers < order(FIRST_WITH_SCHEDULER)
