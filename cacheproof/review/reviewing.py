"""The command review: what a change of vLLM decides otherwise, mends, brings and proves."""

from collections.abc import Iterator, Mapping, Sequence

from cacheproof.differential.findings.finding_file import load as load_finding
from cacheproof.differential.lanes.lane import Lane
from cacheproof.differential.search.known import KnownFault
from cacheproof.differential.search.weighing import parted_groups, tallies
from cacheproof.differential.targets.base import Target
from cacheproof.differential.targets.changes import changed_once_in
from cacheproof.differential.targets.process import HostTarget
from cacheproof.differential.targets.reference import ReferenceTarget
from cacheproof.differential.traces.trace import ModelRunner, Trace
from cacheproof.listed.pages import kept_traces
from cacheproof.output.announcing import has_text_of_its_own
from cacheproof.output.conclusion import Conclusion
from cacheproof.output.console import CommandOutput
from cacheproof.review.page import SHOWN_MAX, code, markdown
from cacheproof.review.proofs import ProofReview, review_proofs
from cacheproof.review.result import result_of
from cacheproof.review.run import RanTraces, ReviewRun, working
from cacheproof.review.sentence import line_of
from cacheproof.review.verdict import Review, Side
from cacheproof.search.lane_order import in_order
from cacheproof.search.two_targets import two_targets
from cacheproof.work.plan import seed_range
from cacheproof.work.workplace import Workplace

SEEDS = range(20)
"""Seeds of each lane, unless seeds or seconds are asked for: about two minutes on two cores."""
SEEDS_BY_TIME = range(10**6)
SMALL_MAX = 3 * SHOWN_MAX
"""Most breaks that are minimised; one that is not stands alone, whatever its cause."""
UNPROVED = "interrupted before anything was proved"
RUNNERS: tuple[ModelRunner, ...] = ("first", "second")


def review(
    output: CommandOutput,
    base_text: str,
    head_text: str,
    *,
    depth: str | None,
    seeds: str | None,
    seconds: float | None,
    known: Sequence[KnownFault],
    place: Workplace,
) -> int:
    """Compare two targets and print the page. Returns the exit code.

    Raises:
        InputError: a target that is none, or two that have no lane in common.
    """
    done, head = reviewed(
        output,
        base_text,
        head_text,
        depth=depth,
        seeds=seeds,
        seconds=seconds,
        known=known,
        place=place,
    )
    output.line(markdown(done))
    results = [result_of(done, head)]
    return output.tell(Conclusion(done.exit_code, line_of(done), done.to_json(), results))


def reviewed(
    output: CommandOutput,
    base_text: str,
    head_text: str,
    *,
    depth: str | None = None,
    seeds: str | None = None,
    seconds: float | None = None,
    known: Sequence[KnownFault],
    place: Workplace,
) -> tuple[Review, Target]:
    """Two targets compared, and the second of them, which is closed.

    Raises:
        InputError: a target that is none, or two that have no lane in common.
    """
    wanted = seed_range(seeds)
    if wanted is None:
        wanted = SEEDS if seconds is None else SEEDS_BY_TIME
    with two_targets(output, base_text, head_text, depth) as (base, head, common, left_out):
        lanes = in_order(output, head, common)
        for line in (*base.announcement, *head.announcement):
            output.say(line)
        kept = _kept_traces(base, head, {lane.depth for lane in lanes})
        found: list[Review] = []

        def do(run: ReviewRun) -> None:
            ran = run.traces(lanes, wanted, seconds, kept, known)
            one = Review(
                side_of(base),
                side_of(head),
                _seeds_told(wanted, seconds),
                ran,
                parted_groups(ran.pairs),
                tallies(ran.pairs, known, base.release, head.release),
                _proofs(output, base_text, head_text, place, ran),
                changed_once=changed_once_in(head),
            )
            if not one.is_interrupted:
                run.small(ran, one.groups[:SHOWN_MAX], one.brought[:SMALL_MAX])
            found.append(one)

        working(output, base, head, known, lanes, place, do)
    (done,) = found
    done.skipped = list(_skipped(done, lanes, left_out))
    return done, head


def _proofs(
    output: CommandOutput, base: str, head: str, place: Workplace, ran: RanTraces
) -> ProofReview:
    """What is proved of both, unless nobody waits for it any more."""
    if ran.interrupted:
        return ProofReview(unread=(UNPROVED,))
    try:
        return review_proofs(output, base, head, place, ran.proofs_until)
    except KeyboardInterrupt:
        return ProofReview(unread=(UNPROVED,), is_interrupted=True)


def _kept_traces(base: Target, head: Target, depths: set[str]) -> Mapping[str, Trace]:
    """The traces of listed faults that both run, under each model runner where there is a
    scheduler."""
    found: dict[str, Trace] = {}
    for kept, path in kept_traces().items():
        trace = load_finding(path)
        assert isinstance(trace, Trace)
        if trace.depth not in depths or not all(_runs(one, trace) for one in (base, head)):
            continue
        for runner in RUNNERS if trace.has_scheduler else RUNNERS[:1]:
            name = f"{kept}, second runner" if runner == "second" else kept
            found[name] = trace.under_runner(runner) if trace.has_scheduler else trace
    return found


def _runs(target: Target, trace: Trace) -> bool:
    if isinstance(target, ReferenceTarget) and not target.runs(trace):
        return False
    return target.runs_depth(trace.depth)


def side_of(target: Target) -> Side:
    """What a review says of a target; a release with mends is none of its own."""
    is_plug_in = isinstance(target, HostTarget) and target.plug_in_kind is not None
    is_release = not (has_text_of_its_own(target) or is_plug_in or target.mended)
    nearest = Side.nearest if target.reading is None else target.reading.nearest
    return Side(target.name, target.release, is_release, tuple(target.announcement), nearest)


def _seeds_told(seeds: range, seconds: float | None) -> str:
    if seconds is None:
        return f"seeds {seeds.start} to {seeds.stop - 1} of each lane"
    return f"seeds from {seeds.start} on, within {seconds:.0f} s"


def _skipped(done: Review, lanes: Sequence[Lane], left_out: Sequence[Lane]) -> Iterator[str]:
    """What the page says of what was not looked at."""
    depths = ", ".join(dict.fromkeys(lane.depth for lane in lanes))
    searched = f"{done.seeds}, at these depths: {depths}"
    yield f"All but {searched}; no real engine, no other release."
    if done.is_interrupted:
        yield "Interrupted: what was not run, proved or minimised until then."
    if left := done.ran.left_undone:
        told = ", ".join(f"{number:,} {what}" for what, number in left.items())
        yield f"The seconds did not last for {told}."
    if done.ran.stopped:
        yield "Another run may stop at another seed."
    if left_out:
        yield f"Lanes of one side alone: {', '.join(lane.name for lane in left_out)}."
    yield from _refused(done.ran)
    for line in done.proofs.unread:
        yield f"Proofs: {code(line)}"


def _refused(ran: RanTraces) -> Iterator[str]:
    """Traces that were not compared."""
    both = sum(one.base_refuses and one.head_refuses for one in ran.pairs)
    base = sum(one.base_refuses and not one.head_refuses for one in ran.pairs)
    head = sum(one.head_refuses and not one.base_refuses for one in ran.pairs)
    told = {"both": both, "base alone": base, "head alone": head}
    if any(told.values()):
        words = ", ".join(f"{number:,} by {who}" for who, number in told.items() if number)
        yield f"Traces that a side refuses, for what it lacks: {words}."
