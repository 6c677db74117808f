"""Starts campaigns and goes on with them, with all workers."""

import hashlib
import time
from collections.abc import Sequence
from contextlib import ExitStack, closing
from pathlib import Path

from cacheproof import __version__, campaign_report
from cacheproof.announcing import announce, has_text_of_its_own
from cacheproof.console import Output
from cacheproof.differential.errors import InputError
from cacheproof.differential.lanes.all_lanes import LANES
from cacheproof.differential.search import known as known_faults
from cacheproof.differential.search import work
from cacheproof.differential.search.campaigns import plan_file
from cacheproof.differential.search.campaigns.plan_file import CampaignPlan
from cacheproof.differential.search.campaigns.reporting import Reported
from cacheproof.differential.search.campaigns.runners import Who
from cacheproof.differential.search.campaigns.running import Running, plants_in
from cacheproof.differential.search.campaigns.store import About, MadeBy, Store
from cacheproof.differential.search.known import KnownFault
from cacheproof.differential.search.verdict import INTERRUPTED
from cacheproof.differential.targets.base import Target
from cacheproof.differential.targets.process import HostTarget
from cacheproof.differential.targets.resolve import plug_in_named, resolve, semantics_beside
from cacheproof.kept_proofs import code_digest
from cacheproof.proof_targets import file_of
from cacheproof.searching import lanes_for
from cacheproof.workers import ENGINE_MIB, LOOK_SECONDS, WORKER_MIB, Crew, count, done_among

OF_OUTCOMES = ("differential", "gpu_runner", "reference", "spec")
"""The parts of the package on which an outcome hangs."""


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
    output: Output,
    file: Path,
    where: str,
    known: Path | None,
    findings: Path | None,
    workers: int | None,
) -> int:
    """Begin a campaign and run it. Returns the exit code of its report."""
    plan = plan_file.load(file)
    text, source = known_faults.read(known)
    known_faults.parse(text, source)
    with ExitStack() as stack:
        targets = [
            stack.enter_context(closing(_resolved(file, one, output))) for one in plan.targets
        ]
        abouts = [_about(target, plan, output) for target in targets]
        store = Store.create(where, plan, text, made_by(), abouts, time.time())
        with closing(store):
            return _run(
                output, store, targets, campaign_report.folder_for(where, findings), workers
            )


def resume(output: Output, where: str, findings: Path | None, workers: int | None) -> int:
    """Go on with a campaign. Returns the exit code of its report.

    Raises:
        InputError: what it hangs on is not here as it was.
    """
    with closing(Store(where)) as store, ExitStack() as stack:
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
        return _run(output, store, targets, campaign_report.folder_for(where, findings), workers)


def _resolved(file: Path, text: str, output: Output) -> Target:
    try:
        return resolve(text, report=output.say)
    except InputError as error:
        raise InputError(f"{file}: key targets: {error}") from None


def _about(target: Target, plan: CampaignPlan, output: Output) -> About:
    """What a store keeps of a target."""
    lanes = lanes_for(plan.chosen, target, output)
    return About(
        target.name,
        target.release,
        text_of(target),
        has_text_of_its_own(target),
        plan.reference and semantics_beside(target) is not None,
        tuple(lane.name for lane in lanes),
    )


def text_of(target: Target) -> str:
    """The digest of all Python of the target's vllm, or of a plug-in's file; empty for the
    reference, whose text is cacheproof's own, and where the target has no text here."""
    if target.tree is not None:
        return code_digest(["vllm"], target.tree)
    named = plug_in_named(target.name) if isinstance(target, HostTarget) else None
    file = file_of(named[0], Path.cwd()) if named is not None else None
    return "" if file is None else hashlib.sha256(file.read_bytes()).hexdigest()


def _require_same(store: Store, what: str, there: str | None, here: str | None) -> None:
    if there != here:
        raise InputError(
            f"--store {store.where}: {what} was {_short(there)} and is {_short(here)}; expected "
            "the same: go on with what began it, or start another campaign"
        )


def _short(text: str | None) -> str:
    return text[:12] if text else "none"


def _require_programs(about: About) -> None:
    """See whether this machine has what the lanes of a campaign find where it was begun."""
    for name in about.lanes:
        lane = LANES.get(name)
        if lane is not None and lane.lacks is not None:
            raise InputError(
                f"lane {name} of {about.name} needs {lane.lacks}, which is not on PATH"
            )


def _run(
    output: Output, store: Store, targets: Sequence[Target], folder: Path, workers: int | None
) -> int:
    """Run what is left, target by target, and report."""
    known = known_faults.parse(store.known, store.where)
    number = count(workers, max(map(_mib, targets)))
    clock = SystemClock()
    runner = store.enlist(Who.here(), number, clock.now())
    code = None
    try:
        for which, target in enumerate(targets):
            if Reported(store, which, known).verdict.unfinished:
                _run_target(output, store, which, target, known, runner, number)
                target.close()
    except KeyboardInterrupt:
        output.line(f"interrupted; what has ended is kept in {store.where}: resume the campaign")
        code = INTERRUPTED
    finally:
        store.leave(runner, clock.now())
    reported = campaign_report.print_report(output, store, known, folder)
    return reported if code is None else code


def _mib(target: Target) -> int:
    return ENGINE_MIB if target.runs_depth("engine") else WORKER_MIB


def _run_target(
    output: Output,
    store: Store,
    which: int,
    target: Target,
    known: Sequence[KnownFault],
    runner: str,
    number: int,
) -> None:
    about = store.targets[which]
    announce(output, target, compared=about.compared)
    assert target.protocol  # it starts, or there is one line to be said
    store.add(plants_in(which, target, about.lanes))
    elsewhere = target.another()
    for one in (target, elsewhere):
        if isinstance(one, HostTarget):
            one.prepare()
    crew = Crew(number, work.begin, target, elsewhere, about.compared)
    with closing(elsewhere), closing(crew), output.live(f"searching {about.name}") as live:
        Running(
            store, which, target, known, runner, crew, done_among, SystemClock(), live.show
        ).run()
