"""What only proofs need to know of a table of entries: beside the contracts, and around its loops.

Each rule is read as its text stands, as a contract is; none is ever called. `m` is the table by its
attributes, `s` as contracts look at it, `g` what its callers have done, `pre` and `post` the table
before a call and midway.
"""

from collections.abc import Callable, Mapping, Sequence

import z3

from cacheproof.proofs.logic import conjunction, implies, negated
from cacheproof.proofs.symbolic.deciding.play import Play
from cacheproof.proofs.symbolic.reading.ghost_loops import Rules, members_of
from cacheproof.proofs.symbolic.rules.rules import auxiliary
from cacheproof.proofs.symbolic.values.records import Record
from cacheproof.proofs.symbolic.values.state import Around, Loop, State
from cacheproof.reference.encoder_connector.entry_table import EntryTable
from cacheproof.spec.entry_table import TableCall, TableState
from cacheproof.spec.entry_table_ghost import TableGhost


def sizes_are_positive(s: TableState) -> bool:
    """An entry takes some room."""
    return all(s.size[h] >= 1 for h in s.size)


def found_is_finished(m: EntryTable) -> bool:
    """What can be found is written, and of its size."""
    return all(h in m.pins and m.order[h] == m.sizes[h] for h in m.order)


def idle_is_found(m: EntryTable) -> bool:
    """What may be evicted can be found."""
    return all(h in m.order for h in m.idle)


def pins_are_counted(g: TableGhost) -> bool:
    """Who has an entry pinned has it so once at least."""
    return all(g.pins[h] >= 1 for h in g.pins)


def uses_are_past(g: TableGhost) -> bool:
    """What was used was so before now, or is what was used last."""
    return all(g.used[h] <= g._clock for h in g.used)


def found_was_used(m: EntryTable, g: TableGhost) -> bool:
    """What can be found was used once."""
    return all(h in g.used for h in m.order)


def found_in_order(
    m: EntryTable, g: TableGhost, stands_before: Callable[[Mapping[str, int], str, str], bool]
) -> bool:
    """Who stands earlier was used earlier."""
    return all(
        all(not stands_before(m.order, e, k) or g.used[e] < g.used[k] for k in m.order)
        for e in m.order
    )


AUXILIARIES = [
    auxiliary(one)
    for one in (
        sizes_are_positive,
        found_is_finished,
        idle_is_found,
        pins_are_counted,
        uses_are_past,
        found_was_used,
        found_in_order,
    )
]


# around loops


def idle_stays(pre: TableState, post: TableState) -> bool:
    """What is idle midway was so before."""
    return all(h in pre.idle and pre.idle[h] == post.idle[h] for h in post.idle) and all(
        h in pre.size for h in post.size
    )


def room_can_be_made(post: TableState, c: TableCall) -> bool:
    """What is free and what may be evicted is enough."""
    return c.need <= post.free + post.evictable


def evicted_so_far(pre: TableState, post: TableState, g: TableGhost, c: TableCall) -> bool:
    """What TB-5 says, before the room is taken."""
    return all(
        all(g.used[e] < g.used[k] for k in post.idle)
        and (
            post.free - c.need < pre.idle[e]
            or not all(g.used[k] <= g.used[e] for k in pre.idle if k not in post.size)
        )
        for e in pre.idle
        if e not in post.size
    )


_CARRIED = [auxiliary(one) for one in (idle_stays, room_can_be_made, evicted_so_far)]


def loops(play: Play) -> Mapping[tuple[str, str], Sequence[Loop]]:
    """The loops of a table, by owner and method."""

    def evicting(around: Around) -> Rules:
        names, start = play.names(around.now), play.names(around.start)
        call = Record({"need": around.now.names["size"]})
        seen = {"pre": start["s"], "post": names["s"], "g": names["g"], "c": call}
        return play.invariants(around.now, taken=around.taken) + [
            (one.id, play.read(one, seen, taken=around.taken)) for one in _CARRIED
        ]

    def idle(state: State) -> z3.ArithRef:
        return play.words.number(play.names(state)["s"].container("idle"))

    def passing(around: Around) -> Rules:
        assert around.seen is not None
        seen, waiting = around.seen, around.now.contents("m", "idle")
        none = seen.all(lambda h: implies(seen.has(h), negated(waiting.has(h))))
        return [("none of the earlier is idle", none)]

    def clearing(around: Around) -> Rules:
        assert around.seen is not None
        seen, order, members = around.seen, around.now.contents("m", "order"), members_of(around)
        todo = members.all(
            lambda h: implies(conjunction((members.has(h), negated(seen.has(h)))), order.has(h))
        )
        return [*play.invariants(around.now, taken=around.taken), ("entries to come", todo)]

    return {
        ("m", "begin"): [Loop(evicting, idle)],
        ("m", "_first_idle"): [Loop(passing)],
        ("m", "clear"): [Loop(clearing)],
    }
