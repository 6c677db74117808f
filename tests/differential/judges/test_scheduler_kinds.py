"""What a scheduler or a worker raises is of a kind that tells causes apart: a listed fault covers
its own alone."""

from collections.abc import Callable, Sequence

import msgspec
import pytest

from cacheproof.differential.generators.engine import engine_trace
from cacheproof.differential.judges import scheduler_kinds
from cacheproof.differential.judges.examination import examine
from cacheproof.differential.judges.scheduler_position import Arrivals, SchedulerPosition
from cacheproof.differential.search.fault_folders import load
from cacheproof.differential.search.known import may_be
from cacheproof.differential.targets.reference import ReferenceTarget
from cacheproof.differential.traces.base import Adapter
from cacheproof.differential.traces.manager import Add, Update
from cacheproof.differential.traces.records import Raised
from cacheproof.differential.traces.scheduler import Schedule, SchedulerConfig
from cacheproof.differential.traces.trace import Trace
from cacheproof.reference.releases import NEWEST
from cacheproof.reference.semantics import Semantics
from tests.differential.scheduler_traces import CONFIG
from tests.differential.scheduler_traces import trace as scheduler_trace

LISTED = load()
ASSERTS = Raised("AssertionError", "")
LORA = {number: Adapter(f"skill {number}", number, "") for number in (1, 2)}


@pytest.mark.parametrize(
    ("name", "release", "lane", "kind", "fault"),
    [
        (
            "adapters-left-out",
            "0.32.0",
            "scheduler",
            "AssertionError in schedule: more adapters than a step may have",
            "adapters-left-out",
        ),
        (
            "padded-drafts",
            "0.33.0",
            "scheduler",
            "AssertionError in schedule: a threshold within drafts",
            "padded-drafts",
        ),
        (
            "session-drafts",
            "0.32.0",
            "scheduler",
            "AssertionError in schedule: a session waits",
            "session-drafts",
        ),
        (
            "kv-load-turn-hit",
            "0.33.0",
            "scheduler with KV loads",
            "AssertionError in schedule: a session waits",
            "kv-load-turn",
        ),
        (
            "kv-load-shared",
            "0.28.0",
            "scheduler with KV loads",
            "AssertionError in schedule",
            "kv-load-shared",
        ),
    ],
)
def test_an_assertion_of_schedule_is_listed_under_its_own_cause(
    finding: Callable[[str], Trace], name: str, release: str, lane: str, kind: str, fault: str
) -> None:
    trace = finding(name)
    target = ReferenceTarget(Semantics.of_vllm(release))
    examined = examine(trace, target.run([trace])[0], target)
    assert ("SC-8", kind) in examined.by_kind
    listed = may_be(LISTED, "SC-8", kind, release, (lane,))
    assert fault in [one.name for one in listed]


@pytest.mark.parametrize(
    ("release", "listed"),
    [(NEWEST, []), ("0.32.0", []), ("0.28.0", ["kv-load-shared"]), ("0.22.1", ["kv-load-shared"])],
)
def test_an_assertion_of_schedule_that_nothing_known_explains_is_of_no_fault_but_a_load_s(
    release: str, listed: list[str]
) -> None:
    kind = raising(CONFIG, Add("a", 8))
    assert kind == "AssertionError in schedule"
    may = may_be(LISTED, "SC-8", kind, release, ("scheduler",))
    assert [one.name for one in may] == listed


@pytest.mark.parametrize(
    ("message", "kind"),
    [
        ("The size of tensor a (4) must match", "RuntimeError in update: The size of"),
        ("index 7 is out of bounds", "RuntimeError in update: index"),
        ("", "RuntimeError in update"),
    ],
)
def test_what_a_worker_says_tells_its_failures_apart(message: str, kind: str) -> None:
    raised = Raised("RuntimeError", message)
    config = engine_trace(0).header.config
    assert raising(config, Add("a", 8), raised=raised, operation="update") == kind
    assert may_be(LISTED, "SC-8", kind, "0.32.0", ("LLaVA",)) == []
    assert raising(CONFIG, Add("a", 8), raised=raised, operation="update").endswith("in update")


@pytest.mark.parametrize(
    ("config", "asked", "details"),
    [
        (
            {"max_loras": 1},
            [Add("a", 8, lora=LORA[1]), Add("b", 8, lora=LORA[2])],
            "more adapters",
        ),
        ({"max_loras": 2}, [Add("a", 8, lora=LORA[1]), Add("b", 8, lora=LORA[2])], ""),
        ({"max_loras": 1}, [Add("a", 8, lora=LORA[1]), Add("b", 8)], ""),
        ({"num_speculative_tokens": 3, "long_prefill_token_threshold": 3}, [], "a threshold"),
        ({"num_speculative_tokens": 3, "long_prefill_token_threshold": 4}, [], ""),
        ({"num_speculative_tokens": 3}, [], ""),
    ],
)
def test_what_is_there_that_makes_schedule_assert(
    config: dict[str, int], asked: list[Add], details: str
) -> None:
    kind = raising(msgspec.structs.replace(CONFIG, **config), *asked)
    assert kind.removeprefix("AssertionError in schedule").startswith(details and f": {details}")
    assert bool(details) is (":" in kind)


def test_a_session_that_waits_for_another_turn_is_named() -> None:
    session = Add("a", 8, resumable=True)
    assert raising(CONFIG, session, turns=1) == "AssertionError in schedule"
    waits = {"waiting": ["a"]}
    assert raising(CONFIG, session, **waits) == "AssertionError in schedule"
    kind = raising(CONFIG, session, **waits, turns=1)
    assert kind == "AssertionError in schedule: a session waits"
    listed = may_be(LISTED, "SC-8", kind, "0.32.0", ("scheduler",))
    assert [one.name for one in listed] == ["kv-load-turn", "session-drafts"]


@pytest.mark.parametrize(("blocks", "kind"), [(4, "whole items + few blocks"), (5, None)])
def test_to_stand_for_want_of_blocks_is_a_kind_of_its_own(blocks: int, kind: str | None) -> None:
    """A trace that is made smaller would else end where no request ever fits."""
    steps = [Schedule(), Update(), Schedule(), Update(), Schedule()]
    changes = {"max_num_seqs": 1, "disable_chunked_mm_input": True, "num_blocks": blocks}
    short = scheduler_trace(Add("a", prompt=60, max_tokens=4), *steps, **changes)
    target = ReferenceTarget()
    seen = examine(short, target.run([short])[0], target)
    assert {at for contract, at in seen.by_kind if contract == "LV-1"} == ({kind} - {None})


def raising(
    config: SchedulerConfig,
    *asked: Add,
    raised: Raised = ASSERTS,
    operation: str = "schedule",
    waiting: Sequence[str] = (),
    turns: int = 0,
) -> str:
    """The kind, where these requests run, or wait, and have had so many turns."""
    arrivals = Arrivals({one.request: one for one in asked})
    prompts = {one.request: one.prompt + turns for one in asked}
    running = prompts.keys() - {*waiting}
    at = SchedulerPosition(None, [], arrivals=arrivals, running=running, prompts=prompts)
    return scheduler_kinds.raising(raised, operation, config, at, waiting)
