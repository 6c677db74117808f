"""`cacheproof simulate`: its figures follow from the traffic, the sizes and the release."""

import json
from collections import Counter as Tally
from collections import OrderedDict
from collections.abc import Callable, Collection, Iterator
from dataclasses import replace
from itertools import islice, pairwise
from pathlib import Path
from typing import NoReturn

import pytest

from cacheproof.reference.request import Request
from cacheproof.reference.scheduled_request import ScheduledRequest
from cacheproof.reference.scheduler.output import SchedulerOutput
from cacheproof.reference.scheduler.scheduler import Scheduler
from cacheproof.reference.semantics import Semantics
from cacheproof.simulation import figures as counting
from cacheproof.simulation import simulating
from cacheproof.simulation.figures import Counter, Figures, ToldManager
from cacheproof.simulation.page import page
from cacheproof.simulation.result import Simulation, point
from cacheproof.simulation.run import BadSetting, SimulationSetting
from cacheproof.simulation.run import run as simulated
from cacheproof.simulation.traffic import TRAFFICS, Mention, SimulatedArrival, SimulatedTraffic
from tests.differential.findings.timeline import browser as browsers
from tests.front.conftest import Run

ENDLESS = 1 << 40
REQUESTS = 300
WIDE = SimulationSetting(
    "0.33.0",
    max_num_batched_tokens=8192,
    max_num_seqs=16,
    encoder_compute_budget=8192,
    encoder_cache_size=ENDLESS,
    num_blocks=2048,
    block_size=128,
)
KINDS = pytest.mark.parametrize("kind", TRAFFICS)


def served(kind: str, requests: int = REQUESTS, **settings: object) -> Figures:
    return simulated(TRAFFICS[kind], replace(WIDE, **settings), requests, seed=0)


def items(kind: str, requests: int = REQUESTS) -> Iterator[Mention]:
    for arrival in islice(TRAFFICS[kind].stream(0), requests):
        yield from arrival.items


def disagreements(kind: str, counted: Figures) -> list[str]:
    """What an endless cache cannot have counted, of traffic that is counted here by itself."""
    tally = Tally(item.number for item in items(kind))
    mentions, distinct = tally.total(), len(tally)
    expected = {
        "requests": (counted.requests, REQUESTS),
        "mentions": (counted.mentions, mentions),
        "repeats": (counted.repeats, mentions - distinct),
        "encodes": (counted.encodes, distinct),
        "re_encodes": (counted.re_encodes, 0),
        "hits and covered": (counted.hits + counted.covered, mentions - distinct),
        "preemptions": (counted.preemptions, 0),
        "space_stalls": (counted.space_stalls, 0),
    }
    return [name for name, (got, want) in expected.items() if got != want]


@KINDS
@pytest.mark.parametrize("release", ["0.10.2", "0.15.1", "0.28.0", "0.33.0"])
def test_an_endless_cache_encodes_each_item_once(kind: str, release: str) -> None:
    assert disagreements(kind, served(kind, release=release)) == []


@KINDS
def test_without_cached_prefixes_the_hit_rate_of_an_endless_cache_is_the_repeats(kind: str) -> None:
    counted = served(kind, enable_prefix_caching=False)
    numbers = [item.number for item in items(kind)]
    assert counted.covered == 0
    assert counted.hit_rate == (len(numbers) - len(set(numbers))) / len(numbers)


def _loses_an_item(
    self: Counter, request: ScheduledRequest, num_tokens: int, encoded: Collection[int]
) -> None:
    if request.request_id != "7":
        _COUNT(self, request, num_tokens, encoded)


_COUNT = Counter._count_items
_CHECK = ToldManager.check_and_update_cache


def _misses_seven(self: ToldManager, request: Request, input_id: int) -> bool:
    """A manager that forgets item 7 when it is asked for it."""
    if request.mm_features[input_id].identifier == "7" and "7" in self.freeable:
        self._evict("7")
    return _CHECK(self, request, input_id)


@pytest.mark.parametrize(
    ("where", "name", "fault", "seen"),
    [
        (Counter, "_count_items", _loses_an_item, "hits and covered"),
        (ToldManager, "check_and_update_cache", _misses_seven, "re_encodes"),
        (counting, "_mark", lambda marked, number: 0, "repeats"),
        (counting, "_mark", lambda marked, number: 1, "re_encodes"),
    ],
)
def test_a_wrong_count_does_not_follow_from_the_traffic(
    monkeypatch: pytest.MonkeyPatch,
    where: object,
    name: str,
    fault: Callable[..., object],
    seen: str,
) -> None:
    monkeypatch.setattr(where, name, fault)
    assert seen in disagreements("documents", served("documents"))


def hits_of_lru(kind: str, rows: int) -> int:
    """Hits of a cache that keeps what was used last, and is asked for one item after the other."""
    cache: OrderedDict[int, int] = OrderedDict()
    hits = 0
    for item in items(kind):
        if item.number in cache:
            hits += 1
        else:
            while sum(cache.values()) + item.rows > rows:
                cache.popitem(last=False)
            cache[item.number] = item.rows
        cache.move_to_end(item.number)
    return hits


@KINDS
@pytest.mark.parametrize("rows", [6144, 16_384, 100_000])
def test_requests_one_by_one_hit_what_an_lru_cache_has(kind: str, rows: int) -> None:
    counted = served(kind, max_num_seqs=1, encoder_cache_size=rows, enable_prefix_caching=False)
    assert counted.hits == hits_of_lru(kind, rows)
    assert counted.hits + counted.encodes == counted.mentions
    assert counted.encodes - counted.re_encodes == counted.mentions - counted.repeats
    assert counted.resident_peak <= rows


def test_a_cache_of_the_largest_item_hits_next_to_nothing() -> None:
    for kind, traffic in TRAFFICS.items():
        tight = served(kind, max_num_seqs=1, encoder_cache_size=traffic.largest_item)
        assert tight.hit_rate < 0.05, kind
        assert tight.re_encodes > 0


def test_stalls_are_told_apart_by_what_is_short() -> None:
    few, small = {"encoder_compute_budget": 600}, {"encoder_cache_size": 600}
    assert served("documents").budget_stalls == 0
    of_budget, of_space = served("documents", **few), served("documents", **small)
    assert of_budget.budget_stalls > 0 == of_budget.space_stalls
    assert of_space.space_stalls > 0 == of_space.budget_stalls
    assert min(of_budget.steps, of_space.steps) > served("documents").steps


def test_an_item_of_a_request_that_starts_over_is_met_again() -> None:
    tight = served("documents", num_blocks=300, block_size=16, max_num_seqs=64)
    assert tight.preemptions > 0
    assert tight.requests == REQUESTS
    assert tight.covered + tight.hits + tight.encodes > tight.mentions


def test_a_release_decides() -> None:
    """Where a waiting request finds no room for an item, those behind it wait as well before
    0.33.0, and are refused room themselves from then on."""
    tight = {"encoder_cache_size": 1024, "num_blocks": 1000, "max_num_seqs": 64}
    before, after = (served("chat", release=release, **tight) for release in ("0.28.0", "0.33.0"))
    assert before.requests == after.requests == REQUESTS
    assert before.space_stalls < after.space_stalls


@KINDS
def test_a_stream_follows_from_its_seed_and_keeps_its_bounds(kind: str) -> None:
    traffic = TRAFFICS[kind]
    arrivals = list(islice(traffic.stream(3), 500))
    assert arrivals == list(islice(traffic.stream(3), 500))
    assert arrivals != list(islice(traffic.stream(4), 500))
    for one in arrivals:
        assert len(one.token_ids) + one.num_output_tokens <= traffic.longest
        assert all(item.rows <= traffic.largest_item for item in one.items)
    rows: dict[int, int] = {}
    assert all(rows.setdefault(item.number, item.rows) == item.rows for item in items(kind))


def test_turns_of_a_conversation_repeat_what_was_said() -> None:
    arrivals = list(islice(TRAFFICS["chat"].stream(0), 2000))
    by_first_text: dict[int, list[SimulatedArrival]] = {}
    for one in arrivals:
        first = one.items[0]
        by_first_text.setdefault(one.token_ids[first.offset + first.rows], []).append(one)
    later = 0
    for turns in by_first_text.values():
        for before, after in pairwise(turns):
            answered = [*before.token_ids, *[1] * before.num_output_tokens]
            assert after.token_ids[: len(answered)] == answered
            assert after.items[: len(before.items)] == before.items
            later += 1
    assert later > 500


def test_nothing_is_remembered_of_requests_that_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    counters = []

    class Kept(Counter):
        def __init__(self) -> None:
            super().__init__()
            counters.append(self)

    monkeypatch.setattr("cacheproof.simulation.run.Counter", Kept)
    served("chat", num_blocks=40, encoder_cache_size=1024)
    assert counters[0]._next_item == {}


def test_a_run_in_which_nobody_can_go_on_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ToldManager, "can_allocate", lambda self, *_: False)
    with pytest.raises(BadSetting, match=r"after \d+ steps none of 32 requests can go on"):
        served("documents")


def test_an_empty_step_does_not_end_a_run() -> None:
    """The only request that could go on preempts itself before others can."""
    tight = replace(
        WIDE,
        release="0.18.1",
        max_num_batched_tokens=64,
        max_num_seqs=64,
        encoder_cache_size=1,
        num_blocks=27,
        block_size=64,
    )
    empty, schedule = 0, Scheduler.schedule

    def counted(self: Scheduler) -> SchedulerOutput:
        nonlocal empty
        output = schedule(self)
        empty += not output.num_scheduled_tokens
        return output

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Scheduler, "schedule", counted)
        figures = simulated(TRAFFICS["documents"], tight, 40, seed=3)
    assert figures.requests == 40
    assert empty > 0


def test_claims_that_a_release_keeps_can_stop_all_requests(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Before 0.14.0 a request that gets no KV blocks keeps what it claimed (vLLM PR #31857)."""
    tight = replace(
        WIDE,
        max_num_batched_tokens=30_000,
        encoder_compute_budget=700,
        encoder_cache_size=1,
        num_blocks=100,
        block_size=16,
    )
    with pytest.raises(BadSetting, match="requests can go on"):
        simulated(TRAFFICS["documents"], replace(tight, release="0.11.0"), 40, seed=91)
    mended = Semantics.of_vllm("0.11.0").changed({"encoder_cache.frees_stalled": True})
    monkeypatch.setattr(Semantics, "of_vllm", lambda release: mended)
    after = simulated(TRAFFICS["documents"], replace(tight, release="0.11.0"), 40, seed=91)
    assert after.requests == 40


@pytest.mark.full
def test_the_command_says_the_same_twice_and_raises_budgets(run: Run, tmp_path: Path) -> None:
    told = []
    for name in "ab":
        ran = run(
            "simulate", "--requests", "200", "--traffic", "video", "--traffic", "chat",
            "--encoder-cache", "1000", "--encoder-cache", "65536", "--encoder-budget", "5000",
            "--json", tmp_path / name, "--html", tmp_path / f"{name}.html",
        )  # fmt: skip
        assert ran.code == 0, ran.err
        drawn, page = (tmp_path / f"{name}.html").read_text(), str(tmp_path / f"{name}.html")
        said = (ran.out, (tmp_path / name).read_text())
        told.append((*(one.replace(page, "PAGE") for one in said), drawn))
    assert told[0] == told[1]
    assert "video: --encoder-cache 1000 is raised to 6144 rows, the largest item" in told[0][0]
    assert told[0][0].count("video: --encoder-budget 5000 is raised to 6144 rows") == 1
    assert "chat: --encoder-" not in told[0][0]
    report = json.loads(told[0][1])
    assert [(one["traffic"], one["encoder_cache"]) for one in report["points"]] == [
        ("video", 6144), ("video", 65_536), ("chat", 1000), ("chat", 65_536),
    ]  # fmt: skip
    assert all(one["figures"]["requests"] == 200 for one in report["points"])
    assert report["points"][0]["cache_bytes"] == 6144 * 4096 * 2
    assert '"traffic":"video"' in told[0][2]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--traffic", "mail"), "--traffic mail: expected one of chat, documents, video"),
        (("--dtype", "int4"), "--dtype int4: expected one of float32"),
        (("--release", "0.9.0"), "--release 0.9.0: not modelled; expected one of 0.10.2 to"),
        (("--release", "x"), "'x' is no vLLM version; expected numbers such as 0.33.0"),
        (("--blocks", "20"), "takes up to 231 KV blocks"),
        (("--encoder-cache", "0"), "--encoder-cache"),
        (("--html", "/nowhere/a.html"), "--html /nowhere/a.html: cannot be written"),
        (("--whole-items", "--tokens-per-step", "6000"), "video: chunked multimodal input is"),
    ],
)
def test_what_cannot_be_simulated_is_said_in_one_line(
    run: Run, words: tuple[str, ...], said: str
) -> None:
    assert said in run("simulate", *words).refusal


@pytest.mark.sample(2)
@pytest.mark.skipif(not browsers.is_there(), reason=browsers.REASON)
@pytest.mark.parametrize("kinds", [("chat",), tuple(TRAFFICS)])
def test_the_page_draws_and_asks_for_nothing(tmp_path: Path, kinds: tuple[str, ...]) -> None:
    points = [
        point(kind, rows, 8192, served(kind, 20, encoder_cache_size=rows), 8192)
        for kind in kinds
        for rows in (8192, 65_536)
    ]
    found = Simulation("0.33.0", 20, 0, 8192, {kind: TRAFFICS[kind].says for kind in kinds}, points)
    with browsers.started() as browser, browsers.windows(browser, tmp_path) as opened:
        shown = opened(page(found, "8,192 rows are enough."), 1300)
        assert shown.said == []
        assert len(shown.asked) == 1
        assert shown.page.locator("figure svg").count() == 4
        assert shown.page.locator("figure path.line").count() == 4 * len(kinds)
        assert shown.page.locator("tbody tr").count() == len(points)
        assert not {"NaN", "undefined", "Infinity"} & set(shown.text("body").split())


def test_an_interrupted_simulation_prints_the_sizes_that_were_run(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    served_before = simulating.run

    def interrupted(
        traffic: SimulatedTraffic, setting: SimulationSetting, *more: object
    ) -> Figures:
        if setting.encoder_cache_size > 8192:
            raise KeyboardInterrupt
        return served_before(traffic, setting, *more)

    monkeypatch.setattr(simulating, "run", interrupted)
    sizes = "--encoder-cache", 8192, "--encoder-cache", 16384
    ran = run("simulate", "--traffic", "chat", "--requests", 20, *sizes)
    assert ran.code == 130
    assert "before all sizes were tried of one kind of traffic" in ran.out
    assert "8,192" in ran.out
    assert "16,384" not in ran.out
    assert ran.err.splitlines()[-1] == "cacheproof: interrupted"


def test_a_simulation_that_is_interrupted_at_once_prints_no_empty_table(
    run: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def interrupted(*_: object) -> NoReturn:
        raise KeyboardInterrupt

    monkeypatch.setattr(simulating, "run", interrupted)
    page = tmp_path / "page.html"
    ran = run("simulate", "--traffic", "chat", "--encoder-cache", 8192, "--html", page)
    assert ran.code == 130
    assert ran.out.splitlines() == [
        "The simulation was interrupted, with 1 run left, before all sizes were tried of one kind "
        "of traffic.",
        "Next: run the command again",
    ]
    data = json.loads(page.read_text().partition('id="data">')[2].partition("</script>")[0])
    assert "was interrupted, with 1 run left" in data["answer"]
    assert data["tone"] == "warn"
