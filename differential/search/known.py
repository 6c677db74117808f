"""Known faults: what is public about a release is annotated in a report, never hidden."""

from collections.abc import Collection, Iterable, Sequence
from typing import Annotated

import msgspec

from cacheproof.differential.lanes.all_lanes import LANES
from cacheproof.differential.texts import mends
from cacheproof.differential.traces.trace import ModelRunner, Trace
from cacheproof.reference.releases import FIRST_MODELLED, model_of, within
from cacheproof.spec.versions import Versions, release_key

NAME = r"^[a-z0-9]+(-[a-z0-9]+)*$"
SEEDS = 10**9
"""Bound of the seeds of traces."""
HARMS = ("safety", "liveness", "efficiency")
"""Kinds of harm, the worst first."""
Seed = Annotated[int, msgspec.Meta(ge=0, lt=SEEDS)]
Some = Annotated[tuple[str, ...], msgspec.Meta(min_length=1)]


class Cause(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The cause of a fault: `flags` of `reference/semantics` that are not true of a release with
    it. With all of them true the fault breaks none of the `contracts`. `kinds` narrow a contract to
    some kinds of break, where its judge tells several apart."""

    flags: Some
    contracts: Some
    kinds: dict[str, Some] = {}

    def breaks(self, contract: str, kind: str | None) -> bool:
        """Whether the cause is listed to break that contract, in that kind if one is given."""
        kinds = self.kinds.get(contract)
        return contract in self.contracts and (kind is None or kinds is None or kind in kinds)


class Symptom(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A symptom of a fault whose cause the reference does not model: a contract that it breaks in
    some releases. `lanes` narrow it to lanes of a search, `kind` to one kind of break, `runner` to
    traces of one model runner."""

    contract: str
    releases: str
    lanes: tuple[str, ...] = ()
    kind: str | None = None
    runner: ModelRunner | None = None

    def breaks(self, contract: str, kind: str | None) -> bool:
        """Whether the symptom is that contract, in that kind if one is given."""
        return contract == self.contract and (kind is None or self.kind in (None, kind))

    def covers(
        self,
        contract: str,
        kind: str | None,
        release: str,
        lanes: Collection[str] | None,
        runner: ModelRunner | None,
    ) -> bool:
        """Whether the symptom covers a break that one of these lanes may have made; None stands for
        any kind, lane and runner."""
        return (
            self.breaks(contract, kind)
            and release in Versions(self.releases)
            and (not self.lanes or lanes is None or not {*self.lanes}.isdisjoint(lanes))
            and (runner is None or self.runner in (None, runner))
        )


class KnownFault(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A listed fault: what it comes of, or what it shows, and what a reader is to know of it.

    `harm` begins with its kind. `needs` is what makes the fault reachable, `avoid` the switch or
    the act that removes it. `seen`, `as_read` and `not_run` are spans of vLLM's releases: in which
    a run showed it, in which its lines were read alone, and of which nothing is known; in all
    others it does not show. `mended_in` is the release that mends it. `product` is the plug-in that
    has the fault, with its releases. `questions` are those of an audit, none at all where it bears
    on none; `only` narrows one to some releases. `page` is the file that describes it.

    `breaks` are the contracts of a fault without causes and symptoms.

    A search meets it `again` in one of these lanes, from a release on (`again_since`), where they
    are searched at all; a fault without them need not be met. `seeds` of a lane show it where a
    short search need not meet it.

    What shows it: `traces`, each called as the fault in whose folder it lies with the rest of its
    file's name, `engines` (a trace of an engine -> its releases), `search` (options of
    `cacheproof fuzz`), or another `command`, in which {release} stands for a release.
    """

    name: Annotated[str, msgspec.Meta(pattern=NAME)]
    title: str
    harm: Annotated[str, msgspec.Meta(pattern=r"^(safety|liveness|efficiency)\b")]
    page: str | None = None
    needs: str = ""
    avoid: str = ""
    seen: str = ""
    mended_in: str | None = None
    as_read: str = ""
    not_run: str = ""
    runner: str = ""
    product: str = ""
    upstream: str = ""
    questions: tuple[str, ...] | None = None
    only: dict[str, str] = {}
    cause: tuple[Cause, ...] = ()
    symptom: tuple[Symptom, ...] = ()
    breaks: tuple[str, ...] = ()
    again: tuple[str, ...] = ()
    again_since: str = FIRST_MODELLED
    seeds: dict[str, tuple[Seed, ...]] = {}
    traces: tuple[str, ...] = ()
    engines: dict[str, str] = {}
    search: str = ""
    command: str = ""

    @property
    def contracts(self) -> tuple[str, ...]:
        """The contracts that the fault breaks, in the order in which they are listed."""
        by_cause = (contract for cause in self.cause for contract in cause.contracts)
        by_symptom = (symptom.contract for symptom in self.symptom)
        return tuple(dict.fromkeys([*by_cause, *by_symptom, *self.breaks]))

    @property
    def kind_of_harm(self) -> str:
        """The kind of harm with which `harm` begins."""
        return self.harm.replace(",", ":").replace(";", ":").partition(":")[0]

    @property
    def thread(self) -> str | None:
        """What is public of the fault, with the project whose numbers are named; None where nothing
        was found."""
        if not self.upstream or self.upstream.startswith("none found"):
            return None
        return f"vLLM {self.upstream}" if self.upstream.startswith(("#", "PR #")) else self.upstream

    @property
    def is_by_symptom(self) -> bool:
        """Whether no cause of the fault is modelled, so that it is listed by what it breaks."""
        return not self.cause

    @property
    def is_told_alone(self) -> bool:
        """Whether only what it breaks tells the fault, which has neither a cause nor a mend."""
        return self.is_by_symptom and self.name not in mends.mends()

    def place(self, contract: str, kind: str) -> tuple[str, str, str]:
        """The way in which the fault shows: its name, the contract, and the kind where the fault is
        listed for some kinds alone."""
        by_cause = (one.kinds.get(contract) for one in self.cause)
        by_symptom = (one.kind for one in self.symptom if one.contract == contract)
        return self.name, contract, kind if any([*by_cause, *by_symptom]) else ""

    def command_on(self, release: str) -> str:
        """`command` for a release."""
        return self.command.replace("{release}", release)

    def is_seen_in(self, release: str | None) -> bool:
        """Whether runs showed the fault in a release; one later than all modelled releases has what
        the newest of them has."""
        if release is None:
            return False
        if any(release in Versions(one.releases) for one in self.symptom):
            return True
        return bool(self.cause) and _stands_for(release) in within(self.seen)

    def is_listed_in(self, release: str | None) -> bool:
        """Whether a run showed the fault in a modelled release, whatever it comes of."""
        return self.is_seen_in(release) or release in within(self.seen)

    def is_in(self, release: str | None) -> bool:
        """Whether a release has the fault, or may have it."""
        # Lines that were only read, and releases of which nothing is known, count as well.
        spans = within(self.seen) + within(self.as_read) + within(self.not_run)
        by_cause = bool(self.cause) and release is not None and _stands_for(release) in spans
        return by_cause or self.is_seen_in(release)

    def must_be_met(self, release: str | None, lane: str) -> bool:
        """Whether a search of a release must meet it, if it searches that lane."""
        return (
            lane in self.again
            and self.is_seen_in(release)
            # Without a release nothing is seen: "" is never compared.
            and release_key(release or "") >= release_key(self.again_since)
        )

    def may_break(
        self,
        contract: str,
        kind: str | None,
        release: str | None,
        lanes: Collection[str] | None = None,
        runner: ModelRunner | None = None,
    ) -> bool:
        """Whether a break of a release may be this fault, by what is broken alone; None stands for
        any kind, lane and runner."""
        if release is None:
            return False
        return any(one.covers(contract, kind, release, lanes, runner) for one in self.symptom) or (
            any(one.breaks(contract, kind) for one in self.cause) and self.is_in(release)
        )


def _stands_for(release: str) -> str | None:
    """The modelled release that stands for a release; None for one older than all of them."""
    return model_of(release) if release_key(release) >= release_key(FIRST_MODELLED) else None


def may_be(
    faults: Iterable[KnownFault],
    contract: str,
    kind: str | None,
    release: str | None,
    lanes: Collection[str] | None = None,
    runner: ModelRunner | None = None,
) -> list[KnownFault]:
    """The listed faults that a break may be, by `KnownFault.may_break`."""
    return [one for one in faults if one.may_break(contract, kind, release, lanes, runner)]


def lanes_of(trace: Trace, projects: Collection[str] = ("vllm",)) -> list[str]:
    """The lanes of these projects that may have made a trace: they have its depth and manager."""
    kept = trace.depth, trace.header.manager
    return [
        name
        for name, one in LANES.items()
        if (one.depth, one.manager) == kept and one.project in projects
    ]


def called(faults: Iterable[KnownFault], name: str | None) -> KnownFault | None:
    """The fault of that name; None where none is."""
    return next((one for one in faults if one.name == name), None)


def showing_seeds(faults: Sequence[KnownFault], release: str | None) -> dict[str, list[int]]:
    """Lane -> the seeds that show listed faults of a release."""
    seeds: dict[str, set[int]] = {}
    for fault in faults:
        for lane, some in fault.seeds.items() if fault.is_seen_in(release) else ():
            seeds.setdefault(lane, set()).update(some)
    return {lane: sorted(found) for lane, found in seeds.items()}
