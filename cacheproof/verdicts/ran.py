"""What the commands conclude that run models, servers and traffic: generate, http, simulate, and
the gallery of faulty variants."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from cacheproof.differential.search.verdict import HOLDS, INTERRUPTED, UNLISTED
from cacheproof.simulation.result import Point
from cacheproof.verdicts.line import VerdictLine, counted, names

NEAR = 0.01
"""A hit rate, or stalls of a request, are as good as the best where they are no further from it."""


@dataclass(frozen=True)
class Served:
    """Servers that were asked: tokens that were compared with the runner's, and how many were
    equal; `new` servers did what no listed fault does, `known` are the listed faults that were met,
    `unjudged` says of how many the record was not judged whole, `left` how many were not asked to
    their end."""

    target: str
    code: int
    servers: int
    tokens: int
    equal: int
    new: int = 0
    known: tuple[str, ...] = ()
    unjudged: int = 0
    left: int = 0

    @property
    def line(self) -> VerdictLine:
        """The verdict line."""
        parts = [f"{self.equal:,} of {counted(self.tokens, 'token')} equal"]
        if not self.tokens:
            parts = ["no token was compared"]
        if self.known:
            parts.append(f"known faults met again: {names(self.known)}")
        if self.unjudged:
            parts.append(f"{counted(self.unjudged, 'record')} not judged whole")
        if self.left:
            parts.append(f"{counted(self.left, 'server')} not finished")
        return VerdictLine(f"{self._head()}: {'; '.join(parts)}.", *self._next())

    def _head(self) -> str:
        servers = counted(self.servers, "server")
        match self.code:
            case code if code == HOLDS:
                return f"{servers} of {self.target} answered as each request alone is answered"
            case code if code == UNLISTED:
                did = f"{self.new:,} of {servers} of {self.target}"
                return f"{did} did what no known fault explains"
            case code if code == INTERRUPTED:
                what = f", and {self.new:,} did what no known fault explains" if self.new else ""
                return f"The run was interrupted after {servers} of {self.target}{what}"
            case _:
                return f"This run of {servers} of {self.target} proves nothing"

    def _next(self) -> tuple[str, str]:
        if self.new:
            again = f"cacheproof http --target {self.target} --records records"
            return "keep the records of the servers, and audit them", again
        if self.code == INTERRUPTED:
            return "run the command again", ""
        if self.code != HOLDS:
            return "run it again; docs/serving.md says what a record lacks", ""
        return "docs/serving.md says what each server was asked", ""


def of_generated(
    model: str, device: str, steps: Sequence[Mapping[str, Any]], answers: Sequence[Any]
) -> VerdictLine:
    """Prompts that a model has answered."""
    if not answers:
        return VerdictLine(f"{model} answered nothing on {device}.")
    did: Counter[str] = Counter()
    for step in steps:
        did.update({what: step.get(what, 0) for what in ("encoded", "hits", "evicted")})
        did["tokens"] += sum(step.get("tokens", {}).values())
        did["preempted"] += len(step.get("preempted", ()))
    return VerdictLine(
        f"{model} answered {counted(len(answers), 'prompt')} in {counted(len(steps), 'step')} on "
        f"{device}, {counted(did['tokens'], 'token')} computed: of the media {did['encoded']} were "
        f"encoded, {did['hits']} found in the encoder cache and {did['evicted']} evicted from it; "
        f"{counted(did['preempted'], 'preemption')}.",
        "docs/runner.md says what the reference decides and what torch executes",
    )


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
    """Of each kind of traffic of which all sizes were tried the smallest that is as good as the
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


def of_gallery(
    variants: int,
    survivors: Sequence[str],
    false_alarms: Sequence[str],
    libraries: Sequence[str],
) -> VerdictLine:
    """Whether each faulty variant is caught, and nothing else is; `libraries` are missing, and
    their variants were not run."""
    out = f"; those that want {names(libraries)} were not run" if libraries else ""
    if false_alarms:
        return VerdictLine(
            f"The gallery proves nothing, since {names(false_alarms)} also breaks on the reference "
            f"without a fault{out}.",
            "docs/false-alarm.md says how a false alarm is mended",
        )
    if survivors:
        return VerdictLine(
            f"{len(survivors):,} of {counted(variants, 'faulty variant')} are caught by no rule "
            f"({names(survivors)}), so that what holds proves less than it says{out}.",
            "docs/add-a-contract.md says how a rule is added",
        )
    return VerdictLine(
        f"All {counted(variants, 'faulty variant')} are caught, each by one rule at least{out}.",
        "docs/kill-matrix.md says which rule catches which",
    )
