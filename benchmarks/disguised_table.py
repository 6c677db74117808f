"""What is on file of disguised faults: a row of `disguised.jsonl` each."""

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import msgspec

from cacheproof.differential.lanes.all_lanes import LANES
from cacheproof.differential.lanes.lane import Lane
from cacheproof.differential.texts.edits import Edit
from cacheproof.differential.traces.trace import Trace
from cacheproof.differential.traces.trace_file import parse
from cacheproof.listed.pages import kept_traces, told
from cacheproof.reference.releases import NEWEST

ROOT = Path(__file__).parent.parent
TABLE = ROOT / "benchmarks" / "disguised.jsonl"
PAGE = ROOT / "docs" / "evidence" / "disguised-faults.md"
RELEASE = NEWEST


class Place(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True, tag_field="row"):
    """A break of a trace: of which lane and seed, or of which trace of faults/ that is `kept`
    there; of which contract, in which kind."""

    lane: str
    seed: int = 0
    kept: str = ""
    contract: str
    kind: str = ""

    @property
    def of_lane(self) -> Lane:
        return LANES[self.lane]

    @property
    def trace(self) -> Trace:
        if not self.kept:
            return self.of_lane.trace(self.seed, RELEASE)
        file = kept_traces()[self.kept]
        return parse(file.read_bytes().splitlines(), str(file))

    @property
    def where(self) -> str:
        """Which trace it is, in words."""
        return told(self.kept) if self.kept else f"{self.lane}, seed {self.seed}"

    @property
    def broken(self) -> tuple[str, str]:
        """As judges tell breaks apart."""
        return self.contract, self.kind


class Disguised(Place, frozen=True, kw_only=True, tag="change"):
    """A change of the release's text that breaks what a listed fault breaks there.

    An `expression` or a statement of a function, `which` of so many that it has, is replaced by
    what is `instead`. `words` say what that does. `looks_like`: the listed fault.
    `is_kept`: the tests hold a small finding of it.
    """

    name: str
    made: Literal["by hand", "generated"]
    path: str
    function: str
    expression: str
    instead: str
    which: int = 1
    of: int = 1
    words: str = ""
    looks_like: str
    is_kept: bool = False

    @property
    def edit(self) -> Edit:
        places = self.path, self.function, self.expression, self.instead
        return Edit(*places, which=self.which, of=self.of)

    @property
    def said(self) -> str:
        """What the change does, or how it reads."""
        return self.words or f"`{self.instead}` for `{self.expression}`"


class Shown(Place, frozen=True, kw_only=True, tag="shown"):
    """A break of the unchanged release, and the listed fault that it is."""

    fault: str


class Turned(Place, frozen=True, kw_only=True, tag="turned"):
    """A break of the release's model in which one more flag is not true.

    It is to be `told` as the listed fault with that cause, as none where that is not listed to
    break the contract; without the `condition` it passes for the one that it `looks_like`. No
    condition: it passes for that all the same, and `why`.
    """

    flag: str
    looks_like: str
    told: str | None = None
    condition: Literal["b", "c", None] = None
    why: str = ""


@dataclass(frozen=True)
class Gallery:
    """All rows, by what they are."""

    changes: list[Disguised]
    shown: list[Shown]
    turned: list[Turned]


def gallery() -> Gallery:
    """What is on file."""
    decoder = msgspec.json.Decoder(Disguised | Shown | Turned)
    rows = decoder.decode_lines(TABLE.read_bytes())
    return Gallery(
        [one for one in rows if isinstance(one, Disguised)],
        [one for one in rows if isinstance(one, Shown)],
        [one for one in rows if isinstance(one, Turned)],
    )
