"""The measurement of one-statement changes: what must be seen is, and nothing else."""

import msgspec
import pytest

from cacheproof.differential.lanes.all_lanes import LANES
from cacheproof.differential.provision import checkouts, releases
from cacheproof.differential.targets.changed import (
    ChangedEnded,
    ChangedText,
    ChangingHost,
    write_tree,
)
from cacheproof.differential.targets.resolve import host_of, reference_for

SEEDS = 8
POOL = "vllm/v1/core/block_pool.py"
CACHE = "vllm/v1/core/encoder_cache_manager.py"
SCHEDULER = "vllm/v1/core/sched/scheduler.py"
HASHER = "vllm/multimodal/hasher.py"
LEAVES = '__import__("os")._exit(7)\n        0  #'
RELEASE = releases.install("0.33.0", report=print)


def reading(path: str, name: str, old: str, new: str) -> ChangedText:
    """A text in which one line of a function reads otherwise; the function has it once."""
    text = (RELEASE.tree / path).read_text()
    head, signature, rest = text.partition(f"    def {name.partition('.')[2]}(")
    assert rest.count(old) >= 1
    return ChangedText(path, name, head + signature + rest.replace(old, new, 1))


@pytest.fixture(scope="module")
def search(script):
    host = ChangingHost(RELEASE)
    reference = reference_for(host)
    made = script.Search(host, reference, RELEASE, SEEDS)
    yield made
    made.close()
    host.close()
    reference.close()


def outcome(script, search, changed: ChangedText):
    return search.outcome(script.Statement("key", "kind", "words", changed))


@pytest.mark.full
@pytest.mark.parametrize(
    ("changed", "contracts"),
    [
        (
            reading(POOL, "BlockPool.touch", "block.ref_cnt += 1", "block.ref_cnt += 2"),
            {"BP-3", "SC-16"},
        ),
        (
            reading(
                CACHE,
                "EncoderCacheManager.allocate",
                "self.num_free_slots -=",
                "self.num_free_slots +=",
            ),
            {"EC-1"},
        ),
    ],
)
def test_what_must_be_seen_is_seen_by_both(script, search, changed, contracts):
    seen = outcome(script, search, changed)
    assert seen.by_contracts is not None
    assert seen.by_contracts.by in contracts
    assert seen.in_lockstep is not None
    assert 0 < seen.by_contracts.traces <= seen.traces


@pytest.mark.full
@pytest.mark.parametrize(
    ("path", "name"),
    [
        (SCHEDULER, "Scheduler.schedule"),
        (CACHE, "EncoderCacheManager.can_allocate"),
        (POOL, "BlockPool.get_new_blocks"),
        (HASHER, "MultiModalHasher.hash_kwargs"),
    ],
)
def test_nothing_is_seen_of_a_text_that_does_the_same(script, search, path, name):
    seen = outcome(script, search, reading(path, name, "\n        ", "\n\n        "))
    assert (seen.by_contracts, seen.in_lockstep, seen.void, seen.differing) == (None, None, None, 0)
    assert seen.traces > 0


@pytest.mark.full
def test_a_change_that_ends_the_process_is_no_finding_and_the_host_goes_on(script, search):
    ends = reading(CACHE, "EncoderCacheManager.allocate", "self.num_free_slots -=", LEAVES)
    seen = outcome(script, search, ends)
    assert (seen.by_contracts, seen.in_lockstep) == (None, None)
    assert "ended" in seen.void
    same = reading(CACHE, "EncoderCacheManager.allocate", "\n        ", "\n\n        ")
    assert outcome(script, search, same).differing == 0


@pytest.mark.full
def test_a_change_that_does_not_end_breaks_a_contract(script, search):
    hangs = reading(
        CACHE,
        "EncoderCacheManager.allocate",
        "self.num_free_slots -=",
        "\n        while True: 0\n#",
    )
    seen = outcome(script, search, hangs)
    assert seen.by_contracts.by in {"EC-1", "EC-13"}
    assert seen.void is None


@pytest.mark.full
@pytest.mark.parametrize(
    "changed",
    [
        reading(
            SCHEDULER,
            "Scheduler._free_encoder_inputs",
            "<= request.num_computed_tokens - request.num_output_placeholders",
            "<= request.num_computed_tokens + 2",
        ),
    ],
)
def test_a_fork_does_what_an_import_of_the_changed_tree_does(changed, tmp_path):
    write_tree(RELEASE, changed, tmp_path / "tree")
    imported = host_of(checkouts.for_path(tmp_path / "tree", report=print), "path:tree")
    forked = ChangingHost(RELEASE)
    lanes = [lane for lane in LANES.values() if lane.depth in ("scheduler", "manager", "kv_cache")]
    try:
        differs = 0
        for lane in lanes:
            traces = [lane.trace(seed, "0.33.0") for seed in range(SEEDS)]
            theirs = [msgspec.json.encode(one) for one in imported.run(traces)]
            own = [msgspec.json.encode(one) for one in forked.run(traces)]
            forked.change(changed)
            assert [msgspec.json.encode(one) for one in forked.run(traces)] == theirs
            forked.restore()
            assert [msgspec.json.encode(one) for one in forked.run(traces)] == own
            differs += own != theirs
        assert differs
    finally:
        imported.close()
        forked.close()


@pytest.mark.full
def test_a_child_that_ends_says_so_and_leaves_its_host(script):
    host = ChangingHost(RELEASE)
    ends = reading(CACHE, "EncoderCacheManager.reset", "self.cached.clear()", LEAVES)
    host.change(ends)
    resets = next(
        trace
        for seed in range(100)
        for trace in [LANES["encoder cache"].trace(seed, "0.33.0")]
        if any(type(event).__name__ == "Reset" for event in trace.events)
    )
    with pytest.raises(ChangedEnded, match="ended with 7"):
        host.written([resets])
    assert len(host.written([resets])) == 1
    host.close()


def made(script, **changes):
    seen = script.Seen("EC-1", "", "manager", "encoder cache", 0, 3, "it breaks", 1, 0.5)
    plain = {
        "key": "a:f:1", "path": CACHE, "kind": "other constant", "words": "1 for 0",
        "seeds": 8, "by_contracts": seen, "in_lockstep": None, "void": None, "traces": 4,
        "differing": 1, "seconds": 2.0,
    }  # fmt: skip
    return script.Outcome(**{**plain, **changes})


def test_a_judgement_that_the_run_contradicts_is_told(script):
    page = script.contradictions.__globals__
    judge = page["Judgement"]
    seen, unseen = made(script), made(script, key="b:g:2", by_contracts=None)
    judged = {
        "a:f:1": judge("a:f:1", "equivalent", "it is"),
        "b:g:2": judge("b:g:2", "equivalent", "it is"),
        "c:h:3": judge("c:h:3", "survives", "it does"),
    }
    told = script.contradictions([seen, unseen], judged)
    assert told == [
        "a:f:1: called equivalent, and seen by EC-1 (it breaks)",
        "c:h:3: no such change was run",
    ]


def test_shares_are_of_what_is_neither_equivalent_nor_refused(script):
    judge = script.contradictions.__globals__["Judgement"]
    lockstep = script.Seen("lockstep", "", "manager", "encoder cache", 0, 3, "differs", 1, 0.5)
    found = [
        made(script),
        made(script, key="b", by_contracts=None, in_lockstep=lockstep),
        made(script, key="c", by_contracts=None),
        made(script, key="d", by_contracts=None),
    ]
    judged = {"d": judge("d", "equivalent", "no call can tell")}
    said = script.page(found, judged, 1, 8, 4)
    assert "| **all** | 4 | 1 | 0 | 3 | 1 (33%) | 2 (67%) |" in said
    assert "## Not seen: 1\n\n- `c`, 1 for 0: not argued\n" in said


def test_half_a_line_of_an_interrupted_run_is_run_again(script, monkeypatch, tmp_path):
    file = tmp_path / "outcomes.jsonl"
    whole = msgspec.json.encode(made(script))
    file.write_bytes(whole + b"\n" + whole[: len(whole) // 2])
    monkeypatch.setattr(script, "OUTCOMES", file)
    assert [one.key for one in script.outcomes()] == ["a:f:1"]


@pytest.mark.full
def test_a_sample_is_even_over_modules_and_kinds_and_the_same_each_time(script):
    paths = (POOL, CACHE, SCHEDULER, HASHER)
    everywhere = {path: range(10_000) for path in paths}
    one, other = (script.sample(RELEASE.tree, paths, 20, 7, everywhere) for _ in range(2))
    assert [each.key for each in one] == [each.key for each in other]
    of_path = {path: [each for each in one if each.reading.path == path] for path in paths}
    assert {len(each) for each in of_path.values()} == {5}
    assert all(len({each.kind for each in those}) == 5 for those in of_path.values())


def test_the_modules_are_those_that_some_depth_runs(script):
    found = script.paths_in(RELEASE.tree)
    assert {POOL, CACHE, SCHEDULER, HASHER, "vllm/v1/request.py"} <= {*found}
    assert f"{script.CONNECTORS}/example_connector.py" in found
    assert "vllm/v1/worker/utils.py" not in found  # of which an older release is modelled
    assert all((RELEASE.tree / path).is_file() for path in found)


def test_what_a_listed_fault_may_be_is_not_counted(script):
    alike = msgspec.structs.replace(made(script).by_contracts, alike=True)
    said = script.page([made(script), made(script, key="b", by_contracts=alike)], {}, 1, 8, 4)
    assert "| **all** | 2 | 0 | 0 | 2 | 1 (50%) | 1 (50%) |" in said
    assert "## Not seen: 1\n\n- `b`" in said


def test_a_place_that_only_a_refused_feature_reaches_is_not_sampled(script, tmp_path):
    text = "class Scheduler:\n    def f(self):\n        if self.use_pp:\n            self.a = 1\n"
    module = tmp_path / SCHEDULER
    module.parent.mkdir(parents=True)
    module.write_text(text)
    reached, unreached = (
        {one.words for one in script.sample(tmp_path, (SCHEDULER,), 99, 7, {SCHEDULER: lines})}
        for lines in ((3, 4), (3,))
    )
    assert {words for words in reached if words.startswith("line 4")}
    assert {words for words in unreached if words.startswith("line 4")} == set()
    assert {words for words in unreached if words.startswith("line 3")}
