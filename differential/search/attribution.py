"""Which listed fault a break of a target is: by its cause, not by what it breaks.

A break is a listed fault's where (a) up to there the target decided on that trace as the model of
its release does, (b) the model with the fault's cause taken away does not break the contract there,
and (c) the fault is listed to break that contract. The model is the reference, and causes are flags
of its semantics. Of a fault whose cause is no flag, the release itself with the fault mended is
asked; a fault without a mend is told by what it breaks alone, if (a) holds.
"""

import itertools
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType

from msgspec.structs import replace

from cacheproof.differential.depths import DEPTHS
from cacheproof.differential.findings.breaks import Attributed
from cacheproof.differential.findings.finding import Finding
from cacheproof.differential.judges.examination import LOCKSTEP, Examination, examine
from cacheproof.differential.judges.lockstep import Difference, compare
from cacheproof.differential.provision import releases
from cacheproof.differential.provision.releases import InstalledRelease
from cacheproof.differential.search.known import Cause, KnownFault, called, lanes_of, may_be
from cacheproof.differential.search.mending import Mending
from cacheproof.differential.targets.base import Target
from cacheproof.differential.targets.changes import reads_otherwise
from cacheproof.differential.targets.named import plug_in_named
from cacheproof.differential.targets.process import HostTarget
from cacheproof.differential.targets.reference import ReferenceTarget
from cacheproof.differential.targets.resolve import host_of
from cacheproof.differential.texts import mends
from cacheproof.differential.traces.records import TraceResult
from cacheproof.differential.traces.trace import Trace

UNTURNED = "encoder_connector"
"""The depth whose reference has no flags: no flag models what a connector does wrong."""
DRAWN = frozenset({"outside"})
"""Fields of an outcome in which two runs of one release may differ: names of files are drawn."""
TOGETHER_MAX = 3
"""Most causes that are taken away together to see whether a break goes away."""
_UNLISTED = Attributed()
Where = tuple[str, str | None, str, str]
"""A lane, a model runner, a contract and a kind of break."""
NOTHING_SURE: Mapping[Where, str] = MappingProxyType({})
Causes = tuple[tuple[str, ...], ...]
"""Flags of several causes."""
Causal = list[tuple[KnownFault, Cause]]
"""Faults, each with a cause of it."""


@dataclass
class _Run:
    """A trace that a target has run: the last event at which it breaks something, where it parts
    from the model or from the release itself, if it `is_compared` with one, whether the model runs
    it, and what breaks without causes, or with a fault mended, as far as that was asked."""

    trace: Trace
    last: int
    difference: Difference | None
    is_compared: bool
    is_modelled: bool
    without: dict[Causes | frozenset[str], tuple[TraceResult, Examination]] = field(
        default_factory=dict
    )

    def parts_by(self, event: int) -> bool:
        """Whether the target decided otherwise than what it was compared with, up to that event."""
        return self.difference is not None and self.difference.event <= event

    @property
    def can_be_turned(self) -> bool:
        """Whether the model runs the trace, and has flags at its depth."""
        return self.is_modelled and self.trace.depth != UNTURNED


class Attribution:
    """Tells the breaks of a target's traces apart, by a list of faults.

    `release` is what the target says it is, of one of these `projects`. The `model` is the
    reference under the semantics of the release that is the target's model; None where that is not
    modelled: then faults are told by what they break alone. So they are on traces that the model
    does not run, but for a target that `is_changed`, whose text is not that of its model: there it
    is held against the `release_itself`, if that is on this machine.
    """

    def __init__(
        self,
        known: Sequence[KnownFault],
        release: str | None,
        model: ReferenceTarget | None,
        projects: Collection[str] = ("vllm",),
        *,
        is_changed: bool = False,
        release_itself: InstalledRelease | None = None,
        mending: Mending | None = None,
    ) -> None:
        self._known = known
        self._release = release
        self._projects = projects
        self._is_changed = is_changed
        self._release_itself = release_itself
        self._mending = mending
        self._model = model
        self._turned: dict[Causes, ReferenceTarget] = {}
        self._itself: HostTarget | None = None

    @classmethod
    def of_target(
        cls, known: Sequence[KnownFault], target: Target, model: ReferenceTarget | None
    ) -> "Attribution":
        """The attribution for a target's breaks. A plug-in is another text than its release; faults
        that are mended in the target are not listed any more."""
        kind = releases.VLLM
        if isinstance(target, HostTarget) and target.runs_depth(releases.ENGINE):
            kind = releases.ENGINE
        itself = None if target.model is None else releases.find(target.model, kind=kind)
        near = None
        if isinstance(target, HostTarget) and itself is not None and target.tree == itself.tree:
            near = target
        is_changed = target.reading is not None and target.reading.differs
        is_changed |= plug_in_named(target.name) is not None
        if target.mended:
            known = list(_left(known, target.mended))
        elif not is_changed and itself is not None and target.tree not in (None, itself.tree):
            # a reading says nothing of connectors, nor of what they and others call
            is_changed = reads_otherwise(target.tree, itself.tree)
        return cls(
            known,
            target.release,
            model,
            target.projects,
            is_changed=is_changed,
            release_itself=itself if is_changed else None,
            mending=None if itself is None else Mending(itself, kind, target.mended, near),
        )

    def close(self) -> None:
        """End the hosts that it has asked; the next question starts them anew."""
        # Turned models run on the hosts of the model, which are its owner's to close.
        for asked in (self._mending, self._itself):
            if asked is not None:
                asked.close()

    def of(
        self,
        trace: Trace,
        result: TraceResult,
        seen: Examination,
        lane: str | None,
        name: str = "",
        sure: Mapping[Where, str] = NOTHING_SURE,
    ) -> dict[tuple[str, str], Attributed]:
        """Which listed fault each break of a trace is, by contract and kind.

        Without a lane, any lane of the trace's depth may have made it. Of several faults that fit,
        the one with whose name the trace's `name` begins counts, else the first. Where it is `sure`
        which fault breaks a contract, the cause is not asked for again.
        """
        run: _Run | None = None
        found = {}
        for (contract, kind), broken in seen.by_kind.items():
            if run is None:  # only now: to compare with the model may cost a run of it
                last = max(one.event for one in seen.by_kind.values())
                run = self._run_of(trace, result, last, seen)
            place = contract, kind
            fault = sure.get((lane or "", trace.runner, *place))
            first = run.difference
            # Sure only as long as the target decides as its model does.
            if fault is not None and (first is None or first.event > broken.event):
                found[place] = Attributed(fault)
            else:
                found[place] = self._told(run, place, broken.event, lane, name)
        return found

    def of_finding(self, found: Finding, lane: str | None) -> Attributed:
        """Which listed fault a finding is, by its records."""
        if found.contract == LOCKSTEP:  # faults are listed by the contracts that they break
            return _UNLISTED
        result = TraceResult(found.records, capacity=found.capacity)
        run = self._run_of(found.trace, result, found.event)
        broken = found.contract, found.kind
        told = self._told(run, broken, found.event, lane, "")
        if told.fault is None and not run.parts_by(found.event) and run.can_be_turned:
            other = self._of_another_contract(run, broken, found.event)
            if other is not None:
                why = f"{found.contract} holds without {other.name}, which does not list it"
                return Attributed(why=why)
        return told

    def annotated(self, found: Finding, told: Attributed) -> Finding:
        """The finding, annotated with the listed fault that it is."""
        fault = called(self._known, told.fault)
        found = found.attributed(told)
        return found if fault is None else found.annotated(fault.thread, fault.title, fault.name)

    def parts(self, trace: Trace, result: TraceResult, event: int) -> bool:
        """Whether the target decided otherwise than the model up to that event of a trace; of a
        changed target also where the trace compares it with nothing."""
        run = self._run_of(trace, result, event)
        if not run.is_compared:
            return self._is_changed
        return run.parts_by(event)

    def _run_of(
        self, trace: Trace, result: TraceResult, last: int, seen: Examination | None = None
    ) -> _Run:
        if seen is not None and seen.compared:
            return _Run(trace, last, seen.difference, is_compared=True, is_modelled=True)
        # The model first: its flags can be turned, and a release has none.
        for beside in (self._model, self._host_of_release()):
            if beside is None or (beside is self._model and not self._model.compares(trace)):
                continue
            (expected,) = beside.run([trace])
            if expected.illegal is None:
                is_modelled = beside is self._model
                its_own = DEPTHS[trace.depth].its_own if is_modelled else DRAWN
                difference = compare(expected, result, its_own)
                return _Run(trace, last, difference, is_compared=True, is_modelled=is_modelled)
        return _Run(trace, last, None, is_compared=False, is_modelled=False)

    def _host_of_release(self) -> HostTarget | None:
        """A host of the release that a changed target is nearest to, where that is installed."""
        itself = self._release_itself
        if self._itself is None and itself is not None:
            self._itself = host_of(itself, f"vllm@{itself.version}")
        return self._itself

    def _told(
        self, run: _Run, broken: tuple[str, str], event: int, lane: str | None, name: str
    ) -> Attributed:
        trace, (contract, kind), first = run.trace, broken, run.difference
        lanes = lanes_of(trace, self._projects) if lane is None else (lane,)
        may = may_be(self._known, contract, kind, self._release, lanes, trace.runner)
        causal = self._causal(contract, kind, name)
        alike = list(dict.fromkeys(one.name for one in (*(fault for fault, _ in causal), *may)))
        if first is not None and run.parts_by(event):  # what it breaks from there on is its own
            release = self._release if self._model is None else self._model.release
            why = f"but the target decides otherwise than {release} before: {first.sentence}"
            return _new(contract, alike, why)
        if self._is_changed and not run.is_compared and trace.depth != UNTURNED:
            return _new(contract, alike, "but the reference runs no such trace")
        if not run.can_be_turned:
            return self._by_mend(run, may, lanes, broken, event, name)
        # The first that explains the break is told.
        for fault, cause in causal:
            if not self._breaks(run, (cause.flags,), broken, event):
                return Attributed(fault.name)
        causes = dict.fromkeys(cause.flags for _, cause in causal)
        # Smallest sets first, so that no cause is named that the break does not need.
        for number in range(2, min(TOGETHER_MAX, len(causes)) + 1):
            sets = list(itertools.combinations(causes, number))
            explaining = [one for one in sets if not self._breaks(run, one, broken, event)]
            if explaining:
                return _by_causes([_of_causes(causal, one) for one in explaining])
        if behind := list(self._one_behind_another(run, causal, broken, event, name)):
            return _by_causes(behind)
        if without_cause := [one for one in may if one.is_by_symptom]:
            return self._by_mend(run, without_cause, lanes, broken, event, name)
        names = _names([fault for fault, _ in causal])
        return Attributed(why=f"{contract} breaks without {names} too" if causal else "")

    def _by_mend(
        self,
        run: _Run,
        faults: Sequence[KnownFault],
        lanes: Sequence[str],
        broken: tuple[str, str],
        event: int,
        name: str,
    ) -> Attributed:
        """The fault whose mend takes the break away; else the one without a mend that is listed to
        break so; else the one that takes it away together with another that breaks the contract. A
        mended release that refuses the trace says nothing about its fault."""
        can_be = [one for one in faults if self._can_mend(one, broken[1])]
        can_be.sort(key=lambda one: not _is_called(name, one))
        refusing = []
        for one in can_be:
            seen = self._mended(run, one)
            if seen[1].illegal is not None:
                refusing.append(one)
            elif not _still_breaks(*seen, broken, event):
                return Attributed(one.name)
        cannot_be = [one for one in faults if one not in can_be]
        if cannot_be or not can_be:
            return _by_symptom(cannot_be, name)
        # behind one fault another may break the contract at the same event, in whichever kind
        beside = may_be(self._known, broken[0], None, self._release, lanes, run.trace.runner)
        for one, other in itertools.product(can_be, beside):
            if one is not other and self._can_mend(other, None):
                seen = self._mended(run, one, other)
                if seen[1].illegal is None and not _still_breaks(*seen, broken, event):
                    return _by_causes([[one, other]])
        breaking = [one for one in can_be if one not in refusing]
        why = [f"{broken[0]} breaks without {_names(breaking)} too"] if breaking else []
        if refusing:
            why.append(f"a release without {_names(refusing)} refuses the trace")
        return Attributed(why="; ".join(why))

    def _can_mend(self, fault: KnownFault, kind: str | None) -> bool:
        return self._mending is not None and self._mending.can_mend(fault.name, kind)

    def _mended(self, run: _Run, *faults: KnownFault) -> tuple[TraceResult, Examination]:
        """What the release without these faults makes of the trace."""
        assert self._mending is not None
        names = frozenset(one.name for one in faults)
        if names not in run.without:
            run.without[names] = _examined(run, self._mending.without(*names))
        return run.without[names]

    def _of_another_contract(
        self, run: _Run, broken: tuple[str, str], event: int
    ) -> KnownFault | None:
        """A fault that causes the break and is not listed to break that contract."""
        each = {cause.flags: fault for fault in self._known for cause in fault.cause}
        for flags, fault in each.items():
            if not self._has(flags) and not self._breaks(run, (flags,), broken, event):
                return fault
        return None

    def _one_behind_another(
        self, run: _Run, causal: Causal, broken: tuple[str, str], event: int, name: str
    ) -> Iterator[tuple[KnownFault, KnownFault]]:
        """Pairs of faults: without the first the contract still breaks at the event, in other kinds
        alone, and in those the second is listed to break it."""
        contract, _ = broken
        for fault, cause in causal:
            result, seen = self._run_without(run, (cause.flags,))
            if len(result.records) <= event or _breaks_so(seen, broken, event):
                continue
            kinds = [
                kind
                for (rule, kind), one in seen.by_kind.items()
                if rule == contract and one.event == event
            ]
            for kind in kinds:
                for other, beside in self._causal(contract, kind, name):
                    both = cause.flags, beside.flags
                    if not self._breaks(run, both, broken, event):
                        yield fault, other

    def _causal(self, contract: str, kind: str, name: str) -> Causal:
        """Faults that break the contract by a cause that the model has: the trace's namesake, then
        those of the release, then the others. Of several with one cause, the first."""
        found: dict[tuple[str, ...], tuple[KnownFault, Cause]] = {}
        breaking = [
            one for one in self._known if any(each.breaks(contract, kind) for each in one.cause)
        ]
        breaking.sort(key=lambda one: (not _is_called(name, one), not one.is_in(self._release)))
        for fault in breaking:
            for cause in fault.cause:
                if cause.breaks(contract, kind) and not self._has(cause.flags):
                    found.setdefault(cause.flags, (fault, cause))
        return list(found.values())

    def _has(self, cause: tuple[str, ...]) -> bool:
        """Whether all flags of a cause are true of the model, which then lacks the fault. True
        without a model: no cause can be taken away then."""
        if self._model is None:
            return True
        flags = self._model.semantics.flags
        return all(flags[flag] for flag in cause)

    def _breaks(self, run: _Run, causes: Causes, broken: tuple[str, str], event: int) -> bool:
        """Whether the model without causes still breaks the same contract."""
        return _still_breaks(*self._run_without(run, causes), broken, event)

    def _run_without(self, run: _Run, causes: Causes) -> tuple[TraceResult, Examination]:
        """What the model without causes makes of the trace."""
        if causes not in run.without:
            run.without[causes] = _examined(run, self._without(causes))
        return run.without[causes]

    def _without(self, causes: Causes) -> ReferenceTarget:
        """The model in which the flags of causes are true."""
        assert self._model is not None
        if causes not in self._turned:
            flags = dict.fromkeys(itertools.chain(*causes), True)
            self._turned[causes] = self._model.with_flags(flags)
        return self._turned[causes]


def _examined(run: _Run, target: Target) -> tuple[TraceResult, Examination]:
    (result,) = target.run([run.trace])
    return result, examine(run.trace, result, target, last=run.last)


def _still_breaks(
    result: TraceResult, seen: Examination, broken: tuple[str, str], event: int
) -> bool:
    """Whether a run breaks the same contract: in that kind up to the event, or at it in any kind. A
    run that raises before the event counts as breaking it. One that refuses the trace does not: the
    cause may be that it is not refused."""
    if seen.illegal is None and len(result.records) <= event:
        return True
    contract, _ = broken
    return _breaks_so(seen, broken, event) or any(
        one.event == event for place, one in seen.by_kind.items() if place[0] == contract
    )


def _breaks_so(seen: Examination, broken: tuple[str, str], event: int) -> bool:
    """Whether a run breaks the same contract in that kind up to the event."""
    return broken in seen.by_kind and seen.by_kind[broken].event <= event


def _left(known: Sequence[KnownFault], mended: Collection[str]) -> Iterator[KnownFault]:
    """What is still listed once faults are mended: of a mended fault, the causes and the kinds of
    break that its mend leaves."""
    gone = mends.flags_of(mended).keys()
    for one in known:
        if one.name not in mended:
            yield one
            continue
        causes = tuple(cause for cause in one.cause if {*cause.flags} - gone)
        symptoms = tuple(
            replace(symptom, kind=kind)
            for kind in mends.mends()[one.name].leaves
            for symptom in one.symptom
            if symptom.kind in (None, kind)
        )
        if causes or symptoms:
            yield replace(one, cause=causes, symptom=symptoms)


def _by_causes(explaining: Sequence[Sequence[KnownFault]]) -> Attributed:
    """A break that goes away without all faults of a set, for each of these sets alone."""
    (first, *others) = dict.fromkeys(one.name for one in explaining[0])
    beside = [f"takes {' and '.join(others)} as well"] if others else []
    names = {" and ".join(one.name for one in several) for several in explaining}
    if len(names) > 1:
        beside.append(f"does not show without {', nor without '.join(sorted(names))}")
    return Attributed(first, "; ".join(beside))


def _by_symptom(faults: Sequence[KnownFault], name: str) -> Attributed:
    """The fault after which a trace of that name is called, else the first; none without any."""
    if not faults:
        return _UNLISTED
    likeliest = min(faults, key=lambda one: not _is_called(name, one))
    return Attributed(likeliest.name, by_symptom=True)


def _is_called(name: str, fault: KnownFault) -> bool:
    """Whether a trace of that name is called after a fault."""
    return bool(name) and name.startswith(fault.name)


def _of_causes(faults: Causal, causes: Causes) -> list[KnownFault]:
    """A fault of each cause."""
    return [next(fault for fault, one in faults if one.flags == flags) for flags in causes]


def _new(contract: str, alike: Sequence[str], why: str) -> Attributed:
    """A break that is none of the faults that break the same contract."""
    if not alike:
        return _UNLISTED
    verb = "breaks" if len(alike) == 1 else "break"
    return Attributed(why=f"{' and '.join(alike)} {verb} {contract} too, {why}", parts=True)


def _names(faults: Sequence[KnownFault]) -> str:
    return " and ".join(dict.fromkeys(one.name for one in faults))
