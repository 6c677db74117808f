"""A watch around managers tells a fault of the manager from what its caller did."""

import copy
import gc
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from cacheproof.differential.generators.manager import manager_trace
from cacheproof.differential.judges.live_contracts import SILENT, live_contracts
from cacheproof.differential.judges.watch import ManagerWatch
from cacheproof.differential.judges.watching import (
    ANOTHER,
    UNKNOWN,
    UNREADABLE,
    UNSEEN,
    WRITTEN,
)
from cacheproof.differential.search.gallery.encoder_cache import VARIANTS
from cacheproof.differential.search.gallery.kill_matrix import SEEDS
from cacheproof.differential.search.gallery.variant import Variant
from cacheproof.differential.targets.attached import Attachment
from cacheproof.differential.targets.host.managers.manager import ManagerRequest
from cacheproof.differential.targets.host.protocol import Protocol
from cacheproof.differential.targets.reference import ReferenceTarget
from cacheproof.reference.encoder_cache import EncoderCacheManager
from cacheproof.reference.encoder_decoder_cache import EncoderDecoderCacheManager
from cacheproof.reference.semantics import Semantics
from cacheproof.spec.registry import by_id

KINDS = ("encoder_cache", "encoder_decoder")


@pytest.fixture
def watch() -> Iterator[ManagerWatch]:
    """A watch around the reference's managers."""
    watch = ManagerWatch(None)
    attachment = Attachment(watch)
    attachment.wrap(EncoderCacheManager)
    attachment.wrap(EncoderDecoderCacheManager)
    yield watch
    attachment.detach()


@pytest.fixture
def manager(watch: ManagerWatch) -> EncoderCacheManager:
    """A manager of ten embeddings that is watched."""
    return EncoderCacheManager(10)


def shows(name: str, *items: str, size: int = 4) -> Any:
    """A request that shows items of that size."""
    return ManagerRequest(name, [*items], [size] * len(items))


def drive(variant: Variant | None, kind: str, *, resized: bool = False) -> None:
    """Drive managers as a correct scheduler does."""
    managers = None if variant is None or variant.factory is None else {kind: variant.factory}
    target = ReferenceTarget(managers=managers, protocol=Protocol(refuses_resized=not resized))
    several = kind == "encoder_decoder"
    target.run([manager_trace(seed, kind, resized=resized, several=several) for seed in SEEDS])


@pytest.mark.parametrize("kind", KINDS)
def test_a_correct_manager_under_a_correct_caller_gives_no_word(
    watch: ManagerWatch, kind: str
) -> None:
    drive(None, kind)
    assert watch.take() == ([], [])
    assert watch.managers == {kind: len(SEEDS)}
    assert watch.calls > 1000
    assert set(live_contracts(kind, None)) <= watch.spoke[kind].keys()


@pytest.mark.sample(4)
@pytest.mark.parametrize("variant", VARIANTS, ids=lambda one: one.name)
def test_every_faulty_manager_is_caught_by_its_calls_alone(
    watch: ManagerWatch, variant: Variant
) -> None:
    drive(variant, variant.manager, resized=variant.resized)
    breaks, notes = watch.take()
    assert breaks
    assert notes == []


def test_a_break_says_both_sides_the_last_calls_and_who_called(watch: ManagerWatch) -> None:
    class Leaks(EncoderCacheManager):
        def allocate(self, request: Any, input_id: int) -> None:
            super().allocate(request, input_id)
            self.num_free_slots -= 1
            self.num_freeable_slots -= 1

    manager = Leaks(10)
    manager.allocate(shows("a", "x"), 0)
    ((found,), _) = watch.take()
    assert found.contracts == ("EC-1",)
    assert "EC-1 broken by Leaks, called by " in found.text
    assert by_id("EC-1").title in found.text
    assert "9 == 10" in found.text
    assert "allocate(a, 0: x of 4)" in found.text
    assert "test_a_break_says_both_sides" in found.text
    manager.free(shows("a", "x"))
    assert watch.take() == ([], [])


def test_an_allocation_that_does_not_fit_is_its_callers(
    watch: ManagerWatch, manager: EncoderCacheManager
) -> None:
    with pytest.raises(AssertionError):
        manager.allocate(shows("a", "x", size=11), 0)
    breaks, (note,) = watch.take()
    assert breaks == []
    assert note.why == "CP-1"
    assert "test_an_allocation_that_does_not_fit" in note.caller


def test_nothing_is_said_of_a_manager_whose_caller_broke_a_promise(watch: ManagerWatch) -> None:
    class KeepsHolders(EncoderCacheManager):
        def free(self, request: Any) -> None:
            pass

    manager = KeepsHolders(10)
    manager.allocate(shows("a", "x"), 0)
    with pytest.raises(AssertionError):
        manager.allocate(shows("b", "x", size=7), 0)
    manager.free(shows("a", "x"))
    breaks, notes = watch.take()
    assert breaks == []
    assert [note.why for note in notes] == ["CP-1"]


def test_a_state_that_a_test_writes_is_no_fault(
    watch: ManagerWatch, manager: EncoderCacheManager
) -> None:
    manager.allocate(shows("a", "x"), 0)
    manager.num_free_slots = 1
    manager.free(shows("a", "x"))
    breaks, (note,) = watch.take()
    assert breaks == []
    assert note.why == WRITTEN


def test_an_empty_manager_may_be_given_another_size(
    watch: ManagerWatch, manager: EncoderCacheManager
) -> None:
    manager.cache_size = manager.num_free_slots = manager.num_freeable_slots = 20
    manager.allocate(shows("a", "x", size=15), 0)
    assert watch.take() == ([], [])
    assert watch.calls == 1


def unreadable(manager: EncoderCacheManager) -> None:
    with pytest.raises(AttributeError):
        manager.allocate(None, 0)  # type: ignore[arg-type]


def another_item(manager: EncoderCacheManager) -> None:
    manager.allocate(shows("a", "x"), 0)
    manager.check_and_update_cache(shows("a", "y"), 0)


def copied(manager: EncoderCacheManager) -> None:
    manager.allocate(shows("a", "x"), 0)
    copy.deepcopy(manager).free(shows("a", "x"))


def without_a_ledger(manager: EncoderCacheManager) -> None:
    class WithoutSlots(EncoderCacheManager):
        def __init__(self) -> None:
            self.entries: dict[str, int] = {}

    WithoutSlots()


def answers_another_kind(manager: EncoderCacheManager) -> None:
    class NoNotices(EncoderCacheManager):
        def get_freed_mm_hashes(self) -> list[str]:
            return None  # type: ignore[return-value]

    assert NoNotices(10).get_freed_mm_hashes() is None


@pytest.mark.parametrize(
    ("misuse", "why"),
    [
        (unreadable, UNREADABLE),
        (another_item, ANOTHER),
        (copied, UNSEEN),
        (without_a_ledger, UNKNOWN),
        (answers_another_kind, UNKNOWN),
    ],
)
def test_what_no_scheduler_does_is_noted_and_no_fault(
    watch: ManagerWatch,
    manager: EncoderCacheManager,
    misuse: Callable[[EncoderCacheManager], None],
    why: str,
) -> None:
    misuse(manager)
    breaks, notes = watch.take()
    assert breaks == []
    assert [note.why for note in notes] == [why]


def test_what_is_given_up_in_its_step_need_not_be_reported(
    watch: ManagerWatch, manager: EncoderCacheManager
) -> None:
    """It may never have been encoded: an allocation that a preemption takes back."""
    manager.allocate(shows("a", "x", size=8), 0)
    manager.free(shows("a", "x", size=8))
    assert manager.can_allocate(shows("b", "y", size=8), 0, 9, 0)
    manager.freed.clear()
    watch.take()
    other = EncoderCacheManager(10)
    other.allocate(shows("a", "x", size=8), 0)
    other.free(shows("a", "x", size=8))
    other.can_allocate(shows("b", "y", size=8), 0, 9, 0)
    other.get_freed_mm_hashes()
    assert watch.take() == ([], [])


def test_a_method_that_a_test_puts_in_the_place_of_one_is_what_is_called(
    watch: ManagerWatch, manager: EncoderCacheManager
) -> None:
    # undone before the watch is, else what that has put there would stay
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(EncoderCacheManager, "can_allocate", lambda *_: "mine")
        assert manager.can_allocate(shows("a", "x"), 0, 9, 0) == "mine"
    assert watch.calls == 0


def test_a_mixin_that_overrides_a_method_is_watched(watch: ManagerWatch) -> None:
    class RefusesAll:
        def can_allocate(self, *_: Any) -> bool:
            return False

    class Mixed(RefusesAll, EncoderCacheManager):  # type: ignore[misc]
        pass

    assert Mixed(10).can_allocate(shows("a", "x"), 0, 9, 0) is False
    ((found,), _) = watch.take()
    assert found.contracts == ("EC-12",)


@pytest.mark.full
def test_a_manager_that_is_gone_is_forgotten(watch: ManagerWatch) -> None:
    for _ in range(50):
        EncoderCacheManager(10).allocate(shows("a", "x"), 0)
        gc.collect()
    assert watch.managers == {"encoder_cache": 50}
    assert len(watch._followed) <= 1


def test_detached_nothing_is_left() -> None:
    before = {name: vars(EncoderCacheManager).get(name) for name in ("__init__", "free")}
    attachment = Attachment(ManagerWatch(None))
    attachment.wrap(EncoderCacheManager)
    assert vars(EncoderCacheManager)["free"] is not before["free"]
    attachment.detach()
    assert {name: vars(EncoderCacheManager).get(name) for name in before} == before
    assert "__init_subclass__" not in vars(EncoderCacheManager)


def test_an_old_release_is_held_to_what_it_promises() -> None:
    """vLLM 0.28.0 releases a repeated item at its first occurrence, and promises not to."""
    lacking = Semantics.of_vllm("0.28.0").encoder_cache
    watch = ManagerWatch("0.28.0")
    attachment = Attachment(watch)
    attachment.wrap(EncoderCacheManager)
    manager, request = EncoderCacheManager(10, lacking), shows("a", "x", "x")
    manager.allocate(request, 0)
    manager.check_and_update_cache(request, 1)
    manager.free_encoder_input(request, 0)
    attachment.detach()
    ((found,), _) = watch.take()
    assert "EC-6a" in found.contracts


def test_each_silent_contract_is_one_and_says_why() -> None:
    assert all(
        by_id(contract) and why for silent in SILENT.values() for contract, why in silent.items()
    )
