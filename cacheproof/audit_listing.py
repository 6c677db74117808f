"""Which listed fault a break in a record is, and what to do about it."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from cacheproof.differential.audit.account import Found
from cacheproof.differential.audit.auditor import Auditor
from cacheproof.differential.lanes.all_lanes import LANES
from cacheproof.differential.search.known import Fault, KnownFault
from cacheproof.differential.traces.scheduler import SchedulerConfig
from cacheproof.differential.traces.trace import Trace
from cacheproof.fault_facts import fault_rows, remedy
from cacheproof.spec.versions import Versions

REPORT_AT = "https://github.com/vllm-project/vllm/issues"


@dataclass(frozen=True)
class Listing:
    """The list of known faults: their faces, and what it says of each, by name."""

    faces: Sequence[KnownFault]
    told: Mapping[str, Fault]

    def advice(
        self, faults: Sequence[KnownFault], auditor: Auditor, found: Found, where: str
    ) -> Iterator[tuple[str, str]]:
        """Whether a break is known as one of these, and what to do; `where` is the record."""
        rule = found.violation.contract
        if not faults:
            of = auditor.release or "this version"
            yield "known", f"no: no listed fault of {of} breaks {rule.id} so"
            small = "" if found.is_of_kv_cache or where == "-" else "make a small trace of it, and "
            yield "to do", f"{small}report it at {REPORT_AT}"
        for face in faults:
            told = self.told[face.name]
            yield "known", f"yes, {face.name}: {told.title or face.note}"
            yield from fault_rows(told)
            if face.thread and not told.upstream:
                yield "public", face.thread

    def remedy(self, faults: Sequence[KnownFault], release: str | None) -> str:
        """What to do about these faults, as a clause; empty where the list does not say. Of several
        that it may be, where to read what to do about each."""
        several = [self.told[face.name] for face in faults]
        remedies = list(dict.fromkeys(filter(None, (remedy(one, release) for one in several))))
        return (
            remedies[0] if len(remedies) == 1 else "do what avoids each, as above" * bool(remedies)
        )


def listed(faults: Sequence[KnownFault], auditor: Auditor, found: Found) -> list[KnownFault]:
    """Listed faults of the release that break the same contract in the same way, each once."""
    if auditor.release is None or auditor.trace is None or auditor.opened is None:
        return []
    if not auditor.opened.manager_class.startswith("vllm."):
        return []  # its faults are its own
    runner = auditor.trace.runner
    by_name = {
        one.name: one
        for one in reversed(faults)
        if one.contract == found.violation.contract.id
        and auditor.release in Versions(one.releases)
        and one.kind in (None, found.violation.kind)
        and one.runner in (None, runner)
        and _can_be(one, auditor.trace)
    }
    return [by_name[name] for name in reversed(by_name)]


def _can_be(fault: KnownFault, trace: Trace) -> bool:
    """Whether an engine of that configuration does what the fault's lanes do."""
    config = trace.header.config
    assert isinstance(config, SchedulerConfig)
    has = {"scheduler with loads": config.ec_connector, "scheduler with windows": config.groups}
    managers = trace.header.manager, "kv_cache"  # which every engine has
    return not fault.lanes or any(
        LANES[lane].manager in managers and has.get(lane, True) for lane in fault.lanes
    )
