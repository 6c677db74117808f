"""What a step has spent of its encoder budget, where a request gives back what it was to encode."""

from cacheproof.differential.judges.examination import examine
from cacheproof.differential.targets.reference import ReferenceTarget
from cacheproof.differential.traces.manager import Add, Item
from cacheproof.differential.traces.scheduler import Schedule, Update
from cacheproof.differential.traces.trace import Trace
from cacheproof.reference.semantics import Semantics
from tests.differential.scheduler_traces import trace

NEWEST = Semantics.of_vllm("0.33.0")


def handed_on() -> Trace:
    """`a` is preempted in the step that encodes `x` for it, after `c` has hit `x`; then `b` is to
    be encoded for."""
    items = [Item("x", 2, 3), Item("y", 8, 3), Item("z", 34, 3), Item("x", 42, 3)]
    return trace(
        Add("a", prompt=65, items=tuple(items), priority=2),
        Schedule(),
        Update(),
        Schedule(),
        Add("b", prompt=3, items=(Item("u", 0, 1), Item("v", 2, 1)), priority=1),
        Add("c", prompt=66, items=(Item("w", 0, 1), Item("x", 29, 3))),
        Schedule(),
        Update(),
        Schedule(),
        Update(),
        Schedule(),
        capacity=5,
        compute_budget=1,
        max_num_batched_tokens=23,
        max_num_seqs=3,
        max_model_len=95,
        block_size=8,
        num_blocks=13,
        prefix_caching=False,
        policy="priority",
        long_prefill_token_threshold=11,
        async_scheduling=True,
        scheduler_reserve_full_isl=False,
    )


def broken(semantics: Semantics, *, told_of: bool = True) -> set[str]:
    """What the trace breaks; where the workers are not `told_of` what `c` encodes for `a`, too."""
    target = ReferenceTarget(semantics, release="0.33.0")
    (result,) = target.run([handed_on()])
    last = result.records[-1].outcome
    assert isinstance(last, dict)
    if not told_of:
        del last["encode"]["c"]
    return set(examine(handed_on(), result, target).violations)


def test_what_another_request_encodes_stays_spent() -> None:
    assert broken(NEWEST) == {"WM-1", "WM-2"}
    mended = NEWEST.changed({"scheduler.hands_on_encodes": True})
    assert broken(mended) == set()
    assert "SC-12" in broken(mended, told_of=False)
