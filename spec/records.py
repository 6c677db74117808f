"""What a contract looks at: small immutable records, in embeddings and identifiers.

A record is a named tuple so that a predicate reads like the rule and costs little to evaluate. The
mappings inside are never written to after the record is made.
"""

from collections.abc import Iterable, Mapping, Sequence, Set
from typing import NamedTuple


class EncoderCacheState(NamedTuple):
    """The ledger of an encoder cache manager between two calls.

    `size` and `holders` have the same keys, the resident identifiers. `queue` maps each entry that
    the manager would evict to the number of embeddings it would credit, in order of eviction.
    `notices` are evictions that the worker has not been told of.
    """

    capacity: int
    free_slots: int
    freeable_slots: int
    size: Mapping[str, int]
    holders: Mapping[str, Set[str]]
    queue: Mapping[str, int]
    notices: tuple[str, ...]


class DecoderCacheState(NamedTuple):
    """The ledger of an encoder-decoder cache manager: it counts slots and shares nothing."""

    capacity: int
    free_slots: int
    notices: tuple[str, ...]


LedgerState = EncoderCacheState | DecoderCacheState
"""The state of a manager of encoder outputs."""


class Call(NamedTuple):
    """One call of a manager and its answer.

    `need` is the size of the item in embeddings, `end` the token behind it; `budget` and `pending`
    are what the caller passed to an admission, 0 for other calls. `granted` is the answer as a
    truth value, `debited` the ghost's word for whether the request has been debited the item and
    has not released it. Of who asks for a size, `tells` is whether there is an answer but None, and
    `answered` the answer: see `number_of`. Of who asks what a request may release, `told` are the
    identifiers of the inputs in the answer, see `inputs_in` and `named_by`, and `leaves_out` is
    whether it has been debited an input that is not in it.
    """

    operation: str
    request: str
    input_id: int
    identifier: str
    need: int
    end: int
    budget: int
    pending: int
    granted: bool
    debited: bool
    raised: str
    tells: bool = False
    answered: int = 0
    told: Set[str] = frozenset()
    leaves_out: bool = False


def number_of(answer: object) -> int:
    """An answer as contracts look at it: a whole number, and 0 for anything else, truth values
    included: no entry has that size."""
    return answer if type(answer) is int else 0


def inputs_in(answer: object) -> Set[int]:
    """An answer of inputs as contracts look at it: the whole numbers of a set or a list."""
    inputs = answer if isinstance(answer, set | frozenset | list | tuple) else ()
    return frozenset(one for one in inputs if type(one) is int)


def named_by(inputs: Set[int], identifiers: Sequence[str]) -> Set[str]:
    """The identifiers of inputs of a request that has these."""
    return frozenset(one for number, one in enumerate(identifiers) if number in inputs)


def leaves_out(debits: Iterable[tuple[str, int]], request: str, inputs: Set[int]) -> bool:
    """Whether a request has been debited an input that is not among these."""
    return any(owner == request and number not in inputs for owner, number in debits)


class Making(NamedTuple):
    """A step that is being decided: what was allocated in it, by size, which it is to encode."""

    encoded: Mapping[str, int]


class Step(NamedTuple):
    """One scheduling step as the worker sees it: notices first, then encodes, then gathers.

    `before` and `store` map identifiers to rows in the worker's store before and after the step.
    `ledger` maps the manager's resident identifiers to their size when schedule() returned.
    `pending` are evictions that go with the next step's notices: releases that free after the
    notices are drawn have some.
    `steps_since_encode` counts, for what is in the store, the steps since it was last encoded.
    `evicting` and `allocating` are the requests whose admission evicted, and that were allocated.
    """

    capacity: int
    before: Mapping[str, int]
    notices: tuple[str, ...]
    encoded: Set[str]
    gathered: Set[str]
    store: Mapping[str, int]
    ledger: Mapping[str, int]
    pending: Set[str]
    steps_since_encode: Mapping[str, int]
    evicting: Set[str]
    allocating: Set[str]


class Twins(NamedTuple):
    """What two requests of one prompt have decoded: token ids, as far as both have come; or what
    two stores hold after the same steps: entries and their sizes.

    Neither goes on behind a token whose logit hardly led the second: rounding decides there.
    """

    one: tuple[int, ...] | tuple[tuple[str, int], ...]
    other: tuple[int, ...] | tuple[tuple[str, int], ...]


class RowsRead(NamedTuple):
    """Tokens of a step whose embeddings were not what they had to be, each as (item, row, which
    encode of the item), zeros for text: what had to stand there, and what did."""

    expected: tuple[tuple[int, ...], ...]
    found: tuple[tuple[int, ...], ...]


class SlotsRead(NamedTuple):
    """KV slots that requests of a step attended to and that were not theirs, each as a digest of
    the prefix whose KV it holds: what had to be read, and what was."""

    expected: tuple[int, ...]
    found: tuple[int, ...]


class StoreMemory(NamedTuple):
    """Memory of the worker's encoder store in bytes: of as many rows as it may hold, and what its
    entries keep alive, a tensor of which only a part is an entry in full."""

    capacity: int
    held: int
