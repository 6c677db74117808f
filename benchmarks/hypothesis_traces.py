"""What Hypothesis' traces meet and find, beside those of the seed generators.

    .venv/bin/python benchmarks/hypothesis_traces.py > docs/evidence/hypothesis-traces.md

Both generators get as many events on the reference, and every rare state that either meets is
counted. Then Hypothesis looks for each faulty manager of the gallery; some of what it finds it
shrinks, and so does cacheproof.
"""

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from hypothesis import HealthCheck, Phase, given, settings

from cacheproof.differential.findings.shrinking.shrink import shrink
from cacheproof.differential.generators.manager import manager_trace
from cacheproof.differential.judges.examination import examine
from cacheproof.differential.judges.rare_states import Reachability
from cacheproof.differential.search.gallery.encoder_cache import VARIANTS
from cacheproof.differential.search.gallery.variant import Variant
from cacheproof.differential.targets.host.protocol import Protocol
from cacheproof.differential.targets.reference import ReferenceTarget
from cacheproof.differential.targets.reference_manager import MANAGERS
from cacheproof.differential.traces.trace import Trace
from cacheproof.hypothesis import Kind, judged, manager_traces
from cacheproof.reference.semantics import Semantics

EXAMPLES = 1000
SHRUNK = (
    "reset-leaks-slots",
    "first-occurrence-releases",
    "evicts-held-when-short",
    "free-releases-first-only",
    "ignores-pending",
    "newest-evicted-first",
    "eviction-is-not-reported",
    "stale-notice",
    "decoder-credits-every-release",
)
KINDS: tuple[Kind, ...] = ("encoder_cache", "encoder_decoder")
HEAD = f"""# What Hypothesis' traces meet and find

    .venv/bin/python benchmarks/hypothesis_traces.py > docs/evidence/hypothesis-traces.md

[`manager_traces()`](../how-to/pytest.md) beside the seed generators of a search, on the reference:
how often each meets a rare state in as many events, {EXAMPLES:,} examples of Hypothesis.
"""


def main() -> None:
    for line in page():
        print(line, flush=True)


def page() -> Iterator[str]:
    """The page, line by line."""
    yield HEAD
    for kind in KINDS:
        yield from met(kind)
    yield from found_of_all()


def met(kind: Kind) -> Iterator[str]:
    """Rare states that either generator meets."""
    drawn, seeded = Reachability(), Reachability()
    events = traces = seeds = seeded_events = 0

    @settings(
        max_examples=EXAMPLES,
        database=None,
        derandomize=True,
        deadline=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(manager_traces(kind))
    def count(trace: Trace) -> None:
        nonlocal events, traces
        events, traces = events + len(trace.events), traces + 1
        judged(reference(kind), trace, reach=drawn)

    count()
    while seeded_events < events:
        trace = manager_trace(seeds, kind, several=kind == "encoder_decoder")
        seeds, seeded_events = seeds + 1, seeded_events + len(trace.events)
        judged(reference(kind), trace, reach=seeded)
    yield f"\n| {kind}: rare state | {traces:,} examples | {seeds:,} seeds |\n|---|--:|--:|"
    for state in sorted(drawn.met | seeded.met):
        yield f"| {state} | {drawn.met[state]:,} | {seeded.met[state]:,} |"


def reference(kind: Kind) -> Any:
    """Makes the reference's manager as one of vLLM is made."""
    return lambda cache_size: MANAGERS[kind](cache_size, Semantics.ideal().encoder_cache)


@dataclass
class Found:
    """What Hypothesis found of a faulty manager: after how many examples, with how many events in
    the end, and by which contract."""

    after: int | None = None
    tried: int = 0
    events: int = 0
    contract: str = ""


def found_of_all() -> Iterator[str]:
    """Each faulty manager, as Hypothesis finds it, and some as it is shrunk."""
    yield (
        f"\nEach faulty manager of [the gallery](kill-matrix.md), with `max_examples={EXAMPLES}`: "
        "the number of the first\nexample that breaks a contract, and which.\n"
    )
    yield "| manager | found after | contract |\n|---|--:|---|"
    for variant in VARIANTS:
        found = by_hypothesis(variant, shrinks=False)
        after = "not found" if found.after is None else str(found.after)
        yield f"| {variant.name} | {after} | {found.contract} |"
    yield (
        "\nSome of them, shrunk: the events that Hypothesis leaves, and those that cacheproof's "
        "own shrinker leaves\nof the first seed that fails.\n"
    )
    yield "| manager | examples tried | events | cacheproof's events |\n|---|--:|--:|--:|"
    for variant in VARIANTS:
        if variant.name in SHRUNK:
            found = by_hypothesis(variant, shrinks=True)
            columns = variant.name, str(found.tried), str(found.events), str(by_cacheproof(variant))
            yield f"| {' | '.join(columns)} |"


def by_hypothesis(variant: Variant, *, shrinks: bool, examples: int = EXAMPLES) -> Found:
    """Let Hypothesis look for a faulty manager, and perhaps shrink what it finds."""
    found = Found()
    kind: Any = variant.manager
    factory = variant.factory
    assert factory is not None
    ideal = Semantics.ideal().encoder_cache

    @settings(
        max_examples=examples,
        database=None,
        derandomize=True,
        deadline=None,
        report_multiple_bugs=False,
        phases=[Phase.generate, Phase.shrink] if shrinks else [Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(manager_traces(kind, resized=variant.resized))
    def look(trace: Trace) -> None:
        found.tried += 1
        try:
            judged(
                lambda cache_size: factory(cache_size, ideal),
                trace,
                passes_resized=variant.resized,
            )
        except AssertionError as broken:
            found.after = found.after or found.tried
            found.events, found.contract = len(trace.events), str(broken).partition(" ")[0]
            raise

    with suppress(AssertionError):
        look()
    return found


def by_cacheproof(variant: Variant) -> int:
    """Events of the first failing seed's trace when cacheproof has shrunk it."""
    target = ReferenceTarget(
        managers={variant.manager: variant.factory},  # type: ignore[dict-item]
        protocol=Protocol(refuses_resized=not variant.resized),
    )

    def fails(traces: list[Trace]) -> list[bool]:
        results = target.run(traces)
        return [
            bool(examine(trace, result, target).violations)
            for trace, result in zip(traces, results, strict=True)
        ]

    several = variant.manager == "encoder_decoder"
    seed = 0
    while True:
        trace = manager_trace(seed, variant.manager, resized=variant.resized, several=several)
        if fails([trace])[0]:
            return len(shrink(trace, fails).trace.events)
        seed += 1


if __name__ == "__main__":
    main()
