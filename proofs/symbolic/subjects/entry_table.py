"""The table of entries: what a tier asks of it, in the words of its own text.

The table is owner "m"; "g" is spec's ghost of its callers, whose own text is run beside it. What a
caller owes the table is said at each operation.
"""

import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

import z3

from cacheproof.proofs.logic import Formula, negated
from cacheproof.proofs.symbolic.deciding.play import Play
from cacheproof.proofs.symbolic.deciding.subject import (
    Aggregate,
    CallEnd,
    Names,
    Operation,
    Subject,
)
from cacheproof.proofs.symbolic.reading.source import source_of
from cacheproof.proofs.symbolic.rules.rules import of_contract
from cacheproof.proofs.symbolic.subjects.calls import Assumption
from cacheproof.proofs.symbolic.subjects.entry_table_rules import AUXILIARIES, loops
from cacheproof.proofs.symbolic.values.records import Denoted, Record
from cacheproof.proofs.symbolic.values.state import Operand, State
from cacheproof.proofs.symbolic.values.values import IDENTIFIER, INT, MapOf, SetOf, Type
from cacheproof.proofs.symbolic.values.words import Words
from cacheproof.reference.encoder_connector.entry_table import EntryTable
from cacheproof.spec import entry_table as contracts_of_component
from cacheproof.spec.entry_table import table_raises_nothing
from cacheproof.spec.entry_table_ghost import TableGhost
from cacheproof.spec.registry import by_id, contracts

REFERENCE = "reference"
CLASS = "EntryTable"
COMPONENT = contracts_of_component.COMPONENT
SAFETY = next(one.id for one in contracts() if one.predicate is table_raises_nothing)
STATE = ("TB-1", "TB-2", "TB-3")
OF_BEGIN = ("TB-4", "TB-5")
PROMISES: tuple[tuple[str, tuple[Assumption, ...]], ...] = (("a name is given once", ()),)
NOBODY = "nobody"
SIZES = MapOf(IDENTIFIER, INT)
TYPES: Mapping[tuple[str, str], Type] = {
    ("m", "capacity"): INT,
    ("m", "free"): INT,
    ("m", "evictable"): INT,
    ("m", "sizes"): SIZES,
    ("m", "pins"): MapOf(IDENTIFIER, INT),
    ("m", "idle"): SIZES,
    ("m", "order"): MapOf(IDENTIFIER, INT, ordered=True),
    ("g", "writing"): SetOf(IDENTIFIER),
    ("g", "pins"): MapOf(IDENTIFIER, INT),
    ("g", "used"): MapOf(IDENTIFIER, INT),
    ("g", "_clock"): INT,
}


def view(get: Callable[[str, str], Operand]) -> Names:
    """The records that contracts look at."""
    fields: dict[str, dict[str, Operand]] = {"m": {}, "g": {}}
    for owner, name in TYPES:
        fields[owner][name] = get(owner, name)
    of_table = fields["m"]
    state = {
        "capacity": of_table["capacity"],
        "free": of_table["free"],
        "evictable": of_table["evictable"],
        "size": of_table["sizes"],
        "pins": of_table["pins"],
        "idle": of_table["idle"],
    }
    return {"s": Record(state), **{owner: Record(found) for owner, found in fields.items()}}


# calls, as a tier makes them


def _end(play: Play, before: State, after: State, **known: Denoted) -> CallEnd:
    names = play.names(after)
    call = {"need": 0, "granted": False, "raised": "", **known}
    seen = {"pre": play.names(before)["s"], "post": names["s"], "g": names["g"]}
    return CallEnd(after, {**names, **seen, "c": Record(call)})


def _entry(play: Play) -> z3.ExprRef:
    entry = play.universe.constant(IDENTIFIER, "entry")
    play.arguments.append(entry)
    return entry


def _told(play: Play, state: State, entry: z3.ExprRef, *calls: str) -> State:
    """What the ghost is told, one after the other: it takes one way through each."""
    for name in calls:
        ((state, _),) = play.machine.call("g", name, [entry], state)
    return state


def init(play: Play, state: State) -> Iterator[CallEnd]:
    """A table of some capacity, which nobody has called."""
    capacity = z3.Int("capacity")
    nobody = [place for place in TYPES if place[0] == "g"]
    state = play.machine.emptied(state.assuming(capacity >= 0), nobody)
    for built, _ in play.machine.call("m", "__init__", [capacity], state):
        after = built.snapshot(anew=True)
        yield _end(play, after, after)


def begin(play: Play, state: State) -> Iterator[CallEnd]:
    """Room is asked for an entry that is not there and has one byte at least."""
    state, entry = _of(play, state, NOBODY)
    size, m = z3.Int("size"), play.machine
    state = state.assuming(size >= 1)
    for after, answer in m.asked("begin", [entry, size], state):
        for end, granted in m.split(answer, after):
            told = _told(play, end, entry, "begin") if granted else end
            yield _end(play, state, told, need=size, granted=granted)


def publish(play: Play, state: State) -> Iterator[CallEnd]:
    """An entry that somebody writes is published."""
    state, entry = _of(play, state, "writing")
    for after, _ in play.machine.call("m", "publish", [entry], state):
        yield _end(play, state, _told(play, after, entry, "end", "use"))


def abandon(play: Play, state: State) -> Iterator[CallEnd]:
    """An entry that somebody writes is abandoned."""
    state, entry = _of(play, state, "writing")
    for after, _ in play.machine.call("m", "abandon", [entry], state):
        yield _end(play, state, _told(play, after, entry, "end"))


def pin(play: Play, state: State) -> Iterator[CallEnd]:
    entry, m = _entry(play), play.machine
    for after, answer in m.asked("pin", [entry], state):
        for end, granted in m.split(answer, after):
            ends = [end]
            if granted:
                ends = [
                    _told(play, pinned, entry, "use")
                    for pinned, _ in m.call("g", "pin", [entry], end)
                ]
            for told in ends:
                yield _end(play, state, told, granted=granted)


def unpin(play: Play, state: State) -> Iterator[CallEnd]:
    """An entry of which somebody has a pin is unpinned."""
    state, entry = _of(play, state, "pins")
    for after, _ in play.machine.call("m", "unpin", [entry], state):
        for told, _ in play.machine.call("g", "unpin", [entry], after):
            yield _end(play, state, told)


def remove(play: Play, state: State) -> Iterator[CallEnd]:
    entry = _entry(play)
    for after, _ in play.machine.call("m", "remove", [entry], state):
        yield _end(play, state, after)


def clear(play: Play, state: State) -> Iterator[CallEnd]:
    for after, _ in play.machine.call("m", "clear", [], state):
        yield _end(play, state, after)


def contains(play: Play, state: State) -> Iterator[CallEnd]:
    entry = _entry(play)
    for after, answer in play.machine.asked("contains", [entry], state):
        yield _end(play, state, after, granted=answer)


def _of(play: Play, state: State, having: str) -> tuple[State, z3.ExprRef]:
    """An entry of which the caller keeps what it owes."""
    entry = _entry(play)
    return state.assuming(_owed(play.names(state), entry, having)), entry


def _owed(names: Names, entry: z3.ExprRef, having: str) -> Formula:
    """What a caller owes: somebody writes the entry, or has it pinned; or it is not there."""
    if having == NOBODY:
        return negated(names["s"].container("size").has(entry))
    has: Formula = names["g"].container(having).has(entry)
    return has


OPERATIONS = (
    Operation("init", init, "__init__", begins=True),
    Operation("begin", begin, "begin"),
    Operation("publish", publish, "publish"),
    Operation("abandon", abandon, "abandon"),
    Operation("pin", pin, "pin"),
    Operation("unpin", unpin, "unpin"),
    Operation("remove", remove, "remove"),
    Operation("clear", clear, "clear"),
    Operation("contains", contains, "contains"),
)


# sums


def _aggregates() -> list[Aggregate]:
    def of(name: str) -> Aggregate:
        def share(words: Words, names: Names, key: z3.ExprRef) -> z3.ArithRef:
            sizes = names["s"].container(name)
            return z3.If(sizes.has(key), sizes.at(key).term, 0)

        return Aggregate(IDENTIFIER, lambda w, n: w.total(n["s"].container(name)), share)

    def one_each(words: Words, names: Names, key: z3.ExprRef) -> z3.ArithRef:
        return z3.If(names["s"].container("idle").has(key), 1, 0)

    number = Aggregate(IDENTIFIER, lambda w, n: w.number(n["s"].container("idle")), one_each)
    return [of("size"), of("idle"), number]


def of_reference(assumptions: Sequence[Assumption] = ()) -> Subject:
    """The reference's table, as it should be."""
    return Subject(
        REFERENCE,
        {
            "m": source_of(Path(inspect.getfile(EntryTable)), CLASS),
            "g": source_of(Path(inspect.getfile(TableGhost)), "TableGhost"),
        },
        TYPES,
        {},
        view,
        [*(of_contract(by_id(one)) for one in STATE), *AUXILIARIES],
        {"begin": [of_contract(by_id(one)) for one in OF_BEGIN]},
        OPERATIONS,
        _aggregates(),
        loops,
        SAFETY,
        lambda play: [one(play) for one in assumptions],
        told={"g": ("begin", "end", "pin", "unpin", "use")},
        unrolls=True,
    )
