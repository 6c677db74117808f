"""Conditions on an encoder-decoder cache manager: from any state of three debits.

They are built as those of the encoder cache are. The manager keeps no entries; what is debited and
not yet released only the ghost need know.
"""

from dataclasses import dataclass
from typing import Any

from cacheproof.proofs.crosshair.episode import ClaimTables, Episode, SymbolicCondition, subject
from cacheproof.proofs.crosshair.states import CALLER, OTHER, SymbolicRequest, refuse_unmodelled
from cacheproof.spec.ghost import Ghost
from cacheproof.spec.records import DecoderCacheState

SCOPE = "at most 3 debits, sizes unbounded"
PRECONDITION = "an item is of size at least 1; what is allocated is not debited and fits"
ATTRIBUTES = frozenset(
    {"cache_size", "num_free_slots", "semantics", "freed", "allocated", "to_free", "_debits"}
)


@dataclass(frozen=True)
class DecoderItem:
    """One item of a request: its size, and whether it is debited."""

    size: int
    debited: bool


@dataclass(frozen=True)
class Debits:
    """A state: what is free, two items of the request that calls, and one of another."""

    free: int
    first: DecoderItem
    second: DecoderItem
    others: DecoderItem

    def has_sizes(self) -> bool:
        """Whether the sizes are sizes: the one thing that can be wrong."""
        sizes = (self.first.size, self.second.size, self.others.size)
        return self.free >= 0 and min(sizes) >= 1


def state_of(manager: Any, ghost: Ghost) -> DecoderCacheState:
    """The manager's state, as far as contracts look at it."""
    return DecoderCacheState(manager.cache_size, manager.num_free_slots, ())


def recall(episode: Episode) -> ClaimTables:
    """The debits that this manager remembers, and those that its calls come to."""
    debits = getattr(episode.manager, "_debits", None)
    return ClaimTables({}, {}) if debits is None else ClaimTables(debits, episode.ghost.debits)


def begin(debits: Debits) -> tuple[SymbolicRequest, SymbolicRequest, Episode]:
    """The caller, the other and their manager, of the subject's class, with these debits."""
    manager, ghost = subject().manager(0), Ghost()
    refuse_unmodelled(manager, ATTRIBUTES)
    caller = SymbolicRequest(CALLER, ["a", "b"], [debits.first.size, debits.second.size])
    other = SymbolicRequest(OTHER, ["c"], [debits.others.size])
    manager.cache_size = manager.num_free_slots = debits.free
    for request, input_id, item in (
        (caller, 0, debits.first),
        (caller, 1, debits.second),
        (other, 0, debits.others),
    ):
        if item.debited:
            name = request.request_id
            ghost.encode(name, input_id, request.mm_hashes[input_id], item.size)
            manager.cache_size += item.size
            if hasattr(manager, "_debits"):
                manager._debits[name, input_id] = item.size
    return caller, other, Episode(manager, ghost, state_of, recall, subject().rules)


def start(capacity: int) -> None:
    """A manager is made, and asked what a request without debits may release."""
    assert capacity >= 0
    episode = Episode(subject().manager(capacity), Ghost(), state_of, recall, subject().rules)
    episode.call("inputs", SymbolicRequest(CALLER, ["a"], [1]))


def admit(debits: Debits, budget: int, pending: int) -> None:
    """The caller asks for room for its first item, and takes it."""
    assert debits.has_sizes()
    assert not debits.first.debited
    assert pending >= 0
    caller, _, episode = begin(debits)
    if episode.call("can", caller, 0, budget, pending):
        episode.call("allocate", caller, 0)


def allocate(debits: Debits) -> None:
    """The caller's first item was admitted."""
    assert debits.has_sizes()
    assert not debits.first.debited
    assert debits.first.size <= debits.free
    caller, _, episode = begin(debits)
    episode.call("allocate", caller, 0)


def release(debits: Debits) -> None:
    """The caller releases its first item, debited or not, as on every update."""
    assert debits.has_sizes()
    caller, _, episode = begin(debits)
    episode.call("release", caller, 0)


def free(debits: Debits) -> None:
    """The caller ended, or was preempted, whatever it is debited."""
    assert debits.has_sizes()
    caller, _, episode = begin(debits)
    episode.call("free", caller)


def draw(size: int, others_size: int, encodes: bool, other_encodes: bool) -> None:
    """Five steps: in the first the caller may encode, in the second the other; then nobody."""
    assert size >= 1
    assert others_size >= 1
    debits = Debits(
        size + others_size,
        DecoderItem(size, False),
        DecoderItem(1, False),
        DecoderItem(others_size, False),
    )
    caller, other, episode = begin(debits)
    if encodes:
        episode.call("allocate", caller, 0)
    episode.step(ledger=False)
    if other_encodes:
        episode.call("allocate", other, 0)
    for _ in range(4):
        episode.step(ledger=False)


def read(debits: Debits) -> None:
    """The scheduler asks what the caller may release."""
    assert debits.has_sizes()
    caller, _, episode = begin(debits)
    episode.call("inputs", caller)


def reset(debits: Debits) -> None:
    """The encoder cache is reset."""
    assert debits.has_sizes()
    _, _, episode = begin(debits)
    episode.call("reset")


CONDITIONS = tuple(
    SymbolicCondition(function, operations, SCOPE, PRECONDITION)
    for function, operations in (
        (start, ("inputs",)),
        (admit, ("can", "allocate")),
        (allocate, ("allocate",)),
        (release, ("release",)),
        (free, ("free",)),
        (draw, ("allocate", "notices")),
        (read, ("inputs",)),
        (reset, ("reset",)),
    )
)
