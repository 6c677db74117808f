"""Calls of a block pool, as a KV cache manager makes them: what it promises, and what each did."""

from collections.abc import Callable, Iterator
from functools import partial

import z3

from cacheproof.proofs.logic import Formula, conjunction, disjunction, iff, implies, negated
from cacheproof.proofs.symbolic.deciding.play import Play
from cacheproof.proofs.symbolic.deciding.subject import CallEnd, Operation
from cacheproof.proofs.symbolic.reading.block_pool_readings import (
    HashedRequest,
    OncePlaces,
    Places,
)
from cacheproof.proofs.symbolic.reading.containers import in_order
from cacheproof.proofs.symbolic.values.records import Denoted, Record
from cacheproof.proofs.symbolic.values.state import Empty, Lazy, State
from cacheproof.proofs.symbolic.values.values import (
    BLOCK,
    GROUP,
    HASH,
    INT,
    KEY,
    EventsOf,
    Leaf,
    SequenceOf,
    SetOf,
    Value,
)

# what an event did


def end_of(
    play: Play,
    before: State,
    after: State,
    *,
    first: Value | None = None,
    last: Value | None = None,
    taken: Value | None = None,
    waiting: Value | None = None,
    may: Value | None = None,
    must: Value | None = None,
    **known: Denoted,
) -> CallEnd:
    """Where a call ended. What is not said is nothing: no block was given back, taken or told to
    lose its hashes. `waiting` is the queue that those who take found."""
    then, now = (play.names(state)["s"] for state in (before, after))
    nothing = play.universe.empty(SequenceOf(BLOCK))
    nobody = play.universe.empty(SetOf(BLOCK))
    lost, defined = play.once(_lost, then.container("hashes"), now.container("hashes"))
    seen = {
        "before": then.container("queue"),
        "after": now.container("queue"),
        "first": first or nothing,
        "last": last or nothing,
        "taken": taken or nothing,
        "waiting": waiting or then.container("queue"),
        "held": then.container("held"),
        "lost": lost,
        "may": may or must or nobody,
        "must": must or nobody,
        "hashes": now.container("hashes"),
        **_follows(play, after, play.names(after)["m"].container("kv_event_queue")),
        **known,
    }
    end = after.assuming(defined)
    return CallEnd(end, {**play.names(end), "w": Record(seen)})


def _lost(play: Play, then: Value, now: Value) -> tuple[Value, Formula]:
    """The blocks that lost a hash and got none in its place, and what says so."""
    lost = play.universe.fresh(SetOf(BLOCK), "lost")

    def of_block(block: z3.ExprRef) -> Formula:
        had, has = then.at(block), now.at(block)
        subset = had.all(lambda k: implies(has.has(k), had.has(k)))
        fewer = had.some(lambda k: conjunction((had.has(k), negated(has.has(k)))))
        return iff(lost.has(block), conjunction((then.has(block), subset, fewer)))

    return lost, lost.all(of_block)


def holding(play: Play, state: State, change: Callable[[z3.ExprRef], z3.ArithRef]) -> State:
    """The state in which blocks stand in more tables, or in fewer, by a `change`."""
    held = state.contents("g", "held")
    now = play.universe.fresh(held.kind, "held")

    def of_block(block: z3.ExprRef) -> Formula:
        count = z3.If(held.has(block), held.at(block).term, 0) + change(block)
        stands = implies(now.has(block), now.at(block).term == count)
        return conjunction((now.has(block) == (count != 0), stands))

    return play.machine.become("g", "held", now, state.assuming(held.all(of_block)))


def described(
    play: Play, state: State, holds: Callable[[z3.ExprRef], Formula]
) -> tuple[State, Value]:
    """The blocks of which something holds."""
    found = play.universe.fresh(SetOf(BLOCK), "such")
    return state.assuming(found.all(lambda b: iff(found.has(b), holds(b)))), found


# calls, as a manager makes them


def begin(play: Play, state: State) -> Iterator[CallEnd]:
    """A pool of one block at least, that nobody holds anything of."""
    blocks, hash_size = z3.Int("num_gpu_blocks"), z3.Int("hash_block_size")
    caches, tells = z3.Bools("enable_caching enable_kv_cache_events")
    state = play.machine.emptied(state, [("g", "held"), ("g", "replayed")]).assuming(
        blocks >= 1, hash_size >= 1
    )
    given = [
        blocks,
        caches,
        hash_size,
        tells,
        *(play.subject.constants["m", name] for name in ("metrics_collector", "semantics")),
    ]
    for built, _ in play.machine.call("m", "__init__", given, state):
        after = built.snapshot(anew=True)
        yield CallEnd(after, play.names(after))


def count(play: Play, state: State) -> Iterator[CallEnd]:
    """What the pool says of its free blocks is what contracts take it to say."""
    for after, answer in play.machine.call("m", "get_num_free_blocks", [], state):
        end = end_of(play, state, after)
        seen = {**play.names(after)["s"].fields, "num_free": answer}
        yield CallEnd(end.after, {**end.names, "s": Record(seen)})


def new(play: Play, state: State) -> Iterator[CallEnd]:
    """So many blocks are free."""
    many = z3.Int("num_blocks")
    queue = play.names(state)["s"].container("queue")
    play.given = {"num_blocks": many}
    state = state.assuming(many >= 0, many <= play.words.number(queue))
    for after, answer in play.machine.call("m", "get_new_blocks", [many], state):
        none = isinstance(answer, Empty)
        taken = play.universe.empty(SequenceOf(BLOCK)) if none else after.container(answer)
        held = holding(play, after, partial(_one_more, taken))
        yield end_of(play, state, held, taken=taken, must=taken.keys)


def _one_more(blocks: Value, block: z3.ExprRef) -> z3.ArithRef:
    return z3.If(blocks.has(block), 1, 0)


def touch(play: Play, state: State) -> Iterator[CallEnd]:
    """Each block is given once, but for the null block."""
    state, given, lazy, null = _given(play, state)
    queue = play.names(state)["s"].container("queue")
    for after, _ in play.machine.call("m", "touch", [lazy], state):
        more = holding(play, after, lambda b: z3.If(_is_one(given, null, b), 1, 0))
        more, rest = described(
            play, more, lambda b: conjunction((queue.has(b), negated(given.has(b))))
        )
        yield end_of(play, state, more, waiting=queue.filtered(rest.term))


def free(play: Play, state: State) -> Iterator[CallEnd]:
    """Each block is given once, but for the null block, and somebody holds it."""
    state, given, lazy, null = _given(play, state)
    s = play.names(state)["s"]
    held, hashes = s.container("held"), s.container("hashes")
    state = state.assuming(given.all(lambda b: implies(_is_one(given, null, b), held.has(b))))
    for after, _ in play.machine.call("m", "free_blocks", [lazy], state):
        less = holding(play, after, lambda b: z3.If(_is_one(given, null, b), -1, 0))

        def goes(block: z3.ExprRef, found: bool) -> Formula:
            unheld = conjunction((_is_one(given, null, block), held.at(block).term == 1))
            empty = hashes.at(block).is_empty
            return conjunction((unheld, negated(empty) if found else empty))

        less, first = described(play, less, lambda b: goes(b, False))
        less, last = described(play, less, lambda b: goes(b, True))
        kinds = (given.filtered(one.term) for one in (first, last))
        yield end_of(play, state, less, **dict(zip(("first", "last"), kinds, strict=True)))


def _given(play: Play, state: State) -> tuple[State, Value, Lazy, z3.ExprRef]:
    """Blocks of the pool in some order, each once, but for the null block, which is the last of
    these."""
    given = play.universe.fresh(SequenceOf(BLOCK), "given")
    m = play.names(state)["m"]
    blocks, null = m.container("blocks"), m.fields["null_block"]
    state = state.assuming(
        *in_order(given), given.all(lambda b: implies(given.has(b), blocks.has(b)))
    )
    play.given = {"blocks": given}
    lazy = Lazy(given.keys, place=given.place, again=lambda b: b == null)
    return state, given, lazy, null


def _is_one(given: Value, null: z3.ExprRef, block: z3.ExprRef) -> Formula:
    return conjunction((given.has(block), block != null))


def evict(play: Play, state: State) -> Iterator[CallEnd]:
    """Blocks are named that the pool has, in any order, as often as one likes."""
    named = play.universe.fresh(SetOf(BLOCK), "named")
    play.given = {"block_ids": named}
    names = play.names(state)
    blocks, refs = names["m"].container("blocks"), names["s"].container("refs")
    state = state.assuming(named.all(lambda b: implies(named.has(b), blocks.has(b))))
    state, must = described(play, state, lambda b: conjunction((named.has(b), refs.has(b))))
    for after, _ in play.machine.call(
        "m", "evict_blocks", [Lazy(named, again=lambda _: True)], state
    ):
        yield end_of(play, state, after, must=must)


def reset(play: Play, state: State) -> Iterator[CallEnd]:
    refs = play.names(state)["s"].container("refs")
    for after, answer in play.machine.call("m", "reset_prefix_cache", [], state):
        must = refs.keys if answer is True else None
        yield end_of(play, state, after, must=must, done=answer)


def take_events(play: Play, state: State) -> Iterator[CallEnd]:
    """Who follows the events replays what it takes."""
    for after, answer in play.machine.call("m", "take_events", [], state):
        nothing = play.universe.empty(EventsOf(KEY))
        events = nothing if isinstance(answer, Empty) else after.container(answer)
        known = after.contents("g", "replayed")
        told = play.machine.become("g", "replayed", _replayed(play, known, events), after)
        yield end_of(play, state, told)
        yield end_of(play, state, told, **_follows(play, told, nothing))


def _replayed(play: Play, known: Value, events: Value) -> Value:
    """What a follower knows when it has replayed events: keys that find a block at least."""
    key = play.universe.constant(KEY, "key")
    count = play.words.count_told(events, known, key)
    terms = z3.Lambda([key], count > 0), z3.Lambda([key], count)
    return Value(play.universe, known.kind, terms)


def _follows(play: Play, state: State, events: Value) -> dict[str, Value]:
    """What a follower knows when it has replayed these events too, and how many blocks each key
    finds. Where nothing is told nobody follows."""
    names = play.names(state)
    told = names["g"].container("replayed"), events, names["m"].fields["enable_kv_cache_events"]
    return play.once(_followed, names["s"].container("found"), *told)


def _followed(
    play: Play, found: Value, replayed: Value, events: Value, tells: z3.BoolRef
) -> dict[str, Value]:
    replayed = _replayed(play, replayed, events)
    key = play.universe.constant(KEY, "key")
    counts = z3.Lambda([key], play.words.number(found.at(key)))
    there = Value(play.universe, replayed.kind, (found.keys.term, counts))
    return {"replayed": replayed.unless(tells, there), "found": there}


def find(play: Play, state: State) -> Iterator[CallEnd]:
    """Groups are asked for in any order, as often as one likes."""
    groups = play.universe.fresh(SetOf(GROUP), "groups")
    block_hash = play.universe.constant(HASH, "hash")
    play.given = {"hash": block_hash, "groups": groups}
    given = [block_hash, Lazy(groups, again=lambda _: True)]
    for after, _ in play.machine.call("m", "get_cached_block", given, state):
        yield end_of(play, state, after)


def cache(play: Play, state: State) -> Iterator[CallEnd]:
    yield from _cache(play, state, masked=False)


def cache_masked(play: Play, state: State) -> Iterator[CallEnd]:
    yield from _cache(play, state, masked=True)


def _cache(play: Play, state: State, *, masked: bool) -> Iterator[CallEnd]:
    """Only where caching is on. The table and the hashes reach as far as what is to be cached; no
    hash stands twice in it, and no block but the null block; no block has the key already."""
    universe, names = play.universe, play.names(state)
    m, keys = names["m"], names["b"].container("keys")
    start, stop, size = z3.Ints("num_cached_blocks num_full_blocks block_size")
    group = universe.constant(GROUP, "group")
    blocks, hashes = _places(play, "table", BLOCK), _places(play, "hashes", HASH)
    play.given = {
        "num_cached_blocks": start,
        "num_full_blocks": stop,
        "group": group,
        "table": blocks,
        "hashes": hashes,
    }
    mask = Places(z3.Function("mask", z3.IntSort(), z3.BoolSort()), stop - start)
    if masked:
        play.given["mask"] = mask

    def promised(number: z3.ArithRef) -> Formula:
        block, block_hash = blocks.at(number), hashes.at(number)
        inside = conjunction((start <= number, number < stop))
        known = conjunction((m.container("blocks").has(block), blocks.number_of(block) == number))
        wanted = mask.at(number - start) if masked else True
        key = universe.pair(block_hash, group, KEY)
        new = implies(wanted, negated(keys.at(block).has(key)))
        null = block == m.fields["null_block"]
        one = conjunction((hashes.number_of(block_hash) == number, disjunction((null, known))))
        return implies(inside, conjunction((one, disjunction((null, new)))))

    state = state.assuming(
        m.fields["enable_caching"],
        start >= 0,
        stop <= blocks.length,
        stop <= hashes.length,
        universe.all(INT, promised),
        *_bounded(play, stop),
    )
    given = [HashedRequest(hashes), blocks, start, stop, size, group, mask if masked else None]
    for after, _ in play.machine.call("m", "cache_full_blocks", given, state):
        yield end_of(play, state, after)


def cache_partial(play: Play, state: State) -> Iterator[CallEnd]:
    """Only where caching is on, up to a hash that the request has."""
    names = play.names(state)
    m = names["m"]
    block = play.universe.constant(BLOCK, "block")
    tokens, size = z3.Ints("num_tokens block_size")
    group, hashes = play.universe.constant(GROUP, "group"), _places(play, "hashes", HASH)
    play.given = {"block": block, "num_tokens": tokens, "group": group, "hashes": hashes}
    state = state.assuming(
        m.fields["enable_caching"],
        m.container("blocks").has(block),
        tokens >= m.fields["hash_block_size"],
        tokens / m.fields["hash_block_size"] >= 1,
        tokens / m.fields["hash_block_size"] <= hashes.length,
    )
    given = [HashedRequest(hashes), block, tokens, group, size]
    for after, _ in play.machine.call("m", "cache_partial_block", given, state):
        yield end_of(play, state, after)


def _places(play: Play, name: str, leaf: Leaf) -> OncePlaces:
    sort = play.universe.sort(leaf)
    return OncePlaces(
        z3.Function(name, z3.IntSort(), sort),
        z3.Int(f"{name} length"),
        z3.Function(f"number in {name}", sort, z3.IntSort()),
    )


def _bounded(play: Play, stop: z3.ArithRef) -> list[Formula]:
    """Among a few elements, few numbers."""
    most = play.universe.elements
    return [] if most is None else [stop <= most]


OPERATIONS = (
    Operation("init", begin, "__init__", begins=True),
    Operation("count", count, "get_num_free_blocks"),
    Operation("find", find, "get_cached_block"),
    Operation("new", new, "get_new_blocks"),
    Operation("touch", touch, "touch"),
    Operation("free", free, "free_blocks"),
    Operation("evict", evict, "evict_blocks"),
    Operation("reset", reset, "reset_prefix_cache"),
    Operation("take events", take_events, "take_events"),
    Operation("cache", cache, "cache_full_blocks"),
    Operation("cache masked", cache_masked, "cache_full_blocks"),
    Operation("cache partial", cache_partial, "cache_partial_block"),
)
