"""States of an encoder cache of at most two entries, each from a few parameters.

The constructor is total: whatever the parameters, sizes apart, there is a state of them, with what
the ghost knows of it. So a search over all parameters is one over all such states. Identifiers and
request ids are constants; a symbolic truth value says which of them take part.
"""

from collections.abc import Hashable, Set
from dataclasses import dataclass
from typing import Any

from cacheproof.proofs.crosshair.copies import frozen
from cacheproof.proofs.crosshair.episode import ClaimTables, Episode
from cacheproof.spec.ghost import Ghost
from cacheproof.spec.records import EncoderCacheState

CALLER, OTHER, GONE = "r", "s", "gone"
"""The request that calls, another that holds entries, and one that encoded and has ended."""

NEW = 2
"""The caller's input whose entry is not resident."""

CLAIM_TABLES = ("_claims", "_debits", "request_cached_ids")
"""Where managers remember what was claimed; older releases have none of them."""

ATTRIBUTES = frozenset(
    {
        "cache_size",
        "num_free_slots",
        "num_freeable_slots",
        "cached",
        "num_embeds_by_hash",
        "freeable",
        "freed",
        "semantics",
        "_claims",
        "request_cached_ids",
        "request_hash_refs",
    }
)
"""What managers keep, of the reference and of all releases that share entries."""


class UnmodelledState(Exception):
    """A manager keeps something that states are not built with; the message names it."""


def refuse_unmodelled(manager: object, attributes: Set[str]) -> None:
    """Raises UnmodelledState where a manager keeps more than these attributes."""
    unknown = [name for name in vars(manager) if name not in attributes]
    if unknown:
        raise UnmodelledState(
            f"{type(manager).__name__} keeps {unknown[0]}, which no state is built with"
        )


class SymbolicFeature:
    """One item of a request."""

    def __init__(self, identifier: str) -> None:
        self.identifier = identifier


class SymbolicRequest:
    """A request as far as a manager looks at it. Its input n ends at token n + 1."""

    def __init__(self, request_id: str, identifiers: list[str], sizes: list[int]) -> None:
        self.request_id = request_id
        self.mm_features = [SymbolicFeature(identifier) for identifier in identifiers]
        # the managers of 0.10.2 ask for these
        self.mm_hashes = identifiers
        self.ends = [input_id + 1 for input_id in range(len(identifiers))]
        self._sizes = sizes

    def get_num_encoder_embeds(self, input_id: int) -> int:
        return self._sizes[input_id]

    # the name up to 0.12.0
    get_num_encoder_tokens = get_num_encoder_embeds

    def resize(self, input_id: int, size: int) -> None:
        """The item is of another size than its entry."""
        self._sizes[input_id] = size


@dataclass(frozen=True)
class SymbolicEntry:
    """One identifier: the size of its item, whether it is resident though nobody holds it, and
    whether the other request holds it."""

    size: int
    resident: bool
    shared: bool


@dataclass(frozen=True)
class Shape:
    """A state: entries a and b, and what the caller has claimed of its items.

    The caller's items are a, then b (or a again, if it `repeats`), then one whose entry is not
    resident. What is claimed or held is resident. `a_is_older` orders two idle entries.
    """

    free: int
    a: SymbolicEntry
    b: SymbolicEntry
    claims_first: bool
    claims_second: bool
    repeats: bool
    a_is_older: bool

    def has_sizes(self) -> bool:
        """Whether the sizes are sizes: the one thing that a shape can have wrong."""
        return self.free >= 0 and self.a.size >= 1 and self.b.size >= 1


class Situation:
    """A manager in the state of a shape, the ghost that goes with it, and the two requests."""

    def __init__(self, manager: Any, shape: Shape, need: int = 1) -> None:
        refuse_unmodelled(manager, ATTRIBUTES)
        self.manager = manager
        self.ghost = Ghost()
        second = ("a", shape.a.size) if shape.repeats else ("b", shape.b.size)
        self.caller = SymbolicRequest(
            CALLER, ["a", second[0], "c"], [shape.a.size, second[1], need]
        )
        self.other = SymbolicRequest(OTHER, ["a", "b"], [shape.a.size, shape.b.size])
        self.claims = _claims(shape, second[0])
        holders = {h: _holders(self.claims, h) for h in ("a", "b")}
        resident = [
            (h, entry.size)
            for h, entry in (("a", shape.a), ("b", shape.b))
            if holders[h] or entry.resident
        ]
        idle = [(h, size) for h, size in resident if not holders[h]]
        if len(idle) == 2 and not shape.a_is_older:
            idle.reverse()
        self._fill_ghost(resident, idle)
        self._fill_manager(shape.free, resident, idle, holders)

    def depart(self, identifier: str) -> None:
        """The entry was evicted in this step, and the worker has not been told."""
        self.manager.freed.append(identifier)
        self.ghost.step((), {identifier: 1})

    def admit(self, input_id: int, budget: int, pending: int, episode: Episode) -> None:
        """The caller asks for room for an item, and takes it if there is some."""
        if episode.call("can", self.caller, input_id, budget, pending):
            episode.call("allocate", self.caller, input_id)

    def get_past(self, request_id: str, progress: int, episode: Episode) -> None:
        """A request's progress is confirmed: it releases what ends there, as a scheduler does."""
        request = self.caller if request_id == CALLER else self.other
        self.ghost.consume(request_id, progress)
        for input_id in list(episode.call("inputs", request) or ()):
            if request.ends[input_id] <= progress:
                episode.call("release", request, input_id)

    def _fill_ghost(self, resident: list[tuple[str, int]], idle: list[tuple[str, int]]) -> None:
        ghost = self.ghost
        for number, (h, size) in enumerate(resident):
            ghost.encode(GONE, number, h, size)
        for h, _ in idle:
            # one by one, in the order of the queue: so the ghost dates them in that order
            ghost.claim(GONE, h, 1)
            ghost.consume(GONE, 1)
        for request, claims in self.claims.items():
            for input_id, h in claims.items():
                ghost.claim(request, h, input_id + 1)
        ghost.step((), dict(resident))

    def _fill_manager(
        self,
        free: int,
        resident: list[tuple[str, int]],
        idle: list[tuple[str, int]],
        holders: dict[str, list[str]],
    ) -> None:
        manager = self.manager
        for h, size in resident:
            manager.cached[h] = set(holders[h])
            if hasattr(manager, "num_embeds_by_hash"):
                manager.num_embeds_by_hash[h] = size
        for h, size in idle:
            manager.freeable[h] = size
        manager.cache_size = free + sum([size for _, size in resident])
        manager.num_free_slots = free
        manager.num_freeable_slots = free + sum([size for _, size in idle])
        for request, claims in self.claims.items():
            _remember(manager, request, claims)


def _claims(shape: Shape, second: str) -> dict[str, dict[int, str]]:
    """Request -> what it has claimed, by input; a request that holds nothing is left out."""
    caller: dict[int, str] = {}
    if shape.claims_first:
        caller[0] = "a"
    if shape.claims_second:
        caller[1] = second
    other: dict[int, str] = {}
    if shape.a.shared:
        other[0] = "a"
    if shape.b.shared:
        other[1] = "b"
    return {request: claims for request, claims in ((CALLER, caller), (OTHER, other)) if claims}


def _holders(claims: dict[str, dict[int, str]], identifier: str) -> list[str]:
    return [request for request, of_request in claims.items() if identifier in of_request.values()]


def _counts(claims: dict[int, str]) -> dict[str, int]:
    named = list(claims.values())
    return {h: named.count(h) for h in named}


def _remember(manager: Any, request: str, claims: dict[int, str]) -> None:
    """Note a request's claims in the tables that this manager keeps of them."""
    if hasattr(manager, "_claims"):
        manager._claims[request] = dict(claims)
    if hasattr(manager, "request_cached_ids"):
        manager.request_cached_ids[request] = set(claims)
    if hasattr(manager, "request_hash_refs"):
        manager.request_hash_refs[request] = _counts(claims)


def recall(episode: Episode) -> ClaimTables:
    """The tables that this manager keeps, and what they should hold."""
    manager, claims = episode.manager, episode.claims
    kept: dict[Hashable, object] = {}
    claimed: dict[Hashable, object] = {}
    if hasattr(manager, "num_embeds_by_hash"):
        kept["sizes of"] = frozen(manager.num_embeds_by_hash)
        claimed["sizes of"] = frozen(manager.cached)
    if hasattr(manager, "_claims"):
        kept["items"] = manager._claims
        claimed["items"] = claims
    if hasattr(manager, "request_cached_ids"):
        kept["inputs"] = {r: frozen(one) for r, one in manager.request_cached_ids.items()}
        claimed["inputs"] = {r: frozen(one) for r, one in claims.items()}
    if hasattr(manager, "request_hash_refs"):
        kept["counts"] = manager.request_hash_refs
        claimed["counts"] = {r: _counts(one) for r, one in claims.items()}
    return ClaimTables(kept, claimed)


class Holders(dict[str, frozenset[str]]):
    """Who holds each entry. Contracts ask this of all that has a size. Nobody holds what a broken
    manager has a size of and no entry: to ask is no error, so the contracts are judged."""

    def __missing__(self, _identifier: str) -> frozenset[str]:
        return frozenset()


def state_of(manager: Any, ghost: Ghost) -> EncoderCacheState:
    """A copy of the manager's state. Sizes are those that it stores; where it stores none, the
    ghost's sizes of what it holds."""
    stored = getattr(manager, "num_embeds_by_hash", None)
    sizes = {h: ghost.size.get(h, 0) for h in manager.cached} if stored is None else dict(stored)
    return EncoderCacheState(
        manager.cache_size,
        manager.num_free_slots,
        manager.num_freeable_slots,
        sizes,
        Holders({h: frozen(held) for h, held in manager.cached.items()}),
        dict(manager.freeable),
        tuple(manager.freed),
    )
