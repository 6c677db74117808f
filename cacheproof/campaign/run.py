"""Starts campaigns and goes on with them, with all workers of this machine or of a cluster."""

import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path

import msgspec

from cacheproof import __version__
from cacheproof.campaign import report as campaign_report
from cacheproof.differential.errors import InputError
from cacheproof.differential.lanes.all_lanes import LANES
from cacheproof.differential.search import fault_folders
from cacheproof.differential.search.campaigns import plan_file
from cacheproof.differential.search.campaigns.plan_file import CampaignPlan
from cacheproof.differential.search.campaigns.reporting import ReportedTarget
from cacheproof.differential.search.campaigns.runners import Who
from cacheproof.differential.search.campaigns.running import RunningTarget, plants_in, replays_in
from cacheproof.differential.search.campaigns.store import CampaignStore, CampaignTarget, MadeBy
from cacheproof.differential.search.known import KnownFault
from cacheproof.differential.targets.base import Target
from cacheproof.differential.targets.resolve import resolve, semantics_beside
from cacheproof.output.announcing import announce, has_text_of_its_own
from cacheproof.output.announcing import start as start_host
from cacheproof.output.console import CommandOutput
from cacheproof.output.folders import folder_for, folder_of
from cacheproof.search.lane_choice import lanes_for, require_lanes
from cacheproof.search.lane_order import in_order
from cacheproof.search.registering import Register
from cacheproof.search.searchers import crew_for, mib_of, text_of
from cacheproof.work.code_digest import code_digest
from cacheproof.work.workers import LOOK_SECONDS, done_among
from cacheproof.work.workplace import Workplace

OF_OUTCOMES = ("differential", "gpu_runner", "reference", "spec")
"""The parts of the package on which an outcome depends."""


class SystemClock:
    """The time of this machine."""

    def now(self) -> float:
        return time.time()

    def wait(self) -> None:
        time.sleep(LOOK_SECONDS)


def made_by() -> MadeBy:
    """This cacheproof."""
    return MadeBy(__version__, code_digest(OF_OUTCOMES))


def start(
    output: CommandOutput,
    file: Path,
    where: str,
    known: Path | None,
    findings: Path | None,
    place: Workplace,
    register: Register,
) -> int:
    """Begin a campaign and run it there; the traces of the register come first. Returns the exit
    code of its report."""
    plan = plan_file.load(file)
    if register:
        plan = msgspec.structs.replace(plan, shrink_listed=True)
    text = fault_folders.to_text(fault_folders.load(known))
    for one in plan.targets:
        with _of_plan(file):
            require_lanes(plan.chosen, one)
    CampaignStore.require_free(where)
    if findings is not None:
        folder_of(findings)
    with place.joined(), ExitStack() as stack:
        targets = [
            stack.enter_context(closing(_resolved(file, one, output))) for one in plan.targets
        ]
        abouts = [_about(target, plan, output) for target in targets]
        replays = [
            job
            for number, about in enumerate(abouts)
            for job in replays_in(number, about, register.records)
        ]
        store = CampaignStore.create(where, plan, text, made_by(), abouts, time.time(), replays)
        with closing(store):
            folder = folder_for(where, findings)
            return _run(output, store, targets, folder, place, register)


def resume(
    output: CommandOutput, where: str, findings: Path | None, place: Workplace, register: Register
) -> int:
    """Go on with a campaign. Returns the exit code of its report.

    Raises:
        InputError: what it hangs on is not here as it was.
    """
    if findings is not None:
        folder_of(findings)
    with closing(CampaignStore(where)) as store, place.joined(), ExitStack() as stack:
        _require_same(store, "cacheproof", store.made_by.cacheproof, __version__)
        digest = made_by().code
        _require_same(store, "the digest of cacheproof's text", store.made_by.code, digest)
        targets = [
            stack.enter_context(closing(resolve(one, report=output.say)))
            for one in store.plan.targets
        ]
        for about, target in zip(store.targets, targets, strict=True):
            _require_same(store, f"the release of {about.name}", about.release, target.release)
            _require_same(store, f"the digest of {about.name}'s text", about.text, text_of(target))
            _require_programs(about)
        store.try_again(time.time())
        folder = folder_for(where, findings)
        return _run(output, store, targets, folder, place, register)


@contextmanager
def _of_plan(file: Path) -> Iterator[None]:
    """Add the place in the plan to the refusal of a target."""
    try:
        yield
    except InputError as error:
        raise InputError(f"{file}: key targets: {error}") from None


def _resolved(file: Path, text: str, output: CommandOutput) -> Target:
    with _of_plan(file):
        return resolve(text, report=output.say)


def _about(target: Target, plan: CampaignPlan, output: CommandOutput) -> CampaignTarget:
    """What a store keeps of a target."""
    lanes = in_order(output, target, lanes_for(plan.chosen, target, output))
    return CampaignTarget(
        target.name,
        target.release,
        text_of(target),
        has_text_of_its_own(target),
        plan.reference and semantics_beside(target) is not None,
        tuple(lane.name for lane in lanes),
    )


def _require_same(store: CampaignStore, what: str, there: str | None, here: str | None) -> None:
    if there != here:
        raise InputError(
            f"--store {store.where}: {what} was {_short(there)} and is {_short(here)}; expected "
            "the same: go on with what began it, or start another campaign"
        )


def _short(text: str | None) -> str:
    return text[:12] if text else "none"


def _require_programs(about: CampaignTarget) -> None:
    """See whether this machine has what the lanes of a campaign find where it was begun."""
    for name in about.lanes:
        lane = LANES.get(name)
        if lane is not None and lane.lacks is not None:
            raise InputError(
                f"lane {name} of {about.name} needs {lane.lacks}, which is not on PATH"
            )


def _run(
    output: CommandOutput,
    store: CampaignStore,
    targets: Sequence[Target],
    folder: Path,
    place: Workplace,
    register: Register,
) -> int:
    """Run what is left, target by target, and report."""
    known = fault_folders.of_text(store.known, store.where)
    clock = SystemClock()
    runner = store.enlist(Who.here(), place.number(max(map(mib_of, targets))), clock.now())
    is_interrupted = False
    try:
        for which, target in enumerate(targets):
            if ReportedTarget(store, which, known).verdict.unfinished:
                _run_target(output, store, which, target, known, runner, place)
                target.close()
    except KeyboardInterrupt:
        output.line(f"interrupted; what has ended is kept in {store.where}")
        is_interrupted = True
    finally:
        store.leave(runner, clock.now())
    return campaign_report.print_report(
        output, store, known, folder, register, is_interrupted=is_interrupted
    )


def _run_target(
    output: CommandOutput,
    store: CampaignStore,
    which: int,
    target: Target,
    known: Sequence[KnownFault],
    runner: str,
    place: Workplace,
) -> None:
    about = store.targets[which]
    announce(output, target, compared=about.compared)
    start_host(output, target)
    store.add(plants_in(which, target, about.lanes))
    elsewhere = target.another()
    lanes = [LANES[name] for name in about.lanes]
    crew = crew_for(place, target, elsewhere, about.compared, known, lanes)
    with closing(elsewhere), closing(crew), output.live(f"searching {about.name}") as live:

        def tell(words: str, share: float | None) -> None:
            live.show(words) if share is None else live.count(share, 1.0, words)

        clock = SystemClock()
        RunningTarget(
            store, which, target, known, runner, crew, done_among, clock, tell, output.say
        ).run()
