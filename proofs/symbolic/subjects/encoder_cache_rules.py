"""What only proofs need to know of an encoder cache manager, beside the contracts of spec.

Each is read as its text stands, as a contract is; none is ever called. `m` is the manager by its
attributes, with `claims` for what it remembers of a request's inputs; `w` the step in the making.
`item`, `end`, `has_input`, `inputs`, `size_of` and `stands_before` are words of proofs.
"""

from collections.abc import Callable, Collection, Mapping, Set
from typing import Protocol

from cacheproof.proofs.symbolic.rules.rules import Predicate, auxiliary
from cacheproof.spec.ghost import Ghost
from cacheproof.spec.records import EncoderCacheState, Making


class ManagerTables(Protocol):
    """The tables of managers, of which each release's has some: who holds what, its sizes, what
    was claimed by request and input, and how often by request and identifier."""

    cached: Mapping[str, Set[str]]
    num_embeds_by_hash: Mapping[str, int]
    claims: Mapping[str, Mapping[int, str]]
    request_hash_refs: Mapping[str, Mapping[str, int]]


# of the ghost


def needed_as_claimed(g: Ghost) -> bool:
    """A request needs what it has claimed and has not got past."""
    return all(
        all(r in g.claimed_end and h in g.claimed_end[r] for r in g.needed[h]) for h in g.needed
    ) and all(
        all(h in g.needed and r in g.needed[h] for h in g.claimed_end[r]) for r in g.claimed_end
    )


def somebody_needs(g: Ghost) -> bool:
    """What is needed somebody needs."""
    return all(any(r in g.needed[h] for r in g.needed[h]) for h in g.needed)


def idle_is_not_needed(g: Ghost) -> bool:
    """What is idle nobody needs, and it has been so since before now."""
    return all(h not in g.needed and g.idle_since[h] <= g._clock for h in g.idle_since)


def needed_is_sized(g: Ghost) -> bool:
    """What was claimed was encoded once."""
    return all(h in g.size for h in g.needed)


def needed_is_resident(s: EncoderCacheState, g: Ghost) -> bool:
    """What is needed is there."""
    return all(h in s.size for h in g.needed)


def size_is_fixed(g: Ghost, size_of: Callable[[str], int]) -> bool:
    """What was encoded has the size of its identifier."""
    return all(g.size[h] == size_of(h) for h in g.size)


# of the manager and the ghost


def queued_is_idle(s: EncoderCacheState, g: Ghost) -> bool:
    """What stands in the queue was needed once."""
    return all(h in g.idle_since for h in s.queue)


def queued_in_order(
    s: EncoderCacheState, g: Ghost, stands_before: Callable[[Mapping[str, int], str, str], bool]
) -> bool:
    """Who stands earlier in the queue has been idle for longer."""
    return all(
        all(not stands_before(s.queue, e, k) or g.idle_since[e] <= g.idle_since[k] for k in s.queue)
        for e in s.queue
    )


def held_in_vain_since_now(s: EncoderCacheState, g: Ghost) -> bool:
    """What is held and not needed became idle just now, and is about to be released."""
    return all(
        h in g.needed or not s.holders[h] or (h in g.idle_since and g.idle_since[h] == g._clock)
        for h in s.holders
    )


def stored_is_known(s: EncoderCacheState, g: Ghost) -> bool:
    """What the worker has is resident, or there is a notice of it."""
    return all(h in s.size or h in s.notices for h in g.stored)


def encoded_stays(s: EncoderCacheState, g: Ghost, w: Making) -> bool:
    """What the step in the making encodes is resident and needed."""
    return all(h in s.size and h in g.needed for h in w.encoded)


# of the manager's own tables


def one_table(m: ManagerTables) -> bool:
    """Holders and sizes are known of the same entries."""
    return all(h in m.num_embeds_by_hash for h in m.cached) and all(
        h in m.cached for h in m.num_embeds_by_hash
    )


def holders_show_the_item(
    m: ManagerTables, item: Callable[[str, int], str], inputs: Callable[[str], Set[int]]
) -> bool:
    """Who holds an entry has an input of that identifier."""
    return all(all(any(item(r, i) == h for i in inputs(r)) for r in m.cached[h]) for h in m.cached)


def needed_up_to_an_input(
    g: Ghost,
    item: Callable[[str, int], str],
    end: Callable[[str, int], int],
    inputs: Callable[[str], Set[int]],
) -> bool:
    """A request needs an identifier up to the end of an input that shows it."""
    return all(
        all(
            any(item(r, i) == h and end(r, i) == g.claimed_end[r][h] for i in inputs(r))
            for h in g.claimed_end[r]
        )
        for r in g.claimed_end
    )


def claims_are_inputs(m: ManagerTables, has_input: Callable[[str, int], bool]) -> bool:
    """Only inputs are claimed."""
    return all(all(has_input(r, i) for i in m.claims[r]) for r in m.claims)


def claims_name_items(m: ManagerTables, item: Callable[[str, int], str]) -> bool:
    """A claim remembers the identifier of its input."""
    return all(all(m.claims[r][i] == item(r, i) for i in m.claims[r]) for r in m.claims)


def claimed_is_held(m: ManagerTables, item: Callable[[str, int], str]) -> bool:
    """What a request has claimed is resident and held for it."""
    return all(
        all(item(r, i) in m.cached and r in m.cached[item(r, i)] for i in m.claims[r])
        for r in m.claims
    )


def held_is_claimed(m: ManagerTables, item: Callable[[str, int], str]) -> bool:
    """Who holds an entry has claimed an input of that identifier."""
    return all(
        all(r in m.claims and any(item(r, i) == h for i in m.claims[r]) for r in m.cached[h])
        for h in m.cached
    )


def last_claim_stands(
    m: ManagerTables, g: Ghost, item: Callable[[str, int], str], end: Callable[[str, int], int]
) -> bool:
    """Of an identifier that a request needs, its last occurrence is claimed."""
    return all(
        all(
            r in m.claims
            and any(item(r, i) == h and end(r, i) == g.claimed_end[r][h] for i in m.claims[r])
            for h in g.claimed_end[r]
        )
        for r in g.claimed_end
    )


def references_are_counted(
    m: ManagerTables, occurrences: Callable[[Collection[int], str, str], int]
) -> bool:
    """How often a request has claimed an identifier is counted; nothing else is."""
    return all(
        r in m.request_hash_refs
        and all(
            m.request_hash_refs[r][h] == occurrences(m.claims[r], r, h)
            and m.request_hash_refs[r][h] >= 1
            for h in m.request_hash_refs[r]
        )
        for r in m.claims
    ) and all(r in m.claims for r in m.request_hash_refs)


def references_are_of_claims(m: ManagerTables, item: Callable[[str, int], str]) -> bool:
    """An identifier is counted exactly where an input of it is claimed."""
    return all(
        all(item(r, i) in m.request_hash_refs[r] for i in m.claims[r]) for r in m.claims
    ) and all(
        all(any(item(r, i) == h for i in m.claims[r]) for h in m.request_hash_refs[r])
        for r in m.request_hash_refs
    )


_Rule = Callable[..., bool]
_ALWAYS: tuple[_Rule, ...] = (
    needed_as_claimed,
    somebody_needs,
    idle_is_not_needed,
    needed_is_resident,
    needed_is_sized,
    size_is_fixed,
    queued_is_idle,
    queued_in_order,
    held_in_vain_since_now,
    stored_is_known,
    encoded_stays,
    holders_show_the_item,
)
_OF_ATTRIBUTE: dict[str, tuple[_Rule, ...]] = {
    "num_embeds_by_hash": (one_table,),
    "claims": (claims_are_inputs, claimed_is_held, held_is_claimed, last_claim_stands),
    "_claims": (claims_name_items,),
    "request_hash_refs": (references_are_counted, references_are_of_claims),
}


def auxiliaries(attributes: Collection[str]) -> list[Predicate]:
    """The invariants that speak of a manager with these attributes."""
    of_tables = [
        one for name, rules in _OF_ATTRIBUTE.items() if name in attributes for one in rules
    ]
    if "claims" not in attributes:
        of_tables.append(needed_up_to_an_input)
    return [auxiliary(one) for one in (*_ALWAYS, *of_tables)]
