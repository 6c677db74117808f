"""What an audit says: each contract that was broken, once, and an account at the end."""

import re
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from itertools import groupby
from textwrap import shorten
from typing import Any

from cacheproof.console import Output
from cacheproof.differential.audit.audit import Audit
from cacheproof.differential.audit.auditor import Auditor, Found
from cacheproof.differential.audit.following import Observed
from cacheproof.differential.lanes.all_lanes import LANES
from cacheproof.differential.search.known import KnownFault
from cacheproof.differential.search.verdict import HOLDS, UNLISTED, VOID
from cacheproof.differential.targets import places, releases
from cacheproof.differential.traces.base import tag_of
from cacheproof.differential.traces.manager import Add
from cacheproof.differential.traces.records import CallRecord
from cacheproof.differential.traces.scheduler import SchedulerConfig
from cacheproof.differential.traces.trace import Trace
from cacheproof.differential.traces.wording import told
from cacheproof.formats.result import Case, Excuse, Problem, Result, Suite, rule_of
from cacheproof.spec.versions import Versions

EVENTS_SHOWN = 12
LINE_MAX = 160


class AuditReport:
    """Prints what an audit finds, each contract once."""

    def __init__(self, output: Output, faults: Sequence[KnownFault], where: str) -> None:
        self._output = output
        self._faults = faults
        self._where = where
        self._shown = 0
        self._shown_of: dict[str, int] = {}

    def show_new(self, audit_of: Audit) -> bool:
        """Print what was found since the last time; whether anything that counts was."""
        counts = False
        for stem, auditor in audit_of.auditors.items():
            shown = self._shown_of.get(stem, 0)
            for found in auditor.found[shown:]:
                self._show(stem, auditor, found)
                counts = counts or found.violation.contract.harm != "efficiency"
            self._shown_of[stem] = len(auditor.found)
        return counts

    def _show(self, stem: str, auditor: Auditor, found: Found) -> None:
        line, rule = self._output.line, found.violation.contract
        line(
            f"{stem}: {rule.id} broken in step {found.step:,} (record {found.record:,}, "
            f"{_time(found.at)}){_kind(found.violation.kind)}"
        )
        line(f"  {rule.title}")
        line(f"  {rule.harm}; {found.violation.why}")
        for words in _listed_told(self._faults, auditor, found):
            line(f"  {words}")
        line("  before it")
        for words in _steps_before(found):
            line(f"    {words}")
        if self._where != "-" and not found.is_of_kv_cache:
            self._output.command(f"  cacheproof minimise {self._where} --contract {rule.id}")

    def end(self, audit_of: Audit) -> int:
        """Print the rest and the account. Returns the exit code."""
        self.show_new(audit_of)
        codes = [self._account(stem, auditor) for stem, auditor in audit_of.auditors.items()]
        for name in audit_of.unbegun:
            self._output.line(f"{name}: the head of the record is missing: nothing was judged")
            codes.append(VOID)
        for name in audit_of.without_scheduler:
            self._output.line(f"{name}: a worker's record without its scheduler's: not judged")
        for stem, auditor in audit_of.auditors.items():
            self._output.found(self._result(stem, auditor))
        self._output.write_json(
            "audit",
            {"engines": [_json(stem, one) for stem, one in audit_of.auditors.items()]},
        )
        return UNLISTED if UNLISTED in codes else max(codes)

    def _result(self, stem: str, auditor: Auditor) -> Result:
        """What was found of an engine, for the formats that pipelines read."""
        found: dict[str, list[Problem]] = {}
        for one in auditor.found:
            problem = self._problem(auditor, one)
            found.setdefault(one.violation.contract.id, []).append(problem)
        scope = f"{auditor.account.judged_steps:,} steps"
        cases = [
            Case(rule_of(rule.id), scope, tuple(found.get(rule.id, ()))) for rule in auditor.rules
        ]
        void = tuple(auditor.account.gaps) if auditor.account.gap_count else ()
        return Result(stem, (Suite("audit", tuple(cases)),), void=void)

    def _problem(self, auditor: Auditor, found: Found) -> Problem:
        violation, trace = found.violation, _window(auditor, found)
        way = (
            (places.of_kv_cache(violation.operation),)
            if found.is_of_kv_cache
            else tuple(places.way(trace, len(trace.events) - 1, violation.operation))
        )
        release = None if auditor.release is None else releases.find(auditor.release)
        harm = violation.contract.harm
        excuse = Excuse("its harm is efficiency, which fails no command")
        return Problem(
            harm,
            f"{violation.contract.id} broken in step {found.step:,}: {violation.why}",
            "\n".join(_steps_before(found)),
            violation.kind,
            "",
            way,
            places.find(release.tree, way[-1]) if release is not None and way else None,
            excuse if harm == "efficiency" else None,
        )

    def _account(self, stem: str, auditor: Auditor) -> int:
        line, account, opened = self._output.line, auditor.account, auditor.opened
        if opened is None or account.steps == account.judged_steps == account.records == 0:
            line(f"{stem}: nothing is recorded yet: nothing was judged")
            return VOID
        line(
            f"{stem}: vllm {opened.vllm}, {opened.manager_class.rpartition(':')[2]}, from "
            f"{_time(account.started)} on for {account.seconds:,.0f} s"
            f"{'' if account.closed else '; the record has no end'}"
        )
        line(
            f"  {account.judged_steps:,} of {account.steps:,} steps judged, {account.requests:,} "
            f"requests; a worker's store compared after {account.stores:,} steps"
        )
        if auditor.kv.calls:
            line(f"  {auditor.kv.judged:,} of {auditor.kv.calls:,} calls of its KV cache judged")
        for (contract, kind), count in account.broken.items():
            line(f"  broken: {contract}{_kind(kind)}, {count:,} times")
        for what, count in account.raised.items():
            line(f"  the engine raised in {what}, {count:,} times")
        for why in account.gaps:
            line(f"  missing: {why}")
        if account.gap_count > len(account.gaps):
            line(f"  missing: {account.gap_count - len(account.gaps):,} more gaps")
        if account.lost:
            line(f"  missing: {account.lost:,} records that the engine could not write")
        for what in sorted(account.unjudged):
            line(f"  not followed: {what}")
        harms = {found.violation.contract.harm for found in auditor.found}
        if harms & {"safety", "liveness"} or account.raised:
            return UNLISTED
        is_whole = account.judged_steps == account.steps and not account.gap_count
        is_whole = is_whole and auditor.kv.judged == auditor.kv.calls
        return HOLDS if is_whole and not account.lost else VOID


def _can_be(fault: KnownFault, trace: Trace) -> bool:
    """Whether an engine of that configuration does what the fault's lanes do."""
    config = trace.header.config
    assert isinstance(config, SchedulerConfig)
    has = {"scheduler with loads": config.ec_connector, "scheduler with windows": config.groups}
    managers = trace.header.manager, "kv_cache"  # which every engine has
    return not fault.lanes or any(
        LANES[lane].manager in managers and has.get(lane, True) for lane in fault.lanes
    )


def _window(auditor: Auditor, found: Found) -> Trace:
    """The events before a break, as a trace."""
    assert auditor.trace is not None
    return auditor.trace.with_events(one.event for one in found.window)


def _kind(kind: str) -> str:
    return f", {kind}" if kind else ""


def _time(seconds: float) -> str:
    try:
        return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
    except (OSError, OverflowError, ValueError):
        return "no time"


def listed(faults: Sequence[KnownFault], auditor: Auditor, found: Found) -> dict[str, str | None]:
    """Listed faults of the release that break the same contract, each with its page."""
    if auditor.release is None or auditor.trace is None or auditor.opened is None:
        return {}
    if not auditor.opened.manager_class.startswith("vllm."):
        return {}  # its faults are its own
    return {
        one.name: one.page
        for one in faults
        if one.contract == found.violation.contract.id
        and auditor.release in Versions(one.releases)
        and one.kind in (None, found.violation.kind)
        and _can_be(one, auditor.trace)
    }


def _listed_told(faults: Sequence[KnownFault], auditor: Auditor, found: Found) -> Iterator[str]:
    for name, page in listed(faults, auditor, found).items():
        where = f" (docs/{page})" if page else ""
        yield f"listed for {auditor.release} by this contract: {name}{where}"


def _steps_before(found: Found) -> list[str]:
    """The last events before a break that have to do with what it names; those alike are one."""
    why = found.violation.why
    bound = re.findall(r"for \w+ = '([^']+)'", why) or re.findall(r"'([^']+)'", why)
    names = {*bound, found.violation.request, found.violation.identifier} - {""}
    told_of = [(one, _words(one, names)) for one in found.window]
    lines = [words for one, words in told_of if words is not None or one is found.window[-1]]
    runs = [(line or "the step itself", len(list(alike))) for line, alike in groupby(lines)]
    return [
        shorten(line, LINE_MAX, placeholder=" ...") + (f" ({count} times)" if count > 1 else "")
        for line, count in runs[-EVENTS_SHOWN:]
    ]


def _words(observed: Observed, names: set[str]) -> str | None:
    """What an event did to what is named; None: nothing."""
    event, record = observed
    outcome = record.outcome if isinstance(record.outcome, dict) else {}
    parts = [
        f"{tokens} token{'s' * (tokens != 1)} of {name}"
        for name, tokens in outcome.get("scheduled", {}).items()
        if name in names
    ]
    parts += [f"{name} is preempted" for name in outcome.get("preempted", ()) if name in names]
    parts += [f"{name} ends" for name in outcome.get("finished", ()) if name in names]
    parts += filter(None, (_call(call, names) for call in record.calls))
    parts += [f"{name} is reported" for name in outcome.get("notices", ()) if name in names]
    if isinstance(event, Add):
        items = [one for one in event.items if one.identifier in names or event.request in names]
        spans = [f"{one.identifier} [{one.offset}, {one.offset + one.length})" for one in items]
        if spans or event.request in names:
            return f"{event.request} arrives with {', '.join(spans) or 'no items'}"
    elif getattr(event, "request", None) in names:
        parts.insert(0, told(event, record.outcome))
    return f"{tag_of(type(event))}: {', '.join(parts)}" if parts else None


_DONE = {
    ("check", True): "hits",
    ("can", False): "is refused",
    ("allocate", None): "takes in",
    ("release", None): "releases",
}


def _has_raised(call: CallRecord) -> bool:
    return isinstance(call.answer, dict)


def _call(call: CallRecord, names: set[str]) -> str | None:
    """What a call did to what is named."""
    entries = {} if call.delta is None else call.delta.entries
    touched = [name for name in entries if name in names]
    answer = call.answer if isinstance(call.answer, bool) else None
    done = None if _has_raised(call) else _DONE.get((call.operation, answer))
    if call.request in names and call.input is not None and done is not None:
        return f"{call.request} {done} #{call.input}"
    gone = [name for name in touched if entries[name] is None]
    if gone:
        return f"{', '.join(gone)} evicted for {call.request}"
    if touched and done is not None:
        return f"{call.request} {done} {touched[0]}"
    return None


def _json(stem: str, auditor: Auditor) -> dict[str, Any]:
    account, opened = auditor.account, auditor.opened
    return {
        "engine": stem,
        "vllm": None if opened is None else opened.vllm,
        "manager": None if opened is None else opened.manager_class,
        "started": account.started,
        "seconds": round(account.seconds, 6),
        "steps": account.steps,
        "judged_steps": account.judged_steps,
        "stores_compared": account.stores,
        "kv_calls": auditor.kv.calls,
        "judged_kv_calls": auditor.kv.judged,
        "requests": account.requests,
        "closed": account.closed,
        "lost": account.lost,
        "gaps": account.gaps,
        "gap_count": account.gap_count,
        "raised": account.raised,
        "not_followed": sorted(account.unjudged),
        "broken": [
            {"contract": contract, "kind": kind or None, "times": count}
            for (contract, kind), count in account.broken.items()
        ],
        "findings": [
            {
                "contract": found.violation.contract.id,
                "harm": found.violation.contract.harm,
                "kind": found.violation.kind or None,
                "step": found.step,
                "record": found.record,
                "at": found.at,
                "request": found.violation.request or None,
                "identifier": found.violation.identifier or None,
                "why": found.violation.why,
                "before": _steps_before(found),
            }
            for found in auditor.found
        ],
    }
