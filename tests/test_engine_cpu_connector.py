"""A real engine with its own ECCPUConnector, which promises what it then evicts: the engine ends.

The second model runner needs Triton, whose interpreter runs its kernels: `pip install --no-deps
--target FOLDER triton==3.9.0`, and CACHEPROOF_TRITON=FOLDER.
"""

import json
import os
import random
import subprocess
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from cacheproof.differential.provision import releases

SCRIPTS = Path(__file__).parent / "gpu_runner"
RELEASE = "0.32.0"
ROWS_OF_ITEM = 16
IDLE_MAX = 1000
PICTURES = [f"picture {number}" for number in range(8)]
RUNNERS = {
    "first": "vllm.v1.worker.cpu_model_runner",
    "second": "vllm.v1.worker.cpu.model_runner",
}

Requests = list[dict[str, Any]]
Answer = dict[str, Any]
Ask = Callable[..., list[Answer]]


def shown(*pictures: str) -> Requests:
    """One request that shows those pictures."""
    return [{"shows": list(pictures)}]


def drawn(seed: int) -> Requests:
    """Forty requests, each with one to three of the pictures."""
    source = random.Random(seed)
    return [shown(*source.sample(PICTURES, source.randint(1, 3)))[0] for _ in range(40)]


ELSEWHERE = [shown("x"), shown("a"), shown("b"), shown("c"), shown("y", "x")]
"""The engine's own cache holds three items: x is in the region alone, and the oldest there."""

OLDEST = [shown("x"), shown("a"), shown("b"), shown("y", "x")]
"""x is the oldest in the region and in the engine's own cache, which evicts it for y."""

RESET = [shown("x"), None, shown("y", "x")]
"""x is in the region alone, since the engine's own cache was reset."""

URGENT: Requests = [
    {"shows": [127, "y"], "priority": 1},
    {"shows": [59, "z1", "z2", "z3", "z4"], "priority": 0, "after": 1},
]
"""In one step the first is scheduled onto y, and the second needs the KV block that it has."""

FEW_BLOCKS = {
    "num_gpu_blocks_override": 8,
    "long_prefill_token_threshold": 32,
    "max_num_seqs": 2,
    "max_model_len": 192,
    "max_num_batched_tokens": 64,
}


class Engine:
    """A process with an engine of the release."""

    def __init__(self, job: dict[str, Any]) -> None:
        command, environment = releases.host_command(
            releases.install(RELEASE, report=print, kind=releases.WHEEL)
        )
        path = f"{environment['PYTHONPATH']}{os.pathsep}{SCRIPTS}"
        self.process = subprocess.Popen(
            [command[0], str(SCRIPTS / "engine_with_cpu_connector.py"), json.dumps(job)],
            env=environment
            | {"PYTHONPATH": path, "VLLM_ENABLE_V1_MULTIPROCESSING": str(int("apart" in job))},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def answer(self, asked: list[Requests | None]) -> list[Answer]:
        """What it says to each line; after `ended`, nothing."""
        given, _ = self.process.communicate("".join(json.dumps(line) + "\n" for line in asked))
        assert self.process.returncode == 0
        return [json.loads(line) for line in given.splitlines() if line.startswith("{")]


@pytest.fixture(scope="module", params=list(RUNNERS))
def runner(request: pytest.FixtureRequest) -> str:
    if request.param == "second" and "CACHEPROOF_TRITON" not in os.environ:
        pytest.skip("CACHEPROOF_TRITON names no folder with Triton")
    return str(request.param)


@pytest.fixture
def first_alone(runner: str) -> None:
    """Not with the second: interpreted kernels take long, and are this process's alone."""
    if runner != "first":
        pytest.skip("with the first model runner alone")


@pytest.fixture(scope="module")
def ask(runner: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ask]:
    """Asks an engine of its own, whose region has room for so many items, or which has none."""
    models = tmp_path_factory.mktemp("models")
    triton = os.environ["CACHEPROOF_TRITON"] if runner == "second" else None
    with ExitStack() as stack:

        def asking(asked: list[Requests | None], items: float | None, **job: Any) -> list[Answer]:
            rows = None if items is None else int(items * ROWS_OF_ITEM)
            one = Engine({"models": str(models), "triton": triton, "rows": rows, **job})
            stack.callback(one.process.kill)
            answers = one.answer(asked)
            assert {answer.get("runner", RUNNERS[runner]) for answer in answers} == {
                RUNNERS[runner]
            }
            return answers

        yield asking


@pytest.mark.full
@pytest.mark.parametrize(
    ("asked", "items"),
    [
        pytest.param(ELSEWHERE, 4, id="x is to be saved again"),
        pytest.param(RESET, 1, id="no room for x"),
    ],
)
def test_a_promised_item_that_is_evicted_ends_the_engine(
    ask: Ask, asked: list[Requests | None], items: int
) -> None:
    *before, last = ask(asked, items)
    assert all(answer["idle"] <= 1 for answer in before)
    assert last["ended"] == "RuntimeError: Encoder cache miss for x."
    assert (last["encoded"], last["loaded"]) == (1, 0)


@pytest.mark.full
def test_one_that_the_worker_still_has_keeps_the_engine_stepping(ask: Ask) -> None:
    without, answers = ask(OLDEST, None), ask(OLDEST, 3)
    assert [answer["tokens"] for answer in answers] == [answer["tokens"] for answer in without]
    assert [answer["idle"] for answer in without] == [1, 1, 1, 1]
    assert [answer["idle"] for answer in answers] == [1, 1, 1, IDLE_MAX]
    assert (answers[-1]["encoded"], answers[-1]["loaded"]) == (1, 0)


@pytest.mark.full
@pytest.mark.parametrize(
    ("asked", "items", "pins"),
    [
        pytest.param(ELSEWHERE, 5, False, id="room for all"),
        pytest.param(ELSEWHERE, 4, True, id="pinned"),
        pytest.param(OLDEST, 3, True, id="pinned, the worker still has x"),
        pytest.param(RESET, 1, True, id="pinned, no room for y"),
    ],
)
def test_with_room_or_pins_the_tokens_are_those_of_an_engine_without(
    ask: Ask, asked: list[Requests | None], items: int, pins: bool
) -> None:
    expected = [answer["tokens"] for answer in ask(asked, None)]
    answers = ask(asked, items, pins=pins)
    assert [answer["tokens"] for answer in answers] == expected
    assert (answers[-1]["encoded"], answers[-1]["loaded"]) == (1, 1)
    assert all(answer["idle"] <= 1 for answer in answers)


@pytest.mark.full
@pytest.mark.parametrize(
    ("items", "ended", "stepping"), [(2, 1, 7), (4, 9, 1), (6, 8, 0), (8, 0, 0)]
)
@pytest.mark.usefixtures("first_alone")
def test_random_requests_end_the_engine_or_keep_it_stepping(
    ask: Ask, items: int, ended: int, stepping: int
) -> None:
    answers = [answer for seed in range(10) for answer in ask([drawn(seed)], items)]
    ends = [answer["ended"] for answer in answers if "ended" in answer]
    assert all(end.startswith("RuntimeError: Encoder cache miss for picture") for end in ends)
    assert len(ends) == ended
    assert [answer.get("idle") for answer in answers].count(IDLE_MAX) == stepping


@pytest.mark.full
@pytest.mark.usefixtures("first_alone")
def test_with_pins_random_requests_have_the_tokens_of_an_engine_without(ask: Ask) -> None:
    for seed in range(10):
        (without,), (answer,) = ask([drawn(seed)], None), ask([drawn(seed)], 4, pins=True)
        assert (answer["tokens"], answer["idle"]) == (without["tokens"], 1)


@pytest.mark.full
def test_an_item_larger_than_the_region_ends_the_engine(ask: Ask) -> None:
    (answer,) = ask([shown("x")], 0.5)
    assert answer["ended"].startswith("AssertionError: EmbeddingCache: 16 blocks requested")


@pytest.mark.full
def test_a_save_whose_request_is_preempted_keeps_the_engine_stepping(ask: Ask) -> None:
    priority = {**FEW_BLOCKS, "scheduling_policy": "priority"}
    (without,) = ask([URGENT], None, settings=priority)
    (answer,) = ask([URGENT], 10, settings=priority)
    assert answer["tokens"] == without["tokens"]
    assert (without["idle"], answer["idle"]) == (1, IDLE_MAX)
    (in_turn,) = ask([URGENT], 10, settings=FEW_BLOCKS)
    assert in_turn["idle"] == 1


@pytest.mark.full
@pytest.mark.usefixtures("first_alone")
def test_an_engine_core_in_a_process_of_its_own_ends(ask: Ask) -> None:
    *before, last = ask(ELSEWHERE, 4, apart=True)
    assert len(before) == 4
    assert last["ended"].startswith("EngineDeadError")
