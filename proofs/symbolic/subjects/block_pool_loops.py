"""What is known around the loops of a block pool: what is done, and that the rest is as it was."""

from collections.abc import Callable, Mapping, Sequence

import z3

from cacheproof.proofs.logic import Formula, conjunction, disjunction, iff, implies, negated
from cacheproof.proofs.symbolic.deciding.play import Play
from cacheproof.proofs.symbolic.reading.block_pool_readings import OncePlaces, Places
from cacheproof.proofs.symbolic.reading.ghost_loops import Rules
from cacheproof.proofs.symbolic.values.state import Around, Loop, State
from cacheproof.proofs.symbolic.values.values import KEY, Value

FOUND = "cached_block_hash_to_block"


def loops(play: Play) -> Mapping[tuple[str, str], Sequence[Loop]]:
    """The loops of a pool and of its queue, by owner and method, in order of their lines."""

    def forgetting(around: Around) -> Rules:
        return [*_forgetting(around), *_told(play, around)]

    def forgotten(around: Around) -> Rules:
        return [*_forgotten(around), *_told(play, around)]

    def handing_out(around: Around) -> Rules:
        return [*forgotten(around), *_referenced(around, lambda then, done: z3.If(done, 1, then))]

    def touching(around: Around) -> Rules:
        more = _referenced(around, lambda then, done: z3.If(done, then + 1, then))
        return [*more, *_left_out(around)]

    def freeing(around: Around) -> Rules:
        less = _referenced(around, lambda then, done: z3.If(done, then - 1, then))
        return [*less, *_released(around)]

    def taking(around: Around) -> Rules:
        return _taken(play, around)

    def caching(around: Around) -> Rules:
        kept = ("BP-2", "found_by_id", "null_block_has_no_keys")
        found = play.invariants(around.now, taken=around.taken)
        return [(rule, formula) for rule, formula in found if rule in kept] + [
            *_cached(around),
            *_to_be_told(play, around),
        ]

    return {
        ("m", "_forget"): [Loop(forgetting)],
        ("m", "get_new_blocks"): [Loop(handing_out)],
        ("m", "touch"): [Loop(touching)],
        ("m", "free_blocks"): [Loop(freeing)],
        ("m", "evict_blocks"): [Loop(forgotten)],
        ("m", "reset_prefix_cache"): [Loop(_without_keys)],
        ("m", "cache_full_blocks"): [Loop(caching)],
        ("m", "get_cached_block"): [Loop(lambda around: [])],
        ("q", "popleft_n"): [Loop(taking)],
        ("q", "prepend_n"): [Loop(_in_front)],
        ("q", "append_n"): [Loop(_behind)],
    }


# what blocks are found by


def finds(found: Value, key: z3.ExprRef, block: z3.ExprRef) -> Formula:
    """Whether a key finds a block."""
    return conjunction((found.has(key), found.at(key).has(block)))


Gone = Callable[[z3.ExprRef, z3.ExprRef], Formula]
"""Whether a key does not find a block any more."""


def _found(around: Around, gone: Gone) -> Rules:
    """What finds a block: what did, but for what is gone; and no key finds nothing."""
    then, now = (state.contents("m", FOUND) for state in (around.start, around.now))

    def of_key(key: z3.ExprRef) -> Formula:
        return now.at(key).all(
            lambda b: iff(
                finds(now, key, b), conjunction((finds(then, key, b), negated(gone(key, b))))
            )
        )

    by_id = now.all(
        lambda k: now.at(k).all(lambda b: implies(finds(now, k, b), now.at(k).at(b).term == b))
    )
    some = now.all(lambda k: implies(now.has(k), negated(now.at(k).is_empty)))
    return [("found as it was", now.all(of_key)), ("found by id", by_id), ("found at all", some)]


def _forgetting(around: Around) -> Rules:
    """What finds a block no more: the keys that are done."""
    block, seen = around.now.names["block"], around.seen
    assert seen is not None
    return _found(around, lambda key, b: conjunction((b == block, seen.has(key))))


def _forgotten(around: Around) -> Rules:
    """Nothing finds blocks that are done."""
    seen = around.seen
    assert seen is not None

    def gone(key: z3.ExprRef, block: z3.ExprRef) -> Formula:
        return seen.has(block)

    return [*_found(around, gone), *_without_keys(around)]


def _without_keys(around: Around) -> Rules:
    seen = around.seen
    assert seen is not None
    then, now = (state.contents("b", "keys") for state in (around.start, around.now))
    empty = now.all(lambda b: implies(seen.has(b), now.at(b).is_empty))
    same = now.all(lambda b: disjunction((seen.has(b), same_keys(then.at(b), now.at(b)))))
    return [("keys of what is done", empty), ("keys of others", same)]


def same_keys(one: Value, other: Value) -> Formula:
    return one.keys.term == other.keys.term


def _cached(around: Around) -> Rules:
    """Blocks that are done have the one key that they were given, others those that they had."""
    names, seen, universe = (
        around.now.names,
        around.seen,
        around.start.contents("b", "keys").universe,
    )
    assert seen is not None
    blocks, hashes, group = names["blocks"], names["hashes"], names["kv_cache_group_id"]
    assert isinstance(blocks, OncePlaces)
    assert isinstance(hashes, Places)
    then, now = (state.contents("b", "keys") for state in (around.start, around.now))

    def of_block(block: z3.ExprRef) -> Formula:
        number = blocks.number_of(block)
        done = conjunction((seen.has(number), blocks.at(number) == block))
        key = universe.pair(hashes.at(number), group, KEY)
        only = now.at(block).all(lambda k: iff(now.at(block).has(k), k == key))
        same = same_keys(then.at(block), now.at(block))
        return conjunction((implies(done, only), disjunction((done, same))))

    return [("keys as cached", now.all(of_block))]


def _to_be_told(play: Play, around: Around) -> Rules:
    """Events tell all but of the keys that blocks which are done were given."""
    names, seen = around.now.names, around.seen
    assert seen is not None
    hashes, group = names["hashes"], names["kv_cache_group_id"]
    assert isinstance(hashes, OncePlaces)

    def of_key(key: z3.ExprRef) -> Formula:
        block_hash, of_group = play.universe.parts(key)
        number = hashes.number_of(block_hash)
        to_tell = z3.And(of_group == group, seen.has(number), hashes.at(number) == block_hash)
        return _untold(play, around.now, key) == z3.If(to_tell, 1, 0)

    return _where_told(play, around, of_key)


def _told(play: Play, around: Around) -> Rules:
    """Events tell of what is no longer found, if they told of it before."""

    def of_key(key: z3.ExprRef) -> Formula:
        return _untold(play, around.now, key) == _untold(play, around.start, key)

    return _where_told(play, around, of_key)


def _untold(play: Play, state: State, key: z3.ExprRef) -> z3.ArithRef:
    """How many more blocks a key finds than events tell."""
    events, found = (state.contents("m", name) for name in ("kv_event_queue", FOUND))
    told = play.words.count_told(events, state.contents("g", "replayed"), key)
    return play.words.count_found(found, key) - told


def _where_told(play: Play, around: Around, of_key: Callable[[z3.ExprRef], Formula]) -> Rules:
    tells = around.now.attribute("m", "enable_kv_cache_events")
    return [("events to come", implies(tells, play.universe.all(KEY, of_key)))]


# who references blocks

Counted = Callable[[z3.ArithRef, Formula], z3.ArithRef]
"""References of a block from those it had, and whether it is done."""


def _referenced(around: Around, counted: Counted) -> Rules:
    then, now = (state.contents("b", "ref_cnt") for state in (around.start, around.now))
    null, seen = around.now.contents("b", "is_null"), around.seen
    assert seen is not None

    def of_block(block: z3.ExprRef) -> Formula:
        done = conjunction((seen.has(block), negated(null.at(block).term)))
        return now.at(block).term == counted(then.at(block).term, done)

    return [("references", now.all(of_block))]


def _released(around: Around) -> Rules:
    """What is released: the blocks that are done and that nobody references any more, in order."""
    released = around.now.container(around.now.names["released"])
    refs, null = (around.now.contents("b", name) for name in ("ref_cnt", "is_null"))
    seen, place = around.seen, around.place
    assert seen is not None
    assert place is not None

    def of_block(block: z3.ExprRef) -> Formula:
        unheld = (negated(null.at(block).term), refs.at(block).term == 0)
        return iff(released.has(block), conjunction((seen.has(block), *unheld)))

    return [
        ("what is released", released.all(of_block)),
        ("released in order", _ordered(released, released.has, released.has, place)),
    ]


# the queue

Place = Callable[[z3.ExprRef], z3.ArithRef]


def _ordered(
    whole: Value,
    one: Callable[[z3.ExprRef], Formula],
    other: Callable[[z3.ExprRef], Formula],
    by: Place | None = None,
) -> Formula:
    """The condition that in `whole` every `one` stands before every `other`; where `by` is given,
    only of pairs that it puts in that order."""

    def of_both(a: z3.ExprRef, b: z3.ExprRef) -> Formula:
        earlier = True if by is None else by(a) < by(b)
        return implies(conjunction((one(a), other(b), earlier)), whole.place(a) < whole.place(b))

    return whole.all(lambda a: whole.all(lambda b: of_both(a, b)))


def _queues(around: Around) -> tuple[Value, Value]:
    then, now = (state.contents("q", "_blocks") for state in (around.start, around.now))
    return then, now


def _stays(then: Value, now: Value, stays: Callable[[z3.ExprRef], Formula]) -> Rules:
    """What stays in the queue stands where it did; all are there by their ids."""
    same = now.all(lambda b: implies(stays(b), now.place(b) == then.place(b)))
    by_id = now.all(lambda b: implies(now.has(b), now.at(b).term == b))
    return [("places in the queue", same), ("queued by id", by_id)]


def _left_out(around: Around) -> Rules:
    """What is done is not in the queue any more."""
    then, now = _queues(around)
    seen = around.seen
    assert seen is not None
    rest = now.all(lambda b: iff(now.has(b), conjunction((then.has(b), negated(seen.has(b))))))
    return [("what is left in the queue", rest), *_stays(then, now, now.has)]


def _taken(play: Play, around: Around) -> Rules:
    """What is taken stood in the queue in this order, and before what is left of it."""
    then, now = _queues(around)
    taken, turns = around.now.container(around.now.names["blocks"]), around.turns
    assert turns is not None

    def of_block(block: z3.ExprRef) -> Formula:
        once = negated(conjunction((taken.has(block), now.has(block))))
        either = iff(then.has(block), disjunction((taken.has(block), now.has(block))))
        return conjunction((once, either))

    return [
        ("taken or left", now.all(of_block)),
        *_stays(then, now, now.has),
        ("taken in order", _ordered(then, taken.has, taken.has, taken.place)),
        ("taken before what is left", _ordered(then, taken.has, now.has)),
        ("as many are taken", play.words.number(now) + turns == play.words.number(then)),
    ]


def _behind(around: Around) -> Rules:
    """What is done stands after what stood there, in its order."""
    then, now = _queues(around)
    seen, place = around.seen, around.place
    assert seen is not None
    return [
        ("queued too", now.all(lambda b: iff(now.has(b), disjunction((then.has(b), seen.has(b)))))),
        *_stays(then, now, then.has),
        ("new behind old", _ordered(now, then.has, _new(then, seen))),
        ("new in order", _ordered(now, _new(then, seen), _new(then, seen), place)),
    ]


def _new(then: Value, seen: Value) -> Callable[[z3.ExprRef], Formula]:
    return lambda block: conjunction((seen.has(block), negated(then.has(block))))


def _in_front(around: Around) -> Rules:
    """What is done stands before what stood there, the last that was done first."""
    then, now = _queues(around)
    seen, place = around.seen, around.place
    assert seen is not None
    assert place is not None

    def old(block: z3.ExprRef) -> Formula:
        return conjunction((then.has(block), negated(seen.has(block))))

    return [
        ("queued too", now.all(lambda b: iff(now.has(b), disjunction((then.has(b), seen.has(b)))))),
        *_stays(then, now, old),
        ("new before old", _ordered(now, seen.has, old)),
        ("new in order", _ordered(now, seen.has, seen.has, lambda block: -place(block))),
    ]
