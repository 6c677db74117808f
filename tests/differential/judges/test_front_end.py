"""The judge of processed media: what breaks which contract, and of which kind."""

import msgspec
import pytest

from cacheproof.differential.judges.examination import examine
from cacheproof.differential.judges.front_end import judge_of
from cacheproof.differential.judges.rare_states import Reachability
from cacheproof.differential.lanes.all_lanes import LANES
from cacheproof.differential.targets.host.protocol import Protocol
from cacheproof.differential.targets.reference import ReferenceTarget
from cacheproof.differential.traces.base import SCHEMA
from cacheproof.differential.traces.front_end import (
    Deliver,
    FrontEndConfig,
    FrontEndEvent,
    FrontEndHeader,
    Given,
    MediaItem,
    Process,
    Report,
    ResetMedia,
    Withdraw,
)
from cacheproof.differential.traces.records import Raised, StepRecord
from cacheproof.differential.traces.trace import Trace
from cacheproof.differential.traces.trace_file import parse
from cacheproof.listed.pages import kept_traces
from cacheproof.reference.releases import MODELLED
from cacheproof.reference.semantics import Semantics

Broken = set[tuple[str, str]]
OF_FRONT_ENDS = [name for name, lane in LANES.items() if lane.depth == "front_end"]


def of(release: str) -> ReferenceTarget:
    return ReferenceTarget(Semantics.of_vllm(release), release=release)


def process(request: str, *items: str) -> Process:
    return Process(request, tuple(Given(name[0], int(name[1:] or 0)) for name in items))


def broken(
    target: ReferenceTarget,
    capacity: int,
    sizes: dict[str, tuple[int, ...]],
    *events: FrontEndEvent,
) -> Broken:
    items = tuple(MediaItem(name, some) for name, some in sizes.items())
    trace = Trace(FrontEndHeader(SCHEMA, FrontEndConfig(items, capacity)), events)
    return set(examine(trace, target.run([trace])[0], target).by_kind)


X, XY = {"x": (1,)}, {"x": (1,), "y": (1,)}
GIVEN = process("a", "x"), Deliver("a")
KINDS = {
    "overtaken": (X, process("a", "x"), process("b", "x"), Deliver("b")),
    "never sent": (X, process("a", "x"), Withdraw("a"), process("b", "x"), Deliver("b")),
    "emptied alone": (X, *GIVEN, ResetMedia("receiver"), process("b", "x"), Deliver("b")),
    "of a request that failed": (
        XY, process("a", "x"), process("b", "x", "y"), Deliver("b"), Deliver("a"),
        process("c", "y"), Deliver("c"),
    ),
}  # fmt: skip


@pytest.mark.parametrize("kind", KINDS)
def test_a_miss_is_told_by_what_came_of_the_message_that_brought_the_item(kind: str) -> None:
    sizes, *events = KINDS[kind]
    assert ("PM-2", kind) in broken(of("0.27.1"), 4, sizes, *events)


def test_what_parts_halves_with_nothing_lost_is_told_so() -> None:
    skips = Process("b", (Given("y"),), skips_cache=True), Deliver("b")
    then = process("c", "x"), Deliver("c")
    undisturbed = {("PM-2", "of what the front end leaves out"), ("PM-5", "")}
    assert broken(of("0.33.0"), 1, XY, *GIVEN, *skips, *then) == undisturbed
    assert broken(ReferenceTarget(), 1, XY, *GIVEN, *skips, *then) == set()


def test_an_error_of_a_processor_leaves_nothing_behind() -> None:
    for target in (of("0.10.2"), of("0.33.0"), ReferenceTarget()):
        failing = Process("b", (Given("y"), Given("x")), fails=True)
        items = MediaItem("x", (1,)), MediaItem("y", (1,), "audio")
        trace = Trace(
            FrontEndHeader(SCHEMA, FrontEndConfig(items, 4)), (*GIVEN, failing, Deliver("b"))
        )
        result = target.run([trace])[0]
        before, after, nothing = (one.outcome for one in result.records[1:])
        assert after == {name: before[name] for name in ("sender", "receiver", "counted")}
        assert nothing is None
        assert examine(trace, result, target).by_kind == {}


def test_caches_that_have_parted_evict_different_items() -> None:
    sizes = dict.fromkeys("xyz", (1,))
    parted = (process("a", "x"), process("b", "y"), Deliver("b"), Deliver("a"))
    then = (process("c", "z"), Deliver("c"), process("d", "y"), Deliver("d"))
    assert broken(of("0.33.0"), 2, sizes, *parted, *then) == {("PM-2", "evicted")}


def test_what_is_refused_is_told_by_the_room_that_there_was() -> None:
    one = broken(of("0.28.0"), 4, {"x": (5,)}, process("a", "x"))
    together = broken(of("0.33.0"), 4, {"x": (1,), "y": (4,)}, process("a", "y"), Deliver("a"),
                      process("b", "x", "y", "x"))  # fmt: skip
    fits = broken(of("0.11.2"), 4, {"x": (1,), "y": (3,), "z": (2,)}, *GIVEN, process("b", "y"),
                  Deliver("b"), process("c", "z", "x"))  # fmt: skip
    assert one == {("PM-3", "one too large")}
    assert together == {("PM-3", "together too large")}
    assert fits == {("PM-3", "though there is room")}


def test_what_the_front_end_was_told_of_comes_with_its_data_again() -> None:
    missed = (process("a", "x"), Withdraw("a"), process("b", "x"), Deliver("b"))
    again = (process("c", "x"), Deliver("c"))
    told = broken(of("0.28.0"), 4, X, *missed, Report("b"), *again)
    assert told == broken(of("0.28.0"), 4, X, *missed) == {("PM-2", "never sent")}


@pytest.mark.parametrize(("release", "late"), [("0.30.0", False), ("0.31.0", True)])
def test_what_a_name_meant_before_a_reset_is_not_handed_on_after_it(
    release: str, late: bool
) -> None:
    sizes = {"x": (1, 1)}
    new, old = (process("b", "x1"), Deliver("b")), (Deliver("a"),)
    order = (*new, *old, process("c", "x1"), Deliver("c")) if late else (*old, *new)
    events = (process("a", "x0"), ResetMedia("both"), *order)
    assert broken(of(release), 4, sizes, *events) == {("PM-1", "across a reset")}
    assert broken(ReferenceTarget(), 4, sizes, *events) == set()


def test_what_another_api_server_has_kept_is_told_at_the_reset_and_once_it_is_handed_on() -> None:
    config = FrontEndConfig((MediaItem("x", (1, 1)),), 4, store="processor", servers=2)
    before, after = (process(request, f"x{at}") for at, request in enumerate("ab"))
    known = msgspec.structs.replace(before, server=1), ResetMedia(server=0)
    trace = Trace(
        FrontEndHeader(SCHEMA, config), (*known, msgspec.structs.replace(after, server=1))
    )
    for target, expected in (
        (of("0.33.0"), {("PM-6", ""), ("PM-1", "across a reset")}),
        (ReferenceTarget(), set()),
    ):
        assert set(examine(trace, target.run([trace])[0], target).by_kind) == expected


def test_an_api_server_that_is_not_there_does_nothing() -> None:
    config = FrontEndConfig((MediaItem("x", (1,)),), 4, store="processor", servers=2)
    events = msgspec.structs.replace(process("a", "x"), server=2), ResetMedia(server=3)
    (result,) = ReferenceTarget().run([Trace(FrontEndHeader(SCHEMA, config), events)])
    assert [record.outcome for record in result.records] == [None, None]


def test_what_a_half_raises_is_told_by_its_type() -> None:
    judge = judge_of(
        Trace(FrontEndHeader(SCHEMA, FrontEndConfig((MediaItem("x", (1,)),), 4)), ()),
        None,
        Protocol(),
        Reachability(),
    )
    raised = StepRecord(None, [], Raised("IndexError", "list index out of range"), None)
    judge.judge(0, process("a", "x"), raised)
    assert set(judge.by_kind) == {("PM-3", "IndexError")}


@pytest.mark.parametrize("store", ["lru", "shm", "processor"])
@pytest.mark.parametrize("handed", [[], ["x/0"], ["x/0", "x/0"], ["y/0", "x/0"]])
def test_what_is_not_handed_on_is_missed(store: str, handed: list[str]) -> None:
    items = tuple(MediaItem(name, (8,)) for name in "xy")
    config = FrontEndConfig(items, 40, store=store, largest=12)  # type: ignore[arg-type]
    judge = judge_of(Trace(FrontEndHeader(SCHEMA, config), ()), None, Protocol(), Reachability())
    told = {"sender": ["x", "y"], "receiver": [], "counted": [16, 0]}
    judge.judge(
        0, process("a", "x", "y"), StepRecord({**told, "sent": ["x/0", "y/0"]}, [], None, None)
    )
    judge.judge(1, Deliver("a"), StepRecord({**told, "handed": handed}, [], None, None))
    assert ("PM-1", "of another item") in judge.by_kind


def test_a_name_may_be_given_to_another_picture_where_nothing_is_reset() -> None:
    events = (*GIVEN, process("b", "x1"), Deliver("b"))
    assert broken(of("0.33.0"), 4, {"x": (1, 1)}, *events) == set()


@pytest.mark.parametrize("name", OF_FRONT_ENDS)
def test_the_reference_breaks_nothing(name: str) -> None:
    lane, target = LANES[name], ReferenceTarget()
    traces = [lane.trace(seed, None) for seed in range(2000)]
    for trace, result in zip(traces, target.run(traces), strict=True):
        assert not examine(trace, result, target).by_kind, trace.header.seed


def test_no_kept_trace_makes_a_release_evict_for_ever() -> None:
    """What ends nobody's service is kept; what does is told of, and not shown."""
    for name, file in kept_traces().items():
        trace = parse(file.read_bytes().splitlines(), name)
        if trace.depth == "front_end":
            for release in MODELLED:
                outcomes = [one.outcome or {} for one in of(release).run([trace])[0].records]
                assert "does not end" not in [one.get("refused") for one in outcomes]


SHARED = "front end, shared memory"
FLAGS = {
    "processes_again": ("PM-2", "front end"),
    "touches_what_is_there": ("PM-3", "front end"),
    "skips_oversize": ("PM-3", "front end"),
    "counts_resets": ("PM-1", "front end"),
    "resets_all_servers": ("PM-6", "front end, several servers"),
    "returns_what_is_not_sent": ("PM-7", SHARED),
    "keeps_what_is_to_be_read": ("PM-8", SHARED),
    "protects_what_is_touched": ("PM-7", SHARED),
    "counts_samples": ("PM-8", "front end, several answers"),
}
CHANGES_WHAT_IS_ANSWERED = {
    "touches_all_first": "front end",
    "reports_misses": "front end",
    "keeps_what_is_sent": "front end",
    "sends_names_alone": "front end",
    "numbers_on": SHARED,
    "follows_next_chunk": SHARED,
}


@pytest.mark.parametrize("flag", FLAGS)
def test_without_a_flag_the_reference_breaks_a_contract(flag: str) -> None:
    contract, lane = FLAGS[flag]
    target = ReferenceTarget(Semantics.ideal().without(f"front_end.{flag}"))
    assert any(
        contract in examine(trace, target.run([trace])[0], target).violations
        for trace in (LANES[lane].trace(seed, None) for seed in range(3000))
    )


@pytest.mark.parametrize("flag", CHANGES_WHAT_IS_ANSWERED)
def test_without_a_flag_a_release_answers_otherwise(flag: str) -> None:
    release = Semantics.of_vllm("0.33.0")
    without = release.without(f"front_end.{flag}")
    lane = LANES[CHANGES_WHAT_IS_ANSWERED[flag]]
    traces = [lane.trace(seed, None) for seed in range(300)]
    assert ReferenceTarget(release).run(traces) != ReferenceTarget(without).run(traces)


def shared(release: str | None, workers: int, *events: FrontEndEvent) -> Broken:
    """What breaks in shared memory with room for one item of 8 bytes, or for two of them."""
    target = ReferenceTarget() if release is None else of(release)
    items = tuple(MediaItem(name, (8,)) for name in "xy")
    config = FrontEndConfig(items, 20, store="shm", workers=workers, largest=12)
    trace = Trace(FrontEndHeader(SCHEMA, config), events)
    return set(examine(trace, target.run([trace])[0], target).by_kind)


RESET = process("a", "x"), ResetMedia("both"), process("b", "y"), Deliver("a")
TWICE = process("a", "x", "x"), Deliver("a", 0), Deliver("a", 1)
EVICTED = process("b", "x"), Deliver("b", 1), process("c", "y"), Deliver("b", 0)


@pytest.mark.parametrize(
    ("release", "broken"),
    [
        ("0.11.0", {("PM-1", "after a reset")}),
        ("0.31.0", {("PM-1", "after a reset")}),
        ("0.32.0", {("PM-8", "after a reset")}),
        ("0.33.0", {("PM-8", "after a reset")}),
        (None, set()),
    ],
)
def test_a_reset_while_a_message_is_under_way(release: str | None, broken: Broken) -> None:
    assert shared(release, 1, *RESET) == broken


@pytest.mark.parametrize(
    ("release", "is_broken"), [("0.11.2", False), ("0.31.0", True), ("0.32.0", False)]
)
def test_an_item_that_is_used_twice(release: str, is_broken: bool) -> None:
    found = shared(release, 2, *TWICE, *EVICTED)
    often, moved = ("PM-7", "read too often"), ("PM-8", "though nothing was reset")
    assert found == ({often, moved} if is_broken else set())


def test_a_request_for_two_answers_is_read_twice() -> None:
    both = (Process("a", (Given("x"),), 2), Deliver("a"), Deliver("a"))
    then = (process("b", "x"), process("c", "y"), Deliver("b"))
    often, moved = ("PM-7", "read too often"), ("PM-8", "though nothing was reset")
    assert shared("0.33.0", 1, *both, *then) == {often, moved}
    assert shared(None, 1, *both, *then) == set()


def test_a_reset_of_workers_alone_leaves_what_the_front_end_has() -> None:
    assert shared("0.33.0", 1, process("a", "x"), ResetMedia("receiver"), Deliver("a")) == set()


def test_a_name_in_shared_memory_may_be_given_to_another_picture() -> None:
    target, config = of("0.33.0"), FrontEndConfig((MediaItem("x", (8, 8)),), 40, "shm", 1, 12)
    events = (process("a", "x0"), Deliver("a"), process("b", "x1"), Deliver("b"))
    trace = Trace(FrontEndHeader(SCHEMA, config), events)
    assert set(examine(trace, target.run([trace])[0], target).by_kind) == set()


OLD, HALVES = process("a", "x0"), (ResetMedia("sender"), ResetMedia("receiver"))


@pytest.mark.parametrize(
    "events",
    [
        (OLD, *HALVES, process("b", "x1"), Deliver("b"), Deliver("a"), process("c", "x1"),
         Deliver("c")),
        (OLD, Deliver("a"), process("d", "x0"), ResetMedia("both"), process("b", "x1"),
         Deliver("b"), Deliver("d")),
    ],
    ids=["the old one, after a reset of one half and then the other", "the new one, before it"],
)  # fmt: skip
def test_a_reset_parts_what_a_name_means(events: tuple[FrontEndEvent, ...]) -> None:
    sizes = {"x": (1, 1)}
    assert ("PM-1", "across a reset") in broken(of("0.33.0"), 4, sizes, *events)
    assert broken(ReferenceTarget(), 4, sizes, *events) == set()


def test_a_message_that_nobody_reads() -> None:
    gone = (process("a", "x"), Withdraw("a"))
    assert shared("0.33.0", 1, *gone) == {("PM-7", "never read")}
    assert shared(None, 1, *gone) == set()
