"""A trace's records are judged whole, whatever the release did in their midst."""

from cacheproof.differential.examine import examine
from cacheproof.differential.record import FullState, StepRecord, TraceResult
from cacheproof.differential.targets.reference import ReferenceTarget
from cacheproof.differential.trace import (
    SCHEMA,
    Add,
    Item,
    Schedule,
    SchedulerConfig,
    SchedulerHeader,
    Trace,
)
from cacheproof.reference.semantics import Semantics

CONFIG = SchedulerConfig(
    capacity=4,
    compute_budget=4,
    max_num_batched_tokens=16,
    max_num_seqs=4,
    max_model_len=64,
    block_size=16,
    num_blocks=9,
)
TRACE = Trace(
    SchedulerHeader(SCHEMA, "encoder_cache", CONFIG),
    (Add("a", 4, (Item("x", 0, 2),), 1, 0), Schedule()),
)
ARRIVED = ({"running": [], "waiting": ["a"]}, [], None, None)


def test_what_a_release_does_between_its_notices_and_its_exception_is_judged() -> None:
    """Releases up to 0.19.1 free consumed items inside schedule(), after the notices."""
    broken_off: StepRecord = (
        None,
        [
            ("can", "a", 0, 4, 0, True, None),
            ("allocate", "a", 0, None, None, None, (2, 2, {"x": (["a"], 2)}, None, None)),
            ("notices", None, None, None, None, [], None),
            (
                "release",
                "a",
                0,
                None,
                None,
                {"raises": "RuntimeError"},
                (2, 4, {"x": ([], 2)}, [("x", 2)], None),
            ),
        ],
        ("RuntimeError", "planted"),
        FullState(2, 4, {"x": ([], 2)}, [("x", 2)], []),
    )
    release = ReferenceTarget(Semantics.of_vllm("0.18.1"), release="0.18.1")
    seen = examine(TRACE, TraceResult([ARRIVED, broken_off]), release)
    assert seen.calls == 4
    assert seen.violations["EC-13"].operation == "release"
