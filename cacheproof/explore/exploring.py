"""The command that explores: targets beside one another, what was covered, and what was found."""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import asdict
from pathlib import Path

from msgspec import NODEFAULT, to_builtins
from msgspec.structs import fields
from rich.table import Table

from cacheproof.differential.errors import InputError
from cacheproof.differential.findings import finding_file, report
from cacheproof.differential.judges.rules import SCHEDULER
from cacheproof.differential.search.explore.job import SUBJECTS, ExploreReport, Task, run
from cacheproof.differential.search.explore.scope import ManagerScope, SchedulerScope, Scope
from cacheproof.differential.search.explore.scopes import SCOPES
from cacheproof.differential.search.explore.table_job import COMPONENT, TableReport, TableTask
from cacheproof.differential.search.explore.table_job import run as run_table
from cacheproof.differential.search.explore.tables import TableScope
from cacheproof.differential.search.known import KnownFault
from cacheproof.differential.search.verdict import HOLDS, INTERRUPTED, UNLISTED, VOID, is_unlisted
from cacheproof.differential.targets.host.managers.manager import item_size
from cacheproof.differential.targets.process import HostTarget
from cacheproof.differential.targets.reference import ReferenceTarget
from cacheproof.differential.targets.resolve import resolve
from cacheproof.differential.traces.base import tag_of
from cacheproof.differential.traces.manager import Add
from cacheproof.differential.traces.scheduler import SchedulerConfig, SchedulerEvent
from cacheproof.explore.verdict import Explored
from cacheproof.output.announcing import announce
from cacheproof.output.conclusion import Conclusion
from cacheproof.output.console import CommandOutput
from cacheproof.output.progress import telling
from cacheproof.output.verdict_line import rule_told
from cacheproof.reference.releases import SEARCHED
from cacheproof.search.lane_choice import require_lanes
from cacheproof.search.searching import print_listed
from cacheproof.spec.evidence import Evidence, Outcome
from cacheproof.spec.registry import by_id
from cacheproof.work.plan import lanes_at
from cacheproof.work.workplace import Workplace

AnyReport = ExploreReport | TableReport
TARGETS = ("reference", *(f"vllm@{release}" for release in SEARCHED))
MANAGER = "manager"
MANAGERS = ("encoder_cache", "encoder_decoder")
SECONDS_OF = {"encoder_cache": 4, "encoder_decoder": 3, "scheduler": 8, COMPONENT: 3}
"""Processor time of a scope with its red twins, about, by subject."""


def explore(
    output: CommandOutput,
    targets: Sequence[str],
    size: str,
    known: Sequence[KnownFault],
    folder: Path,
    place: Workplace,
) -> int:
    """Explore targets, at that place, and print what came of it. Returns the exit code."""
    if size not in SCOPES:
        raise InputError(f"--scope {size}: expected one of {', '.join(SCOPES)}")
    for target in targets:
        require_lanes(lanes_at(MANAGER), target)
    models: dict[str, dict[str, object]] = {}
    tasks = [
        task for target in dict.fromkeys(targets) for task in _tasks(output, target, size, models)
    ]
    reports: list[AnyReport] = []
    is_interrupted = False
    try:
        for several in _reports(output, tasks, place):
            reports += several
    except KeyboardInterrupt:
        is_interrupted = True
    reports.sort(key=lambda one: tasks.index(one.task))
    for one in reports:
        one.annotate(known)
        _print_report(output, one, folder)
    if reports:
        _print_evidence(output, reports)
        output.line(_closing_line(reports))
    code = INTERRUPTED if is_interrupted else _exit_code(reports)
    wanted = tuple(dict.fromkeys(targets))
    explored = _explored(wanted, code, reports, len(tasks) - len(reports))
    facts = {"models": models, **_json(reports), "exit_code": code}
    return output.tell(Conclusion(code, explored.line, facts))


def scopes_markdown() -> str:
    """All scopes as tables, which docs/explain/explore.md explains."""
    managers = [one for one in SCOPES["full"] if isinstance(one, ManagerScope)]
    schedulers = [one for one in SCOPES["full"] if isinstance(one, SchedulerScope)]
    tables = [one for one in SCOPES["full"] if isinstance(one, TableScope)]
    return "\n".join(
        [
            "| scope of a manager | kind | capacity | budget | requests | prompts: identifier, "
            "size | tokens a step | size |",
            "|---|---|--:|--:|---|---|---|---|",
            *(_row(one, _manager_cells(one)) for one in managers),
            "",
            "| scope of a scheduler | requests | arrivals: prompt, output, items | tokens a step "
            "| KV blocks | configured | further events | size |",
            "|---|---|---|--:|--:|---|---|---|",
            *(_row(one, _scheduler_cells(one)) for one in schedulers),
            "",
            "| scope of a table | entries | room | sizes | pins of one, at once | size |",
            "|---|--:|--:|---|--:|---|",
            *(_row(one, _table_cells(one)) for one in tables),
            "",
        ]
    )


def _table_cells(scope: TableScope) -> Iterator[object]:
    yield from (len(scope.entries), scope.capacity, f"1 to {scope.capacity + 1}", scope.pins_max)


def _row(scope: Scope | TableScope, cells: Iterable[object]) -> str:
    size = "small" if scope in SCOPES["small"] else "full"
    return f"| {' | '.join(map(str, (scope.name, *cells, size)))} |"


def _manager_cells(scope: ManagerScope) -> Iterator[object]:
    yield from (scope.manager, scope.capacity, scope.compute_budget, ", ".join(scope.requests))
    yield "; ".join(
        ", ".join(f"{item.identifier} {item_size(to_builtins(item), True)}" for item in prompt)
        for prompt in scope.prompts
    )
    yield ", ".join(map(str, scope.strides))


def _scheduler_cells(scope: SchedulerScope) -> Iterator[object]:
    config = scope.config
    yield from (", ".join(scope.requests), "; ".join(map(_arrival, scope.arrivals)))
    yield from (config.max_num_batched_tokens, config.num_blocks - 1)
    yield ", ".join(_settings(config))
    yield ", ".join(" ".join([tag_of(type(event)), *_settings(event)]) for event in scope.further)


def _arrival(add: Add) -> str:
    """How a request arrives, in the words of the table."""
    words = [f"{add.prompt}+{add.max_tokens}"]
    for item in add.items:
        mask = "" if item.is_embed is None else " as " + "".join(map(str, map(int, item.is_embed)))
        words.append(f"{item.identifier} {item.length} at {item.offset}{mask}")
    if add.priority:
        words.append(f"priority {add.priority}")
    if add.lora is not None:
        words.append(f"adapter {add.lora.lora_int_id}")
    return ", ".join(words)


def _settings(what: SchedulerConfig | SchedulerEvent) -> Iterator[str]:
    """What is otherwise than by default, where there is one."""
    for field in fields(what):
        value = getattr(what, field.name)
        if field.default is not NODEFAULT and value != field.default:
            yield field.name if value is True else f"{field.name} {value}"


def _tasks(
    output: CommandOutput, text: str, size: str, models: dict[str, dict[str, object]]
) -> Iterator[Task | TableTask]:
    """What there is to explore of a target, and in `models` what there is to be said of its text.
    Raises InputError where it has no such manager."""
    with closing(resolve(text, report=output.say)) as target:
        models[text] = announce(output, target, compared=False)
        if not target.runs_depth(MANAGER):
            raise InputError(f"target {text}: no manager to explore; expected a later release")
        plug_in = target.plug_in_kind if isinstance(target, HostTarget) else None
        has_scheduler = isinstance(target, ReferenceTarget)
    if plug_in not in (None, *MANAGERS):
        raise InputError(f"target {text}: is a {plug_in}; expected one of {', '.join(MANAGERS)}")
    for subject in SUBJECTS if plug_in is None else (plug_in,):
        scopes = tuple(
            one for one in SCOPES[size] if isinstance(one, Scope) and one.subject == subject
        )
        if scopes and (subject != SCHEDULER or has_scheduler):
            yield Task(text, subject, scopes)
    of_tables = tuple(one for one in SCOPES[size] if isinstance(one, TableScope))
    if of_tables and plug_in is None:
        yield TableTask(text, of_tables)


def _reports(
    output: CommandOutput, tasks: Sequence[Task | TableTask], place: Workplace
) -> Iterator[Sequence[AnyReport]]:
    """What comes of the tasks, as it comes. Those of a release's managers go together, since its
    process is slow to start."""
    groups: dict[tuple[str, str], list[Task | TableTask]] = {}
    for task in tasks:
        is_alone = isinstance(task, TableTask) or task.target.startswith("reference")
        groups.setdefault((task.target, task.subject if is_alone else ""), []).append(task)
    named = [f"{_name(some)} of {some[0].target}" for some in groups.values()]
    expected = [float(sum(map(_seconds, some))) for some in groups.values()]
    with output.live("exploring") as live:
        several = list(groups.values())
        for number, reports in telling(live, place, _run, several, named, expected):
            live.say(f"explored: {named[number]}")
            yield reports


def _name(tasks: Sequence[Task | TableTask]) -> str:
    return " and ".join(one.subject for one in tasks)


def _seconds(task: Task | TableTask) -> int:
    """About how much processor time a task takes."""
    return SECONDS_OF[task.subject] * len(task.scopes)


def _run(tasks: Sequence[Task | TableTask]) -> Sequence[AnyReport]:
    """What comes of the tasks of a group."""
    of_tables = [run_table(one) for one in tasks if isinstance(one, TableTask)]
    return of_tables or run([one for one in tasks if isinstance(one, Task)])


def _print_report(output: CommandOutput, one: AnyReport, folder: Path) -> None:
    """The scopes, the findings that are not listed in full and the others in a line each, and which
    contracts have not been seen to fail."""
    subject = f"{one.task.target} {one.name}"
    if one.missing is not None:
        output.line(f"{subject}: not explored: {one.missing}")
        return
    output.line(f"{subject}, text {one.digest}")
    table = Table("scope", "states", "transitions", "reach", "/s", box=None, pad_edge=False)
    for each in one.explorations:
        table.add_row(
            each.scope.name,
            f"{each.states:,}",
            f"{each.transitions:,}",
            "closed" if each.closed else f"{each.events} events",
            f"{each.transitions / each.seconds:,.0f}",
        )
    output.report.print(table)
    if isinstance(one, TableReport):
        _print_breaks(output, one)
    else:
        _print_findings(output, one, folder)
    for name in one.unrefuted:
        output.line(f"red twin that nothing refutes within these scopes: {name}")
    for contract in one.unshown:
        reason = one.excuse(contract) or "no red twin breaks it within these scopes"
        output.line(f"not seen to fail, so its green says nothing: {contract} ({reason})")
    output.report.print()


def _print_findings(output: CommandOutput, one: ExploreReport, folder: Path) -> None:
    for finding in one.findings:
        finding_file.save(finding, folder)
        if is_unlisted(finding):
            file = str(finding_file.path_of(finding, folder))
            report.print_finding(finding, output.report, file)
        else:
            print_listed(output, finding, folder)


def _print_breaks(output: CommandOutput, one: TableReport) -> None:
    """The calls by which a table breaks a contract: they are all that there is to be seen."""
    for (contract, kind), found in one.broken.items():
        listed = one.known.get((contract, kind))
        word = "UNLISTED" if listed is None else f"known, {listed.name}"
        output.line(f"{word}: {rule_told(contract)} by {found}")


def _print_evidence(output: CommandOutput, reports: Sequence[AnyReport]) -> None:
    targets = list(dict.fromkeys(one.task.target for one in reports))
    table = Table("contract", *targets, box=None, pad_edge=False)
    cells: dict[tuple[str, str], dict[str, str]] = {}
    for one in reports:
        for row in one.evidence():
            cells.setdefault((row.contract, one.task.subject), {})[row.target] = _cell(one, row)
    several = Counter(contract for contract, _ in cells)
    for (contract, manager), by_target in cells.items():
        told = [by_target.get(target, "not promised") for target in targets]
        table.add_row(f"{contract} {manager}" if several[contract] > 1 else contract, *told)
    output.report.print(table)
    output.line("in brackets: how many red twins the contract refuted")


def _cell(one: AnyReport, row: Evidence) -> str:
    if row.outcome is Outcome.REFUTED:
        return f"refuted, {'listed' if one.is_listed(row.contract) else 'NOT LISTED'}"
    if not row.counts:
        return "not seen to fail"
    return f"holds ({len(row.twins)})"


def _exit_code(reports: Sequence[AnyReport]) -> int:
    """1 with an unlisted finding, 3 where a contract's green says nothing without a reason."""
    if any(harms and not is_known for one in reports for _, is_known, harms in _findings(one)):
        return UNLISTED
    blind = any(not one.excuse(contract) for one in reports for contract in one.unshown)
    return VOID if blind or not any(one.explorations for one in reports) else HOLDS


def _closing_line(reports: Sequence[AnyReport]) -> str:
    explorations = [each for one in reports for each in one.explorations]
    transitions = sum(each.transitions for each in explorations)
    seconds = sum(each.seconds for each in explorations)
    return (
        f"{transitions / max(seconds, 1e-9):,.0f} transitions judged per second; red twins: "
        f"{sum(one.twin_transitions for one in reports):,} more"
    )


def _explored(
    targets: tuple[str, ...], code: int, reports: Sequence[AnyReport], left: int
) -> Explored:
    """What the exploration amounts to, but for the components that are `left`."""
    explorations = [each for one in reports for each in one.explorations]
    findings = [each for one in reports for each in _findings(one)]
    return Explored(
        targets,
        code,
        len(explorations),
        sum(each.closed for each in explorations),
        sum(each.states for each in explorations),
        sum(each.transitions for each in explorations),
        tuple(contract for contract, is_known, harms in findings if not is_known and harms),
        sum(is_known for _, is_known, _ in findings),
        sum(not is_known and not harms for _, is_known, harms in findings),
        tuple(name for one in reports for name in one.unshown if not one.excuse(name)),
        left,
    )


def _findings(one: AnyReport) -> Iterator[tuple[str, bool, bool]]:
    """Contract of each finding, whether it is listed, and whether it does harm."""
    if isinstance(one, TableReport):
        for contract, kind in one.broken:
            harms = by_id(contract).harm != "efficiency"
            yield contract, (contract, kind) in one.known, harms
        return
    for each in one.findings:
        yield each.contract, each.known_note is not None, is_unlisted(each)


def _json(reports: Sequence[AnyReport]) -> dict[str, object]:
    return {
        "evidence": [
            {**asdict(row), "counts": row.counts} for one in reports for row in one.evidence()
        ],
        "scopes": [
            {
                "target": one.task.target,
                "subject": one.name,
                "scope": each.scope.name,
                "states": each.states,
                "transitions": each.transitions,
                "events": each.events,
                "closed": each.closed,
                "seconds": round(each.seconds, 1),
            }
            for one in reports
            for each in one.explorations
        ],
        "not_seen_to_fail": [
            {"target": one.task.target, "subject": one.name, "contract": contract}
            for one in reports
            for contract in one.unshown
        ],
        "findings": [
            finding for one in reports if isinstance(one, ExploreReport) for finding in one.findings
        ],
    }
