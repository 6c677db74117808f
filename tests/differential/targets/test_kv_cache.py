"""KV cache managers of real releases: event for event equal to the reference, and judged."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import Any

import pytest

from cacheproof.differential.generators.kv_cache import generate
from cacheproof.differential.search.fault_folders import load
from cacheproof.differential.search.known import may_be
from cacheproof.differential.targets.host.protocol import Illegal
from cacheproof.differential.targets.process import HostTarget
from cacheproof.differential.targets.reference_kv_cache import step_records
from cacheproof.reference.semantics import Semantics
from tests.differential.judges.kv_cache import judge_records
from tests.differential.targets.parameters import newest_and

SEEDS = range(60)


@pytest.fixture(
    scope="module",
    params=newest_and(
        "0.14.0", "0.15.1", "0.18.1", "0.22.1", "0.27.1", "0.28.0", "0.30.0", "0.32.0"
    ),
)
def target(
    request: pytest.FixtureRequest, hosted: Callable[[str], AbstractContextManager[HostTarget]]
) -> Iterator[HostTarget]:
    with hosted(request.param) as target:
        yield target


def on_release(target: HostTarget, seeds: range, fault: str | None = None) -> list[Any]:
    """(configuration, events, the release's result) for each of the seeds that it takes."""
    traces = [generate(seed) for seed in seeds]
    lines: list[Any] = [
        {"header": {"depth": "kv_cache", "manager": "kv_cache", "config": config}, "events": events}
        for config, events in traces
    ]
    results = target.run(lines, fault)
    return [
        (config, events, result)
        for (config, events), result in zip(traces, results, strict=True)
        if result.illegal is None
    ]


@pytest.mark.full
def test_every_decision_is_that_of_the_reference(target: HostTarget) -> None:
    semantics = Semantics.of_vllm(target.release or "")
    compared = 0
    for config, events, result in on_release(target, SEEDS):
        try:
            ours = step_records(config, events, semantics)
        except Illegal:
            continue
        assert [list(record[:3]) for record in ours] == [list(one[:3]) for one in result.records]
        compared += sum(record.outcome is not None for record in ours)
    assert compared > 5_000


def unlisted(target: HostTarget, seeds: range, fault: str | None = None) -> set[str]:
    """Contracts that the release breaks, on those seeds, in a way that is not listed for it."""
    semantics, listed = Semantics.of_vllm(target.release or ""), load()
    return {
        contract
        for config, events, result in on_release(target, seeds, fault)
        for contract, kind in judge_records(
            config, events, result.records, semantics, target.release
        ).by_kind
        if not may_be(listed, contract, kind, target.release, ("KV cache",))
    }


@pytest.mark.full
def test_the_release_breaks_no_contract_that_is_not_listed(target: HostTarget) -> None:
    assert unlisted(target, SEEDS) == set()


def test_a_fault_planted_in_the_release_is_found(target: HostTarget) -> None:
    assert "BP-3" in unlisted(target, range(15), "leaks_a_block")


def test_a_load_takes_what_another_group_hit_until_that_is_mended(target: HostTarget) -> None:
    """vLLM #33775, found in the seeded search at this seed."""
    ((config, events, result),) = on_release(target, range(60, 61))
    semantics = Semantics.of_vllm(target.release or "")
    judge = judge_records(config, events, result.records, semantics)
    is_mended = target.release in ("0.27.1", "0.28.0", "0.30.0", "0.32.0", "0.33.0")
    assert ("KV-4" in judge.violations) is not is_mended


def test_a_load_of_a_whole_prompt_leaves_out_what_its_last_token_reads(target: HostTarget) -> None:
    """Of a window of 2 tokens, 9 loaded ones and blocks of 2 the release keeps tokens 8 and on; the
    last token, computed again, reads token 7 as well."""
    config = {
        **generate(0)[0],
        "num_blocks": 12,
        "groups": [{"kind": "sliding_window", "block_size": 2, "window": 2, "has_drafter": False}],
        "max_model_len": 24,
        "max_in_flight_tokens": 24,
        "enable_caching": True,
        "use_eagle": False,
        "watermark": 0.0,
    }
    slots = {
        "event": "slots",
        "request": "a",
        "tokens": 100,
        "drafts": 0,
        "lookahead": 0,
        "external": 100,
        "delay": True,
        "encoder": 0,
        "must_fit": False,
        "reserved": 0,
        "others": False,
    }
    arrive = {
        "event": "arrive",
        "request": "a",
        "text": [[0, 9]],
        "items": [],
        "salt": None,
        "lora": None,
        "skip_reading": False,
        "session": None,
    }
    events = [arrive, slots, {"event": "loaded", "request": "a", "valid": 100}, slots]
    header = {"depth": "kv_cache", "manager": "kv_cache", "config": config}
    (result,) = target.run([{"header": header, "events": events}])  # type: ignore[list-item]
    table, _ = result.records[1].outcome["changed"]["tables"]["a"][0]
    assert [bool(block) for block in table] == [False, False, False, False, True]
    scheduled = result.records[3].outcome["calls"][0]
    assert scheduled[:1] + scheduled[2][:1] == ["allocate_slots", 1]
    semantics = Semantics.of_vllm(target.release or "")
    judge = judge_records(config, events, result.records, semantics)
    assert set(judge.violations) == {"KV-12"}
