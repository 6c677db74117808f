"""What proofs of encoder cache managers take of their callers: schedulers keep it, no proof can do
without, and a scheduler that breaks it is seen."""

from collections import Counter
from collections.abc import Mapping
from typing import Any

import pytest

from cacheproof.differential.judges.evaluator import Evaluator
from cacheproof.differential.judges.examination import examine
from cacheproof.differential.lanes.all_lanes import LANES
from cacheproof.differential.targets.host.faults.manager import FAULTS
from cacheproof.differential.targets.reference import ReferenceTarget
from cacheproof.proofs.symbolic.deciding.refuter import Refuter
from cacheproof.proofs.symbolic.deciding.subject import Subject
from cacheproof.proofs.symbolic.rules.readings import RuleLanguage
from cacheproof.proofs.symbolic.subjects import calls, encoder_cache, encoder_decoder_cache
from cacheproof.proofs.symbolic.values.values import Universe
from cacheproof.reference.scheduler import update
from cacheproof.reference.scheduler.encoder_inputs import Foresight
from cacheproof.reference.semantics import Semantics
from cacheproof.spec.ghost import Ghost
from cacheproof.spec.manager_calls import COMPONENT
from cacheproof.spec.records import Call
from cacheproof.spec.registry import Contract, contracts

SEEDS = range(12)
PROMISES = [rule for rule in contracts() if rule.component == COMPONENT]
OF_MANAGERS = {one.COMPONENT: one.of_reference for one in (encoder_cache, encoder_decoder_cache)}


def broken_promises(
    semantics: Semantics | None = None, fault: str | None = None, release: str | None = None
) -> Counter[str]:
    """In how many traces of all lanes the scheduler of those semantics breaks which promise."""
    target = ReferenceTarget(semantics)
    found: Counter[str] = Counter()
    for lane in LANES.values():
        for seed in SEEDS if lane.depth == "scheduler" else ():
            trace = lane.trace(seed, release)
            seen = examine(trace, target.run([trace], fault)[0], target)
            found.update(one for one in seen.broken if one.startswith("CP-"))
    return found


def test_the_reference_scheduler_keeps_them(monkeypatch: pytest.MonkeyPatch) -> None:
    made: Counter[str] = Counter()

    def counted(
        self: Evaluator, state: object, ghost: Ghost, encoded: Mapping[str, int], call: Call
    ) -> None:
        made[call.operation] += bool(self.rules.promised[call.operation])
        judged(self, state, ghost, encoded, call)

    judged = Evaluator.promises
    monkeypatch.setattr(Evaluator, "promises", counted)
    assert broken_promises() == {}
    assert min(made[one] for rule in PROMISES for one in rule.calls) > 100


def grants_everything(manager: Any) -> None:
    manager.can_allocate = lambda request, input_id, budget, pending: True


def never_hits(foresight: Any, request: Any, input_id: int, pending: int) -> bool:
    return False


def test_an_allocation_that_does_not_fit_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(FAULTS, "grants_everything", grants_everything)
    found = broken_promises(fault="grants_everything")
    assert found["CP-1"]
    assert found["CP-6"]


def test_an_allocation_of_what_is_there_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Foresight, "would_hit", never_hits)
    assert broken_promises()["CP-1"]


def release_all(state: Any, request: Any) -> None:
    manager = state.encoder_cache_manager
    for input_id in sorted(manager.get_cached_input_ids(request)):
        manager.free_encoder_input(request, input_id)


def test_a_release_of_what_was_not_got_past_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(update, "release_consumed", release_all)
    assert broken_promises()["CP-2"]


def test_a_preemption_in_the_step_that_encodes_is_seen() -> None:
    """vLLM 0.33.0 preempts by priority whom it has scheduled in the same step."""
    semantics = Semantics.of_vllm("0.33.0")
    assert broken_promises(semantics, release="0.33.0").keys() == {"CP-4"}


def of_reference(promise: Contract) -> Subject:
    """The manager of the reference whose callers make a promise."""
    (manager,) = promise.applies_to
    return OF_MANAGERS[manager]()


def falls(subject: Subject, promise: Contract) -> bool:
    """Whether a call of which the promise is made may break a rule."""
    refuter = Refuter(subject, [RuleLanguage(Universe(2))])
    return any(
        refuter.is_soon_refuted(operation, rule)
        for operation in subject.operations
        if operation.name in promise.calls
        for rule in refuter.rules(operation)
        if rule != "size_is_fixed"  # which no scheduler can see to
    )


ASSUMED = [rule for rule in PROMISES if not rule.synchronous_only]


@pytest.mark.sample(3)
@pytest.mark.parametrize("promise", ASSUMED, ids=lambda rule: rule.id)
def test_no_proof_can_do_without(promise: Contract, monkeypatch: pytest.MonkeyPatch) -> None:
    assert not falls(of_reference(promise), promise)
    others = [rule for rule in PROMISES if rule != promise]
    monkeypatch.setattr(
        calls, "contracts", lambda manager: [one for one in others if manager in one.applies_to]
    )
    assert falls(of_reference(promise), promise)
