"""The states of a small table of entries, by running its class: calls in every order that a tier
may make, each judged by the contracts' own functions.
"""

import copy
import itertools
from collections.abc import Collection, Hashable, Iterator, Mapping
from dataclasses import dataclass, fields
from typing import Any

from cacheproof.proofs.witness import recorded
from cacheproof.proofs.witness.recorded import Found, change_of, told
from cacheproof.spec.entry_table import TableCall, TableState
from cacheproof.spec.entry_table_ghost import TableGhost
from cacheproof.spec.registry import Contract, by_id

SAFETY = "TB-8"
ENTRIES_MAX = 3
PINS_MAX = 2
ATTRIBUTES = ("capacity", "free", "evictable", "sizes", "pins", "idle", "order")
TELLS = {"publish": ("end", "use"), "abandon": ("end",), "unpin": ("unpin",)}
TELLS_GRANTED = {"begin": ("begin",), "pin": ("pin", "use")}
"""What a call tells the ghost; and what it does where the answer is True."""


@dataclass(frozen=True)
class TableSetting:
    """A table of some capacity, and how many entries there are to put in it."""

    name: str
    entries: int
    capacity: int


SETTINGS = (
    TableSetting("two entries", 2, 2),
    TableSetting("three entries", 3, 2),
    TableSetting("more room", 3, 3),
)
"""Entries are called by a letter and their number."""


@dataclass(frozen=True)
class TableAsked:
    """One call: its operation, the entry, and the size that is asked for; 0 for none."""

    operation: str
    entry: str = ""
    size: int = 0

    def __str__(self) -> str:
        given = (self.entry, str(self.size) if self.size else "")
        return f"{self.operation}({', '.join(filter(None, given))})"


Exploration = recorded.SettingExploration[TableSetting, TableAsked]


@dataclass(frozen=True)
class _State:
    """A table, what its callers have done, and the calls that led there."""

    table: Any
    ghost: TableGhost
    path: tuple[TableAsked, ...]

    @property
    def found(self) -> Found:
        """Every attribute, as the proof has them."""
        of_table = {("m", name): copy.copy(getattr(self.table, name)) for name in ATTRIBUTES}
        told = {
            ("g", one.name): copy.copy(getattr(self.ghost, one.name)) for one in fields(TableGhost)
        }
        return {**of_table, **told}

    @property
    def seen(self) -> TableState:
        """The table's state as contracts see it."""
        table = self.table
        return TableState(
            table.capacity,
            table.free,
            table.evictable,
            dict(table.sizes),
            dict(table.pins),
            dict(table.idle),
        )


def explore(
    table_class: type, setting: TableSetting, rules: Collection[str], calls_max: int
) -> Exploration:
    """What comes of tables of a class in a setting, as `Exploration.go_through` says. `rules` are
    the ids of the contracts that are asserted, each until it is broken."""
    exploration = Exploration(setting)
    judged = [by_id(rule) for rule in rules]

    def attempt(before: _State | None, asked: TableAsked) -> _State | None:
        return _attempted(table_class, exploration, before, asked, judged)

    exploration.go_through(
        TableAsked("init"),
        lambda state: _offered(state, setting),
        attempt,
        lambda state: _key(state.found, setting),
        calls_max,
        SAFETY,
    )
    return exploration


def _attempted(
    table_class: type,
    exploration: Exploration,
    before: _State | None,
    asked: TableAsked,
    judged: Collection[Contract],
) -> _State | None:
    """The state after a call, which is judged; None where it raises."""
    words = told(before, asked)
    try:
        after, answer = _called(table_class, exploration.setting, before, asked)
        found, seen = after.found, after.seen
    except Exception as error:
        if any(rule.id == SAFETY for rule in judged):
            why = f"raises {type(error).__name__}: {error}"
            exploration.broken.setdefault(SAFETY, f"{words}: {why}")
        return None
    call = TableCall(asked.operation, asked.entry, asked.size, answer is True, "")
    values = {"s": seen, "post": seen, "g": after.ghost, "c": call}
    if before is not None:
        values["pre"] = before.seen
    for rule in judged:
        if rule.id not in exploration.broken and _judges(rule, asked.operation):
            given = {name: values[name] for name in rule.parameters}
            if not _holds(rule, given):
                exploration.broken[rule.id] = f"{words}: {_why(rule, given)}"
    was = None if before is None else before.found
    exploration.record(_kind(was, asked, answer, found), asked, answer, was or {}, found)
    # moments grow without end; by their ranks there are finitely many states
    return _State(after.table, _without_history(after.ghost, seen), after.path)


def _judges(rule: Contract, operation: str) -> bool:
    return rule.kind != "transition" or operation in rule.calls


def _holds(rule: Contract, given: Mapping[str, object]) -> bool:
    """Whether a contract holds; one that cannot even be asked, for want of a key, does not."""
    try:
        return rule.predicate(**given)
    except KeyError:
        return False


def _why(rule: Contract, given: Mapping[str, object]) -> str:
    try:
        return rule.explain(**given)
    except KeyError as error:
        return f"nothing is known of {error}"


def _offered(state: _State, setting: TableSetting) -> Iterator[TableAsked]:
    """The calls that a caller may make."""
    for number in range(setting.entries):
        entry = f"h{number}"
        if entry not in state.table.sizes:
            yield from (TableAsked("begin", entry, size) for size in range(1, setting.capacity + 2))
        if entry in state.ghost.writing:
            yield TableAsked("publish", entry)
            yield TableAsked("abandon", entry)
        if state.ghost.pins.get(entry, 0) < PINS_MAX:
            yield TableAsked("pin", entry)
        if entry in state.ghost.pins:
            yield TableAsked("unpin", entry)
        yield TableAsked("remove", entry)
        yield TableAsked("contains", entry)
    yield TableAsked("clear")


def _called(
    table_class: type, setting: TableSetting, before: _State | None, asked: TableAsked
) -> tuple[_State, object]:
    """The state after a call, and its answer."""
    if before is None:
        return _State(table_class(setting.capacity), TableGhost(), (asked,)), None
    table, ghost = copy.deepcopy(before.table), copy.deepcopy(before.ghost)
    given = [asked.entry] if asked.entry else []
    answer = getattr(table, asked.operation)(*given, *([asked.size] if asked.size else []))
    granted = TELLS_GRANTED.get(asked.operation, ()) if answer is True else ()
    for name in (*TELLS.get(asked.operation, ()), *granted):
        getattr(ghost, name)(asked.entry)
    return _State(table, ghost, (*before.path, asked)), answer


def _without_history(ghost: TableGhost, table: TableState) -> TableGhost:
    """The ghost with moments of use replaced by the ranks of the entries that are there."""
    there = sorted((one for one in ghost.used if one in table.size), key=ghost.used.__getitem__)
    used = {entry: rank for rank, entry in enumerate(there, 1)}
    return TableGhost(set(ghost.writing), dict(ghost.pins), used, len(used))


# which states and calls are alike


def _key(found: Found, setting: TableSetting) -> Hashable:
    """A key that is equal for states that differ in nothing but names."""
    names = [f"h{number}" for number in range(setting.entries)]
    return min(
        str([_renamed(one, dict(zip(names, others, strict=True))) for one in found.values()])
        for others in itertools.permutations(names)
    )


def _renamed(found: object, names: Mapping[str, str]) -> object:
    """A value with its entries renamed; a mapping as its pairs, in their order where it has one."""
    if isinstance(found, set):
        return sorted(names[one] for one in found)
    if isinstance(found, dict):
        pairs = [(names[key], one) for key, one in found.items()]
        return pairs if type(found) is not dict else sorted(pairs)
    return found


def _kind(was: Found | None, asked: TableAsked, answer: object, after: Found) -> Hashable:
    """What makes a call of another kind than those before: where its entry stood, and who else was
    idle; what it answers, and by how much it changed what."""
    if was is None:
        return "init"
    stood = [asked.entry in one for one in was.values() if isinstance(one, dict | set)]
    pins = was["m", "pins"].get(asked.entry, 0)
    changed = [change_of(one, was[name]) for name, one in after.items() if name[0] == "m"]
    others = tuple(one in was["m", "idle"] for one in was["m", "order"])
    return asked.operation, tuple(stood), pins, others, answer is True, tuple(changed)
