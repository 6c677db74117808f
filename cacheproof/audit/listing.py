"""Which listed fault a break in a record is, and what to do about it."""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass

from cacheproof.differential.audit.account import FoundBreak
from cacheproof.differential.audit.auditor import Auditor
from cacheproof.differential.lanes.all_lanes import LANES
from cacheproof.differential.search.known import KnownFault, called, may_be
from cacheproof.differential.traces.scheduler import SchedulerConfig
from cacheproof.differential.traces.trace import Trace
from cacheproof.differential.traces.wording import visible_line
from cacheproof.listed.facts import fault_rows, remedy

NAMES_SHOWN = 3
CHANGED = "changed"
TOLD_BY = "told by"
THAT_RAN = "the vLLM that ran"
ENDED_WITHOUT_RESULT = "pooling-ended"
"""The fault of a front end that cannot say that a request for an embedding was ended."""
ANOTHER_SOUND = "another-sound"
"""The fault of a decoder that attends to what was encoded for another request of its step."""
REPORT_AT = "https://github.com/vllm-project/vllm/issues"


@dataclass(frozen=True)
class Listing:
    """The list of known faults."""

    faults: Sequence[KnownFault]

    def advice(
        self, faults: Sequence[KnownFault], auditor: Auditor, found: FoundBreak, where: str
    ) -> Iterator[tuple[str, str]]:
        """Whether a break is known as one of these, and what to do; `where` is the record."""
        rule = found.violation.contract
        if not faults:
            of = auditor.release or "this version"
            otherwise = reads_otherwise(auditor)
            has_trace = found.has_trace and where != "-"
            small = "make a small trace of it, and " * has_trace
            if found.is_of_worker:
                kept = f"the step keeps {rule.id} as the scheduler decided it"
                yield "known", f"no: {kept}, and no listed fault of a worker breaks it"
            elif alike := akin(self.faults, auditor, found):
                yield "known", f"no: it is {alike}"
            else:
                more = f"; {otherwise}" * bool(otherwise)
                yield "known", f"no: no listed fault of {of} breaks {rule.id} so{more}"
            if not otherwise:
                yield "to do", f"{small}report it at {REPORT_AT}"
            elif has_trace:
                yield (
                    "to do",
                    f"make a small trace of it on {THAT_RAN}, which tells it by its cause",
                )
            else:
                yield "to do", f"report it to who made {THAT_RAN}"
        for fault in faults:
            yield from self.told(fault, _told_by(auditor))

    def told(self, fault: KnownFault, told_by: str) -> Iterator[tuple[str, str]]:
        """That something is this fault, how that is told, and what is listed of it."""
        yield "known", f"yes, {fault.name}: {fault.title}"
        yield TOLD_BY, told_by
        yield from (row for row in fault_rows(fault) if row[0] != TOLD_BY)


def remedy_of(faults: Sequence[KnownFault], release: str | None) -> str:
    """What to do about these faults, as a clause; empty where the list does not say. Of several
    that it may be, where to read what to do about each."""
    remedies = list(dict.fromkeys(filter(None, (remedy(one, release) for one in faults))))
    return remedies[0] if len(remedies) == 1 else "do what avoids each, as above" * bool(remedies)


def of_answers(faults: Sequence[KnownFault], auditor: Auditor) -> list[KnownFault]:
    """The listed fault of which a front end has ended, by what its record says of the requests."""
    ended, fault = auditor.front_end_failure, called(faults, ENDED_WITHOUT_RESULT)
    if ended is None or not ended.ended or fault is None or reads_otherwise(auditor):
        return []
    return [fault] if fault.is_listed_in(auditor.release) else []


def of_mixed_steps(faults: Sequence[KnownFault], auditor: Auditor) -> KnownFault | None:
    """The listed fault that gives requests of a step that mixes them one another's sound, if the
    engine is of a release and runner that has it."""
    if auditor.trace is None or reads_otherwise(auditor):
        return None
    runner = auditor.trace.runner
    return called(may_be(faults, "EQ-1", None, auditor.release, None, runner), ANOTHER_SOUND)


def listed(faults: Sequence[KnownFault], auditor: Auditor, found: FoundBreak) -> list[KnownFault]:
    """The listed faults that a break may be, each once; none where the vLLM that ran may have
    broken it by what it decides otherwise than the release in which they are listed."""
    return [] if reads_otherwise(auditor) else _breaking(faults, auditor, found)


def akin(faults: Sequence[KnownFault], auditor: Auditor, found: FoundBreak) -> str:
    """What a break may be but new, where the vLLM that ran reads otherwise than its release and
    a listed fault breaks the same; empty else."""
    otherwise = reads_otherwise(auditor)
    alike = _breaking(faults, auditor, found) if otherwise else []
    names = " or ".join(one.name for one in alike)
    return f"new, or {names} in another form, since {otherwise}" if alike else ""


def reads_otherwise(auditor: Auditor) -> str:
    """What of the vLLM that ran reads otherwise than the release that it says it is, as a clause;
    empty where nothing does, and where the record does not say."""
    text = None if auditor.opened is None else auditor.opened.text
    if text is None or (auditor.release in (None, text.nearest) and not text.differing):
        return ""
    if not text.differing:
        nearest = visible_line(text.nearest)
        return f"{THAT_RAN} reads as {nearest}, and not as what it says it is"
    names = [one if how == CHANGED else f"{one} ({how})" for one, how in text.differing.items()]
    more = len(names) - NAMES_SHOWN
    several = ", ".join(names[:NAMES_SHOWN]) + (f" and {more:,} more" if more > 0 else "")
    return visible_line(f"{THAT_RAN} reads otherwise than {text.nearest} in {several}")


def _told_by(auditor: Auditor) -> str:
    """How a fault is told in an audit, which takes no cause away as a search does."""
    if is_told_by_symptom(auditor):
        return "what it breaks alone: the record does not say which text of vLLM ran"
    return f"what it breaks, in a vLLM that reads as {auditor.release}"


def is_told_by_symptom(auditor: Auditor) -> bool:
    """Whether the record leaves open which text ran, so that a fault is told by what breaks."""
    return auditor.opened is not None and auditor.opened.text is None


def _breaking(
    faults: Sequence[KnownFault], auditor: Auditor, found: FoundBreak
) -> list[KnownFault]:
    """Listed faults of the release that break the same contract in the same way, each once."""
    if auditor.release is None or auditor.trace is None or auditor.opened is None:
        return []
    if not auditor.opened.manager_class.startswith("vllm."):
        return []  # its faults are its own
    contract, kind = found.violation.contract.id, found.violation.kind
    lanes = _media_lanes(auditor) if found.is_of_media else _lanes(auditor.trace)
    return [
        one
        for one in may_be(faults, contract, kind, auditor.release, lanes, auditor.trace.runner)
        if one.is_by_symptom or (_can_be(one, lanes) and not found.is_of_worker)
    ]  # causes are those of schedulers and managers


def _lanes(trace: Trace) -> list[str]:
    """The lanes that do what an engine of that configuration does."""
    config = trace.header.config
    assert isinstance(config, SchedulerConfig)
    has = {"scheduler with loads": config.ec_connector, "scheduler with windows": config.groups}
    managers = trace.header.manager, "kv_cache"  # which every engine has
    return [name for name, one in LANES.items() if one.manager in managers and has.get(name, True)]


def _media_lanes(auditor: Auditor) -> list[str]:
    """The lanes of caches of processed media as an engine has them."""
    shared = LANES["front end, shared memory"]
    return [
        name
        for name, one in LANES.items()
        if one.manager == shared.manager
        and (one.silent_on == shared.silent_on) == auditor.media.is_shared
    ]


def _can_be(fault: KnownFault, lanes: Collection[str]) -> bool:
    """Whether a search meets a fault in one of these lanes; one that it need not meet in any."""
    return not fault.again or not {*fault.again}.isdisjoint(lanes)
