"""Hypothesis' traces are legal, meet what is rare, find faulty managers, and shrink."""

from collections.abc import Sequence
from contextlib import suppress

import pytest
from hypothesis import HealthCheck, Phase, given, settings

from cacheproof.differential.judges.rare_states import Reachability
from cacheproof.differential.lanes.all_lanes import LANES
from cacheproof.differential.search.gallery.encoder_cache import VARIANTS
from cacheproof.differential.targets.reference import ReferenceTarget
from cacheproof.differential.targets.reference_manager import MANAGERS
from cacheproof.differential.traces.manager import Walk
from cacheproof.differential.traces.trace import Trace
from cacheproof.hypothesis import Kind, Manager, judged, manager_traces
from cacheproof.reference.semantics import Semantics

IDEAL = Semantics.ideal().encoder_cache
FAULTY = {variant.name: variant for variant in VARIANTS}
KINDS: tuple[Kind, ...] = ("encoder_cache", "encoder_decoder")
LANE_OF = {"encoder_cache": "encoder cache", "encoder_decoder": "encoder-decoder of several items"}


EXAMPLES_OF = {"second-release-renews-entry": 6000}
"""Of a faulty manager that a thousand examples do not always find."""


def draws(examples: int, **options: Sequence[Phase]) -> settings:
    """Settings under which the same examples are drawn each time."""
    return settings(
        max_examples=examples,
        database=None,
        derandomize=True,
        deadline=None,
        report_multiple_bugs=False,
        suppress_health_check=list(HealthCheck),
        **options,
    )


def reference(kind: str) -> Manager:
    return lambda cache_size: MANAGERS[kind](cache_size, IDEAL)


def faulty(name: str) -> Manager:
    return lambda cache_size: FAULTY[name].factory(cache_size, IDEAL)


@pytest.mark.full
@pytest.mark.parametrize("kind", KINDS)
def test_the_reference_breaks_nothing_and_every_rare_state_of_its_lane_is_met(kind: Kind) -> None:
    reach = Reachability()

    @draws(1000, phases=[Phase.generate])
    @given(manager_traces(kind))
    def look(trace: Trace) -> None:
        judged(reference(kind), trace, reach=reach)

    look()
    assert reach.never(LANES[LANE_OF[kind]].rare) == []


@pytest.mark.sample(2)
@pytest.mark.parametrize("resized", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_what_is_drawn_is_what_an_engine_does(kind: Kind, resized: bool) -> None:
    """Nothing is left out by the driver but what a refusal made impossible."""

    @draws(100, phases=[Phase.generate])
    @given(manager_traces(kind, resized=resized))
    def look(trace: Trace) -> None:
        refused = False
        records = ReferenceTarget().run([trace])[0].records
        for event, record in zip(trace.events, records, strict=True):
            if isinstance(event, Walk):
                refused |= record.outcome is None or record.outcome[0] < event.tokens
            assert record.outcome is not None or refused, event

    look()


@pytest.mark.sample(6)
@pytest.mark.parametrize("name", FAULTY)
def test_every_faulty_manager_is_found(name: str) -> None:
    variant = FAULTY[name]
    kind = next(one for one in KINDS if one == variant.manager)

    @draws(EXAMPLES_OF.get(name, 1000), phases=[Phase.generate])
    @given(manager_traces(kind, resized=variant.resized))
    def look(trace: Trace) -> None:
        judged(faulty(name), trace, passes_resized=variant.resized)

    with pytest.raises(AssertionError, match=r"^(EC|ED|WM)-\w+ at event "):
        look()


@pytest.mark.sample(2)
@pytest.mark.parametrize(
    ("name", "most"), [("first-occurrence-releases", 7), ("evicts-held-when-short", 8)]
)
def test_what_is_found_shrinks_to_few_events(name: str, most: int) -> None:
    last: list[Trace] = []

    @draws(300, phases=[Phase.generate, Phase.shrink])
    @given(manager_traces())
    def look(trace: Trace) -> None:
        try:
            judged(faulty(name), trace)
        except AssertionError:
            last.append(trace)
            raise

    with suppress(AssertionError):
        look()
    assert 3 < len(last[-1].events) <= most


def test_a_break_is_told_with_both_sides_and_a_program() -> None:
    @draws(300, phases=[Phase.generate])
    @given(manager_traces())
    def look(trace: Trace) -> None:
        judged(faulty("allocation-debits-once"), trace)

    with pytest.raises(AssertionError) as broken:
        look()
    first, title, *_ = str(broken.value).splitlines()
    assert first.startswith("EC-2 at event ")
    assert "total_unheld(s.size, s.holders) is false" in first
    assert (
        title
        == "  Freeable slots are the free slots and the sizes of the entries that nobody holds"
    )
    assert "\ntrace = Trace(header, (\n" in str(broken.value)


def test_a_class_without_the_interface_is_refused() -> None:
    class Half:
        def __init__(self, cache_size: int) -> None: ...

        def allocate(self, request: object, input_id: int) -> None: ...

    @draws(1, phases=[Phase.generate])
    @given(manager_traces())
    def look(trace: Trace) -> None:
        judged(Half, trace)

    with pytest.raises(TypeError, match=r"^Half has no can_allocate, free_encoder_input, free, "):
        look()
