"""The stable releases of vLLM that the reference was held against, from old to new."""

from collections.abc import Collection
from functools import cache

from cacheproof.spec.versions import release_key

MODELLED = (
    "0.10.2", "0.11.0", "0.11.1", "0.11.2", "0.12.0", "0.13.0", "0.14.0", "0.14.1", "0.15.0",
    "0.15.1", "0.16.0", "0.17.0", "0.17.1", "0.18.0", "0.18.1", "0.19.0", "0.19.1", "0.20.0",
    "0.20.1", "0.20.2", "0.21.0", "0.22.0", "0.22.1", "0.23.0", "0.24.0", "0.25.0", "0.25.1",
    "0.26.0", "0.27.0", "0.27.1", "0.28.0", "0.29.0", "0.30.0", "0.31.0", "0.32.0", "0.33.0",
)  # fmt: skip
FIRST_MODELLED = MODELLED[0]
NEWEST = MODELLED[-1]
"""The release that is meant where none is named."""
SEARCHED = (NEWEST, "0.28.0")
"""Releases searched where none is named: the newest, and one with faults that it mends."""


def is_modelled(release: str) -> bool:
    """Whether the reference models a release. Raises ValueError: not a release number."""
    return release_key(release) in map(release_key, MODELLED)


@cache
def model_of(release: str) -> str:
    """The modelled release whose semantics stand for a release: itself, or the newest before it.

    Raises:
        ValueError: not a release number, or one before all that are modelled.
    """
    key = release_key(release)
    return max((one for one in MODELLED if release_key(one) <= key), key=release_key)


def spans(releases: Collection[str]) -> str:
    """Modelled releases as the spans that they make: "0.10.2 to 0.11.2, 0.13.0"."""
    parts: list[list[str]] = []
    before = None
    for number, release in enumerate(MODELLED):
        if release in releases:
            if before != number - 1:
                parts.append([])
            parts[-1].append(release)
            before = number
    return ", ".join(part[0] if len(part) == 1 else f"{part[0]} to {part[-1]}" for part in parts)


@cache
def within(text: str) -> tuple[str, ...]:
    """The releases of a text that `spans` writes; none of an empty one.

    Raises:
        ValueError: it names a release that is not modelled, or releases in another order.
    """
    found: list[str] = []
    for part in text.split(", ") if text else []:
        first, _, last = part.partition(" to ")
        for one in (first, last or first):
            if one not in MODELLED:
                raise ValueError(f"{one!r} is not a modelled release such as {NEWEST}")
        found += MODELLED[MODELLED.index(first) : MODELLED.index(last or first) + 1]
    if spans(found) != text:
        raise ValueError(f"{text!r}: expected spans of releases from old to new")
    return tuple(found)
