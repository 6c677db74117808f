"""What the modelled definitions read in every modelled release, and how a tree stands to that."""

import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any

from cacheproof.differential.texts import texts
from cacheproof.differential.texts.modelled import COMPONENTS, WATCHED
from cacheproof.differential.texts.texts import TreeText
from cacheproof.differential.texts.told import NOT_DECISIONS, READ
from cacheproof.reference.releases import MODELLED, is_modelled
from cacheproof.spec.versions import release_key

TABLE = "texts.toml"
ABSENT = "-"
MEMBERS = "members"
NAMES_SHOWN = 8
_HEADER = """\
# What the definitions that the reference models read in each modelled release: behind the release
# that brought it, the digest of the text, or - where the definition is gone. `members` are those of
# all releases. Written by: cacheproof vllm texts --toml differential/texts/texts.toml
"""


@dataclass(frozen=True)
class Reading:
    """How a tree's text stands to that of the modelled releases.

    `release` is what the tree says it is, None for nothing. `nearest` is the release from which the
    fewest of the tree's `modelled` definitions differ: its own where several are as near, else the
    newest. `differing` says of each name whether it is changed, new or gone; `unread` are members
    of watched classes that no modelled release has.
    """

    release: str | None
    nearest: str
    modelled: int
    differing: Mapping[str, str]
    unread: tuple[str, ...]

    @property
    def differs(self) -> bool:
        """Whether what the target does otherwise than the reference may be its own decision."""
        return bool(self.differing)

    def announcement(self, target: str) -> list[str]:
        """What is to be said of the target; nothing of a release that reads as it was modelled."""
        lines = []
        if self.release is None:
            lines.append(f"{target}: says of itself no release")
        elif not is_modelled(self.release):
            lines.append(f"{target}: vLLM {self.release} is not a release that is modelled")
        if self.differing:
            lines.append(
                f"{target}: modelled definitions that differ from {self.nearest}, the nearest "
                f"release: {len(self.differing)} of {self.modelled}: {_listed(self._shown())}"
            )
        elif lines:
            lines.append(f"{target}: all that is modelled of it reads as in {self.nearest}")
        if self.unread:
            lines.append(f"{target}: nothing here reads what is new in it: {_listed(self.unread)}")
        return lines

    def to_json(self) -> dict[str, object]:
        return {
            "release": self.release,
            "nearest": self.nearest,
            "modelled": self.modelled,
            "differing": dict(self.differing),
            "unread": self.unread,
        }

    def _shown(self) -> list[str]:
        return [
            name if how == "changed" else f"{name} ({how})" for name, how in self.differing.items()
        ]


def _listed(names: Iterable[str]) -> str:
    several = list(names)
    more = len(several) - NAMES_SHOWN
    return ", ".join(several[:NAMES_SHOWN]) + (f" and {more} more" if more > 0 else "")


@dataclass(frozen=True)
class KnownTexts:
    """Digests by release and name, and the members of watched classes in all releases together."""

    of_release: Mapping[str, Mapping[str, str]]
    members: frozenset[str]

    def read(self, tree: Path, release: str | None) -> Reading | None:
        """How the vLLM in a folder, which says that it is `release`, stands to the releases; None
        where it holds nothing of what is modelled.

        Raises:
            InputError: it holds a file that is no Python that can be read here.
        """
        return self.reading_of(texts.read(tree), release)

    def reading_of(self, text: TreeText, release: str | None) -> Reading | None:
        """How a text that was read stands to the releases; None where nothing of it is modelled."""
        if not text.digests:
            return None
        nearest = self._nearest(text.digests, release)
        differing = _differing(text.digests, self.of_release[nearest])
        in_order = sorted(differing, key=_place)
        return Reading(
            release,
            nearest,
            len(text.digests),
            {name.partition(":")[2]: differing[name] for name in in_order},
            tuple(sorted(filter(self._is_unread, text.members))),
        )

    def families(self) -> list[list[str]]:
        """The releases from old to new, those together in which all that is modelled reads the
        same."""
        found: dict[frozenset[tuple[str, str]], list[str]] = {}
        for release, digests in self.of_release.items():
            found.setdefault(frozenset(digests.items()), []).append(release)
        return list(found.values())

    def apart(self, release: str, other: str) -> int:
        """How many definitions differ between two modelled releases."""
        return len(_differing(self.of_release[release], self.of_release[other]))

    def _nearest(self, digests: Mapping[str, str], release: str | None) -> str:
        own = release and release_key(release)
        return min(
            reversed(list(self.of_release)),
            key=lambda one: (
                len(_differing(digests, self.of_release[one])),
                release_key(one) != own,
            ),
        )

    def _is_unread(self, member: str) -> bool:
        owner, _, name = member.partition(".")
        is_told = owner in READ and name in {*READ[owner], *NOT_DECISIONS[owner]}
        return not is_told and member not in self.members


def _differing(ours: Mapping[str, str], theirs: Mapping[str, str]) -> dict[str, str]:
    """How a tree's definitions differ from a release's, by name."""
    changed = {name: "changed" for name, digest in ours.items() if theirs.get(name) != digest}
    new = dict.fromkeys(changed.keys() - theirs.keys(), "new")
    return changed | new | dict.fromkeys(theirs.keys() - ours.keys(), "gone")


def _place(name: str) -> tuple[int, str]:
    """Sort key of a name: its component, in the order of the components."""
    return _ORDER[name.partition(":")[0]], name


_ORDER = {component.name: number for number, component in enumerate(COMPONENTS)}


# the table


@cache
def load() -> KnownTexts:
    """The table that is shipped."""
    text = resources.files("cacheproof.differential.texts").joinpath(TABLE).read_text()
    return parse(tomllib.loads(text))


def parse(table: Mapping[str, Mapping[str, Any]]) -> KnownTexts:
    """The table from its sections: of each component, and of the members."""
    of_release: dict[str, dict[str, str]] = {release: {} for release in MODELLED}
    for component in COMPONENTS:
        for name, changes in table.get(component.name, {}).items():
            digest_since = dict(one.split() for one in changes.split(", "))
            digest = ABSENT
            for release, digests in of_release.items():
                digest = digest_since.get(release, digest)
                if digest != ABSENT:
                    digests[f"{component.name}:{name}"] = digest
    members = (f"{owner}.{name}" for owner, names in table[MEMBERS].items() for name in names)
    return KnownTexts(of_release, frozenset(members))


def made_of(trees: Mapping[str, Path]) -> KnownTexts:
    """The table of modelled releases' trees; releases without one are as the shipped table says."""
    known = load()
    found: dict[str, TreeText] = {release: texts.read(tree) for release, tree in trees.items()}
    of_release = {
        release: found[release].digests if release in found else known.of_release[release]
        for release in MODELLED
    }
    absent = frozenset() if found.keys() >= set(MODELLED) else known.members
    return KnownTexts(of_release, absent.union(*(text.members for text in found.values())))


def written(known: KnownTexts) -> str:
    """The table as text."""
    lines = [_HEADER, f"[{MEMBERS}]"]
    for owner in WATCHED:
        mine = sorted(one for one in known.members if one.startswith(f"{owner}."))
        listed = ", ".join(_quoted(one.partition(".")[2]) for one in mine)
        lines.append(f"{owner} = [{listed}]")
    names = {name for digests in known.of_release.values() for name in digests}
    for component in COMPONENTS:
        lines += ["", f"[{component.name}]"]
        for name in sorted(one for one in names if one.startswith(f"{component.name}:")):
            lines.append(f"{_quoted(name.partition(':')[2])} = {_quoted(_changes(known, name))}")
    return "\n".join(lines) + "\n"


def _changes(known: KnownTexts, name: str) -> str:
    changes, last = [], ABSENT
    for release, digests in known.of_release.items():
        if (digest := digests.get(name, ABSENT)) != last:
            changes.append(f"{release} {digest}")
            last = digest
    return ", ".join(changes)


def _quoted(text: str) -> str:
    return f'"{text}"'
