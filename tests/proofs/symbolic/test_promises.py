"""The reference scheduler keeps what proofs of its encoder cache manager count on."""

from collections import Counter
from typing import Any, ClassVar

import pytest

from cacheproof.differential import examine
from cacheproof.differential.campaign import LANES
from cacheproof.differential.scheduler import SchedulerJudge
from cacheproof.differential.targets.host.faults import FAULTS
from cacheproof.differential.targets.reference import ReferenceTarget
from cacheproof.reference.scheduler import update
from cacheproof.reference.scheduler.encoder_inputs import Foresight
from cacheproof.reference.semantics import Semantics
from cacheproof.spec.records import EncoderCacheState

SEEDS = range(12)


class Promises(SchedulerJudge):
    """Looks at each call as `proofs/symbolic/encoder_cache.py` says what callers owe; counts what
    they do, and what of it breaks a promise."""

    calls: ClassVar[Counter[str]] = Counter()
    broken: ClassVar[Counter[str]] = Counter()

    def _call(self, record: Any, running: set[str] | None = None) -> None:
        operation, name, number, _, pending, _, _ = record
        if isinstance(self._state, EncoderCacheState):
            self.calls[operation] += 1
            if not self._is_kept(operation, name, number, pending, self._state):
                self.broken[operation] += 1
        super()._call(record, running)

    def _is_kept(
        self, operation: str, name: str, number: int, pending: int, state: EncoderCacheState
    ) -> bool:
        needed, ends = self.ghost.needed, self.ghost._claimed_end.get(name, {})
        if operation == "free":
            return all(needed.get(h) != {name} for h in self._encoded)
        if number is None:
            return True
        request = self._requests[name]
        identifier, size = request.identifiers[number], request.sizes[number]
        match operation:
            case "can":
                return size >= 1 and pending >= 0
            case "allocate":
                return identifier not in state.size and size <= state.free_slots
            case "release":
                return ends.get(identifier) != request.ends[number]
        return True


def promises_broken(
    monkeypatch: pytest.MonkeyPatch,
    semantics: Semantics | None = None,
    fault: str | None = None,
    release: str | None = None,
) -> Counter[str]:
    """What the scheduler of those semantics owes its manager and does not keep, by operation."""
    monkeypatch.setattr(examine, "SchedulerJudge", Promises)
    monkeypatch.setattr(Promises, "calls", Counter())
    monkeypatch.setattr(Promises, "broken", Counter())
    target = ReferenceTarget(semantics)
    for lane in LANES.values():
        for seed in SEEDS if lane.depth == "scheduler" else ():
            trace = lane.trace(seed, release)
            examine.examine(trace, target.run([trace], fault)[0], target)
    assert min(Promises.calls[one] for one in ("can", "allocate", "release", "free")) > 10
    return Promises.broken


def test_the_reference_scheduler_keeps_them(monkeypatch: pytest.MonkeyPatch) -> None:
    assert promises_broken(monkeypatch) == {}


def grants_everything(manager: Any) -> None:
    manager.can_allocate = lambda request, input_id, budget, pending: True


def never_hits(foresight: Any, request: Any, input_id: int) -> bool:
    return False


def test_an_allocation_that_does_not_fit_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(FAULTS, "grants_everything", grants_everything)
    assert promises_broken(monkeypatch, fault="grants_everything")["allocate"]


def test_an_allocation_of_what_is_there_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Foresight, "check_and_update_cache", never_hits)
    assert promises_broken(monkeypatch)["allocate"]


def release_all(state: Any, request: Any) -> None:
    manager = state.encoder_cache_manager
    for input_id in sorted(manager.get_cached_input_ids(request)):
        manager.free_encoder_input(request, input_id)


def test_a_release_of_what_was_not_got_past_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(update, "release_consumed", release_all)
    assert promises_broken(monkeypatch)["release"]


def test_a_preemption_in_the_step_that_encodes_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """vLLM 0.33.0 preempts by priority whom it has scheduled in the same step."""
    semantics = Semantics.of_vllm("0.33.0")
    assert promises_broken(monkeypatch, semantics, release="0.33.0")["free"]
