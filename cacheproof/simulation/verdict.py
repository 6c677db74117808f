"""What simulate concludes: which size of the encoder cache is enough."""

from collections.abc import Iterable, Iterator, Sequence

from cacheproof.output.verdict_line import VerdictLine, counted
from cacheproof.simulation.result import Point

NEAR = 0.01
"""A hit rate, or stalls of a request, are as good as the best where they are no further from it."""


def of_simulated(
    release: str,
    requests: int,
    points: Sequence[Point],
    left: int,
    page: str | None,
    *,
    sizes: int,
) -> VerdictLine:
    """Which size of the encoder cache is enough, by kind of traffic: the smallest of those tried
    that hits as often as the best, and lets requests wait as rarely. An interruption has left
    `left` runs; of a kind of which not all `sizes` were tried nothing is concluded. `page` is the
    file that draws the runs that ended."""
    enough = [
        f"{size:,} rows for {kind} (hit rate {rate:.2f})"
        for kind, size, rate in _enough(points, sizes)
    ]
    stopped = f"The simulation was interrupted, with {counted(left, 'run')} left"
    if not enough:
        return VerdictLine(
            f"{stopped}, before all sizes were tried of one kind of traffic.",
            "run the command again",
        )
    runs = f"in {counted(len(points), 'run')} of {counted(requests, 'request')} that are decided "
    runs += f"as by vLLM {release}, "
    if len({(one.traffic, one.encoder_cache) for one in points}) > len(enough):
        said = f"Of the cache sizes tried, {runs}the smallest that hits as often as the best, and "
        said += "lets requests wait as rarely, is "
    else:
        said = f"One cache size was tried, {runs}and compared with no other: "
    said += "; ".join(enough)
    if left:
        said = f"{stopped}: {said[0].lower()}{said[1:]}"
        return VerdictLine(f"{said}.", "run the command again")
    drawn = f"open {page}" if page else "run it again with --html FILE"
    return VerdictLine(f"{said}.", f"{drawn}, which draws what each size costs")


def _enough(points: Iterable[Point], sizes: int) -> Iterator[tuple[str, int, float]]:
    """For each kind of traffic whose sizes were all tried, the smallest size that is as good as the
    best, and its hit rate."""
    by_kind: dict[str, list[Point]] = {}
    for one in points:
        by_kind.setdefault(one.traffic, []).append(one)
    for kind, several in by_kind.items():
        if len(several) < sizes:
            continue
        best = max(one.hit_rate for one in several)
        least = min(map(_stalls, several))
        near = [
            one for one in several if best - one.hit_rate <= NEAR and _stalls(one) - least <= NEAR
        ] or several[-1:]
        smallest = min(near, key=lambda one: one.encoder_cache)
        yield kind, smallest.encoder_cache, smallest.hit_rate


def _stalls(one: Point) -> float:
    """How often a request waits for room in the cache."""
    return one.figures.space_stalls / one.figures.requests
