"""States from parameters: they are the states that calls lead to, and all of them."""

import copy
import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from cacheproof.differential.provision import releases
from cacheproof.proofs.crosshair import text
from cacheproof.proofs.crosshair.states import (
    CALLER,
    OTHER,
    Shape,
    Situation,
    SymbolicEntry,
    SymbolicRequest,
    UnmodelledState,
    state_of,
)
from cacheproof.reference.encoder_cache import EncoderCacheManager
from cacheproof.spec.ghost import Ghost
from cacheproof.spec.registry import contracts

FREE, SIZES = 1, {"a": 2, "b": 3}


def shapes() -> Iterator[Shape]:
    """Every shape, of one choice of sizes."""
    for a, a_shared, b, b_shared, first, second, repeats, older in itertools.product(
        (False, True), repeat=8
    ):
        yield Shape(
            FREE,
            SymbolicEntry(SIZES["a"], a, a_shared),
            SymbolicEntry(SIZES["b"], b, b_shared),
            first,
            second,
            repeats,
            older,
        )


def kept(manager: object) -> dict[str, object]:
    """All that a manager keeps; a queue as the order that it is."""
    return {**vars(manager), "semantics": None, "freeable": list(manager.freeable.items())}


def reached(make: Callable[[int], Any], shape: Shape) -> Any:
    """A manager in the state of a shape, by public calls alone."""
    situation = Situation(make(0), shape)
    size = {h: SIZES[h] for h in situation.manager.cached}
    manager = make(FREE + sum(size.values()))
    gone = SymbolicRequest("gone", list(size), list(size.values()))
    for input_id in range(len(size)):
        assert manager.can_allocate(gone, input_id, 10, 0)
        manager.allocate(gone, input_id)
    for request, claims in situation.claims.items():
        for input_id in claims:
            asks = situation.caller if request == CALLER else situation.other
            assert manager.check_and_update_cache(asks, input_id)
    idle = list(situation.manager.freeable)
    for h in [*idle, *(h for h in size if h not in idle)]:
        manager.free_encoder_input(gone, list(size).index(h))
    return manager


def test_calls_lead_to_the_state_of_every_shape() -> None:
    for shape in shapes():
        built = Situation(EncoderCacheManager(0), shape).manager
        assert kept(built) == kept(reached(EncoderCacheManager, shape)), shape


@pytest.mark.full
@pytest.mark.parametrize("version", ["0.10.2", "0.28.0", "0.31.0", "0.33.0"])
def test_calls_of_a_release_lead_to_the_state_of_every_shape(version: str) -> None:
    installed = releases.install(version, report=print)
    of_release = text.of_release(version, installed.tree, text.ENCODER_CACHE)
    assert of_release is not None
    manager = of_release.load()
    for shape in shapes():
        assert kept(Situation(manager(0), shape).manager) == kept(reached(manager, shape)), shape


def test_the_state_of_every_shape_keeps_the_contracts_of_states() -> None:
    rules = [rule for rule in contracts("encoder_cache") if rule.kind == "state"]
    for shape in shapes():
        situation = Situation(EncoderCacheManager(0), shape)
        values = {"s": state_of(situation.manager, situation.ghost), "g": situation.ghost}
        for rule in rules:
            assert rule.predicate(*[values[name] for name in rule.parameters]), (rule.id, shape)


Signature = tuple[tuple[int, bool, int], ...]


def signature(manager: EncoderCacheManager) -> Signature:
    """What is left of a state of entries without their names and sizes: of each entry how often the
    caller has claimed it, whether the other holds it, and its place in the queue."""
    claims = list(manager._claims.get(CALLER, {}).values())
    queue = list(manager.freeable)
    return tuple(
        sorted(
            (claims.count(h), OTHER in held, queue.index(h) if h in queue else -1)
            for h, held in manager.cached.items()
        )
    )


@dataclass(frozen=True)
class Node:
    """A manager that calls have led to, and as which requests caller and other have begun."""

    manager: EncoderCacheManager
    bound: dict[str, SymbolicRequest]

    def after(self, operation: str, request: SymbolicRequest, input_id: int) -> "Node | None":
        """What a call leads to; None where no scheduler makes it, or it changes nothing."""
        if self.bound.get(request.request_id, request) is not request:
            return None
        manager = copy.deepcopy(self.manager)
        bound = {**self.bound, request.request_id: request}
        if operation == "claim":
            if not manager.check_and_update_cache(request, input_id):
                if not manager.can_allocate(request, input_id, 1, 0):
                    return None
                manager.allocate(request, input_id)
        elif operation == "release":
            manager.free_encoder_input(request, input_id)
        else:
            manager.free(request)
            del bound[request.request_id]
        return Node(manager, bound)

    def key(self) -> str:
        bound = sorted((name, *request.mm_hashes) for name, request in self.bound.items())
        return repr((kept(self.manager) | {"freed": None}, bound))


def reachable() -> set[Signature]:
    """Of all states that calls on three identifiers lead to, those of at most two entries."""
    requests = [
        SymbolicRequest(CALLER, [first, second], [1, 1]) for first in "abc" for second in "abc"
    ] + [SymbolicRequest(OTHER, [h], [1]) for h in "abc"]
    moves = [
        (operation, request, input_id)
        for request in requests
        for input_id in range(len(request.mm_features))
        for operation in ("claim", "release", "free")
    ]
    found: set[Signature] = set()
    seen: set[str] = set()
    nodes = [Node(EncoderCacheManager(2), {})]
    while nodes:
        node = nodes.pop()
        if len(node.manager.cached) <= 2:
            found.add(signature(node.manager))
        for after in (node.after(*move) for move in moves):
            if after is not None and (key := after.key()) not in seen:
                seen.add(key)
                nodes.append(after)
    return found


def test_every_reachable_state_of_two_entries_has_a_shape() -> None:
    of_shapes = {signature(Situation(EncoderCacheManager(0), shape).manager) for shape in shapes()}
    assert reachable() <= of_shapes


def test_a_manager_that_keeps_more_is_refused() -> None:
    manager = EncoderCacheManager(0)
    manager.pinned = set()  # type: ignore[attr-defined]
    with pytest.raises(UnmodelledState, match="keeps pinned"):
        Situation(manager, next(shapes()))


def test_nobody_holds_what_has_a_size_alone() -> None:
    manager, ghost = EncoderCacheManager(3), Ghost()
    manager.num_embeds_by_hash["h"] = 2
    state = state_of(manager, ghost)
    assert state.size == {"h": 2}
    assert "h" not in state.holders
    assert state.holders["h"] == frozenset()
