"""The block pool: what a KV cache manager asks of it, in the words of its own text.

The pool is owner "m", its queue "q", its blocks' attributes "b"; "g" is who holds what: block ->
how often it stands in tables; and key -> how many blocks it finds, as who follows the pool's events
knows. What a manager owes the pool is said at each operation, in block_pool_calls.py.
"""

import inspect
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import z3

from cacheproof.proofs.symbolic.deciding.subject import (
    Aggregate,
    Attributes,
    Names,
    Operation,
    Subject,
)
from cacheproof.proofs.symbolic.reading.block_pool_readings import POOL_READINGS
from cacheproof.proofs.symbolic.reading.source import source_of
from cacheproof.proofs.symbolic.rules.rules import of_contract
from cacheproof.proofs.symbolic.subjects.block_pool_calls import OPERATIONS
from cacheproof.proofs.symbolic.subjects.block_pool_loops import loops
from cacheproof.proofs.symbolic.subjects.block_pool_rules import AUXILIARIES
from cacheproof.proofs.symbolic.subjects.calls import Assumption
from cacheproof.proofs.symbolic.values.records import Record
from cacheproof.proofs.symbolic.values.state import Operand, Receiver
from cacheproof.proofs.symbolic.values.values import (
    BLOCK,
    BOOL,
    INT,
    KEY,
    EventsOf,
    ListOf,
    MapOf,
    SequenceOf,
    Type,
    Value,
)
from cacheproof.proofs.symbolic.values.words import Words
from cacheproof.reference.block_pool import BlockPool
from cacheproof.reference.semantics import Semantics
from cacheproof.spec import block_pool as contracts_of_component
from cacheproof.spec.kv_cache import kv_never_raises
from cacheproof.spec.registry import by_id, contracts

REFERENCE = "reference"
CLASS = "BlockPool"
COMPONENT = contracts_of_component.COMPONENT
SAFETY = next(one.id for one in contracts() if one.predicate is kv_never_raises)
STATE = ("BP-1", "BP-2", "BP-3")
PROVED = (*STATE, "BP-4", "BP-5", "BP-7", "BP-8", "BP-9", SAFETY)
HANGS_ON = {
    "BP-1": ("q", "remove"),
    "BP-2": ("m", "_remember"),
    "BP-3": ("m", "touch"),
    "BP-4": ("m", "take_events"),
    "BP-5": ("q", "prepend_n"),
    "BP-7": ("q", "popleft_n"),
    "BP-8": ("m", "reset_prefix_cache"),
    "BP-9": ("m", "evict_blocks"),
    SAFETY: ("m", "touch"),
}
PROMISES: tuple[tuple[str, tuple[Assumption, ...]], ...] = (("no metrics collector", ()),)
TYPES: Mapping[tuple[str, str], Type] = {
    ("m", "num_gpu_blocks"): INT,
    ("m", "hash_block_size"): INT,
    ("m", "enable_caching"): BOOL,
    ("m", "blocks"): SequenceOf(BLOCK),
    ("m", "null_block"): BLOCK,
    ("m", "cached_block_hash_to_block"): MapOf(KEY, MapOf(BLOCK, BLOCK)),
    ("m", "enable_kv_cache_events"): BOOL,
    ("m", "kv_event_queue"): EventsOf(KEY),
    ("q", "_blocks"): MapOf(BLOCK, BLOCK, ordered=True),
    ("b", "is_null"): MapOf(BLOCK, BOOL),
    ("b", "ref_cnt"): MapOf(BLOCK, INT),
    ("b", "keys"): MapOf(BLOCK, MapOf(KEY, INT)),
    ("g", "held"): MapOf(BLOCK, INT),
    ("g", "replayed"): MapOf(KEY, INT),
}
VARIABLES: Mapping[tuple[str, str, str], Type] = {
    ("m", "free_blocks", "released"): SequenceOf(BLOCK),
    ("m", "get_cached_block", "found"): ListOf(BLOCK),
    ("q", "popleft_n", "blocks"): SequenceOf(BLOCK),
}
CONSTANTS: Attributes = {
    ("m", "semantics"): Semantics.ideal(),
    ("m", "metrics_collector"): None,
    ("m", "free_block_queue"): Receiver("q"),
}


def view(get: Callable[[str, str], Operand]) -> Names:
    """The records that contracts look at. The null block is none of the blocks they speak of."""
    fields: dict[str, dict[str, Operand]] = {"m": {}, "q": {}, "b": {}, "g": {}}
    for owner, name in TYPES:
        fields[owner][name.removeprefix("_")] = get(owner, name)
    records = {owner: Record(found) for owner, found in fields.items()}
    blocks, queue = records["m"].container("blocks"), records["q"].container("blocks")
    others = z3.Store(blocks.terms[0], fields["m"]["null_block"], False)

    def of_others(name: str) -> Value:
        values = records["b"].container(name)
        return Value(values.universe, values.kind, (others, *values.terms[1:]))

    state = {
        "num_blocks": fields["m"]["num_gpu_blocks"],
        "num_free": Words(blocks.universe).number(queue),
        "queue": queue,
        "refs": of_others("ref_cnt"),
        "held": fields["g"]["held"],
        "hashes": of_others("keys"),
        "found": fields["m"]["cached_block_hash_to_block"],
    }
    return {"s": Record(state), **records}


_TAKES = ("new", "touch")
_ALWAYS = ("BP-4", "BP-9")
_JUDGED: Mapping[str, Sequence[str]] = {
    "init": (),
    "count": ("BP-1", "BP-3", "BP-5", *_ALWAYS),
    "reset": ("BP-5", "BP-8", *_ALWAYS),
    **dict.fromkeys(_TAKES, ("BP-7", *_ALWAYS)),
}


def judged_at(operation: Operation) -> Sequence[str]:
    """The contracts of one call; of calls that take nothing, that the queue is as BP-5 says."""
    return _JUDGED.get(operation.name, ("BP-5", *_ALWAYS))


def _aggregates() -> list[Aggregate]:
    def of(record: str, name: str) -> Aggregate:
        return Aggregate(
            BLOCK,
            lambda w, n: w.number(n[record].container(name)),
            lambda w, n, key: z3.If(n[record].container(name).has(key), 1, 0),
        )

    def is_null(words: Words, names: Names, key: z3.ExprRef) -> z3.ArithRef:
        return z3.If(key == names["m"].fields["null_block"], 1, 0)

    queued, held = of("s", "queue"), of("s", "held")
    null = Aggregate(BLOCK, lambda words, names: z3.IntVal(1), is_null)
    every = of("m", "blocks")
    return [queued, held, Aggregate(BLOCK, every.value, every.share, parts=(queued, held, null))]


def of_reference(assumptions: Sequence[Assumption] = ()) -> Subject:
    """The reference's pool, as it should be."""
    path = Path(inspect.getfile(BlockPool))
    classes = {"m": CLASS, "q": "FreeKVCacheBlockQueue", "b": "KVCacheBlock"}
    return Subject(
        REFERENCE,
        {owner: source_of(path, name) for owner, name in classes.items()},
        TYPES,
        CONSTANTS,
        view,
        [*(of_contract(by_id(one)) for one in STATE), *AUXILIARIES],
        {one.name: [of_contract(by_id(rule)) for rule in judged_at(one)] for one in OPERATIONS},
        OPERATIONS,
        _aggregates(),
        loops,
        SAFETY,
        lambda play: [
            *play.words.laws_of_count(BLOCK),
            *(one(play) for one in assumptions),
        ],
        under_proof=("m", "q"),
        readings=POOL_READINGS,
        objects={BLOCK: "b"},
        variables=VARIABLES,
        unrolls=True,
        hangs_on=HANGS_ON,
    )
