"""Every state of small tables of entries, each call judged: vLLM's `EmbeddingCache`, and ours.

Breadth first from a new table, through every call that its scheduler may make. A state is what the
table's attributes hold, and what its callers have done; states that differ in nothing but the names
of entries are one.
"""

import copy
import time
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import permutations

from cacheproof.differential.search.explore.explored import ExploredScope, Steps, path_to
from cacheproof.differential.search.explore.search import Explorable
from cacheproof.differential.search.explore.symmetry import StatePart, Symmetry
from cacheproof.differential.targets.host.explorer import SET
from cacheproof.differential.targets.host.protocol import Tree
from cacheproof.differential.targets.reference import ReferenceTarget
from cacheproof.differential.traces.entry_table import (
    Begin,
    Clear,
    Discard,
    Pin,
    PinIfReady,
    Publish,
    Remove,
    TableConfig,
    TableEvent,
    TableHeader,
    Unpin,
)
from cacheproof.differential.traces.outcomes import TableOutcome
from cacheproof.differential.traces.records import StepRecord
from cacheproof.spec.entry_table import (
    COMPONENT,
    TableAtWork,
    TableBlocks,
    TableCall,
    TableState,
)
from cacheproof.spec.entry_table_ghost import TableGhost
from cacheproof.spec.registry import Contract, contracts

TOO_LARGE = "larger than the table"
"""Kind of a break by a call for more than the table holds; it is told apart so that it does not
hide other breaks of the contract."""
Broken = dict[tuple[str, str], "TableBreak"]
"""(contract, kind of break: TOO_LARGE or "") -> the break."""
OF_REGIONS = frozenset({"TB-6", "TB-7"})
"""Contracts of tables that have blocks and say whether they are in use: not the reference's."""


@dataclass(frozen=True)
class TableScope:
    """A table with room for `capacity`; entries of every size up to one more, each with at most
    `pins_max` pins at once."""

    name: str
    entries: str
    capacity: int
    pins_max: int = 2

    @property
    def subject(self) -> str:
        """The component that is explored."""
        return COMPONENT

    @property
    def header(self) -> TableHeader:
        return TableHeader(TableConfig(self.capacity, self.pins_max))

    @property
    def alphabet(self) -> tuple[TableEvent, ...]:
        of_one = (Publish, Discard, Pin, PinIfReady, Unpin, Remove)
        sizes = range(1, self.capacity + 2)
        return (
            *(Begin(entry, size) for entry in self.entries for size in sizes),
            *(event(entry) for entry in self.entries for event in of_one),
            Clear(),
        )

    @property
    def renamings(self) -> list[dict[str, str]]:
        return [dict(zip(self.entries, names, strict=True)) for names in permutations(self.entries)]

    @property
    def sentence(self) -> str:
        """The scope's size in words."""
        return (
            f"{len(self.entries)} entries of 1 to {self.capacity + 1} x capacity {self.capacity} x "
            f"{self.pins_max} pins"
        )


def _scope(number: int, capacity: int) -> TableScope:
    return TableScope(f"{number} entries, capacity {capacity}", "xyz"[:number], capacity)


SMALL = (*(_scope(2, capacity) for capacity in (1, 2, 3, 4)), _scope(3, 2))
LARGE = (_scope(3, 3), _scope(3, 4))


@dataclass(frozen=True)
class TableBreak:
    """The first calls that break a contract, and why it does not hold."""

    calls: tuple[TableEvent, ...]
    why: str

    def __str__(self) -> str:
        return f"{'; '.join(map(in_words, self.calls))}: {self.why}"


def in_words(event: TableEvent) -> str:
    """A call as text, such as begin(x, 2)."""
    given = ", ".join(str(getattr(event, name)) for name in event.__struct_fields__)
    return f"{event.__struct_config__.tag}({given})"


class TableExploration(ExploredScope[TableScope, Broken]):
    """The outcome for a table of entries: `broken` has the shortest calls for each contract and
    kind."""

    STEPS = "calls"


@dataclass(frozen=True)
class _State:
    """A state of the frontier: its number at the target, the table as contracts look at it, what
    its callers have done, and how it came about."""

    number: int
    table: TableOutcome
    ghost: TableGhost
    parent: "_State | None" = None
    event: TableEvent | None = None


def explore(
    target: Explorable,
    scope: TableScope,
    *,
    fault: str | None = None,
    transitions_max: int = 1_000_000,
    until: str | None = None,
) -> TableExploration:
    """Explore a scope on a target, with a fault planted or none, until no state is new; or until
    the contract `until` is broken, or after the level in which `transitions_max` is passed.

    Raises:
        HarnessError: the target broke.
        Illegal: it has no such table.
    """
    return _Search(target, scope, fault).run(transitions_max, until)


class _Search:
    def __init__(self, target: Explorable, scope: TableScope, fault: str | None) -> None:
        self._started = time.perf_counter()
        self._scope, self._alphabet = scope, scope.alphabet
        self._is_reference = isinstance(target, ReferenceTarget)
        self._rules = rules_of(target)
        self._explorer = target.explorer(scope.header, self._alphabet, fault)
        self._symmetry = Symmetry(scope.renamings)
        self._steps = Steps(self._explorer)
        self._parts: list[StatePart] = []
        nothing: TableOutcome = {
            "capacity": scope.capacity,
            "free": scope.capacity,
            "evictable": 0,
            "size": {},
            "pins": {},
            "idle": {},
            "blocks": [],
            "in_use": None,
        }
        self._level = [_State(0, nothing, TableGhost())]
        self._keys = {self._key(self._level[0])}
        self._transitions = 0
        self._broken: Broken = {}

    def run(self, transitions_max: int, until: str | None) -> TableExploration:
        events = 0
        while self._level and self._transitions < transitions_max:
            level, self._level = self._level, []
            for state in level:
                self._judge_steps(state)
                if (until, "") in self._broken:
                    return self._outcome(events, closed=False)
            events += 1
        return self._outcome(events, closed=not self._level)

    def _outcome(self, events: int, *, closed: bool) -> TableExploration:
        self._explorer.leave()
        return TableExploration(
            self._scope,
            len(self._keys),
            self._transitions,
            events,
            closed,
            time.perf_counter() - self._started,
            self._explorer.source,
            self._broken,
        )

    def _judge_steps(self, state: _State) -> None:
        for number, done, after in self._steps.of(state.number):
            event, record = self._alphabet[number], self._steps.records[done]
            self._transitions += 1
            call = _call(event, record)
            if call.raised:  # no table follows, and nothing goes on from there
                self._judge(state, event, call)
                continue
            ghost = copy.deepcopy(state.ghost)
            _tell(ghost, event, call, counts_pins=self._is_reference)
            table: TableOutcome = record.outcome["state"]
            self._judge(state, event, call, ghost, state.table, table)
            self._meet(_State(after, table, _without_history(ghost, table), state, event))

    def _judge(
        self,
        state: _State,
        event: TableEvent,
        call: TableCall,
        ghost: TableGhost | None = None,
        *tables: TableOutcome,
    ) -> None:
        kind = TOO_LARGE if call.need > self._scope.capacity else ""
        for rule in self._rules:
            if (rule.id, kind) in self._broken:  # breadth first, those calls are no longer
                continue
            values = _values(rule, call, ghost, tables)
            if values is not None and not rule.predicate(**values):
                calls: Iterator[TableEvent] = path_to(state)
                self._broken[rule.id, kind] = TableBreak((*calls, event), _why(rule, values))

    def _meet(self, state: _State) -> None:
        key = self._key(state)
        if key not in self._keys:
            self._keys.add(key)
            self._level.append(state)
            self._steps.want(state.number)

    def _key(self, state: _State) -> bytes:
        used = sorted(state.ghost.used, key=state.ghost.used.__getitem__)
        for tree in self._steps.trees[len(self._parts) :]:
            self._parts.append(self._symmetry.part(tree))
        told = self._symmetry.part([used, [SET, *state.ghost.writing], _pairs(state.ghost.pins)])
        return self._symmetry.key(self._parts[state.number], told)


def rules_of(target: Explorable) -> list[Contract]:
    """The contracts that judge a target's table."""
    left_out = OF_REGIONS if isinstance(target, ReferenceTarget) else frozenset()
    return [rule for rule in contracts(COMPONENT, target.release) if rule.id not in left_out]


def _pairs(counts: dict[str, int]) -> list[Tree]:
    pairs: list[Tree] = [[name, count] for name, count in counts.items()]
    return [SET, *pairs]


def _call(event: TableEvent, record: StepRecord) -> TableCall:
    raised = "" if record.raised is None else record.raised.type
    granted = not raised and record.outcome["granted"]
    need = event.size if isinstance(event, Begin) else 0
    return TableCall(
        str(event.__struct_config__.tag), getattr(event, "entry", ""), need, granted, raised
    )


def _tell(ghost: TableGhost, event: TableEvent, call: TableCall, *, counts_pins: bool) -> None:
    """Tell the ghost what a caller has done. An entry is used when it is written, and then when it
    becomes idle; or instead, where the table `counts_pins`, when it is pinned."""
    match event:
        case Begin(entry) if call.granted:
            ghost.begin(entry)
        case Publish(entry):
            ghost.end(entry)
            ghost.use(entry)
        case Discard(entry):
            ghost.end(entry)
        case Pin(entry) | PinIfReady(entry) if call.granted:
            ghost.pin(entry)
            if counts_pins:
                ghost.use(entry)
        case Unpin(entry):
            ghost.unpin(entry)
            if not counts_pins and entry not in ghost.pins:
                ghost.use(entry)
        case _:
            pass


def _without_history(ghost: TableGhost, table: TableOutcome) -> TableGhost:
    """The ghost with moments reduced to their order, and to entries that are in the table."""
    there = [entry for entry in ghost.used if entry in table["size"]]
    in_order = sorted(there, key=ghost.used.__getitem__)
    ghost.used = {entry: rank for rank, entry in enumerate(in_order)}
    ghost._clock = len(in_order)
    return ghost


def _values(
    rule: Contract, call: TableCall, ghost: TableGhost | None, tables: tuple[TableOutcome, ...]
) -> dict[str, object] | None:
    """The arguments of a contract for a call and the tables around it; None where the contract does
    not judge this call."""
    if rule.kind == "transition" and call.operation not in rule.calls:
        return None
    values: dict[str, object] = {}
    for name, record in rule.predicate.__annotations__.items():
        if name == "return":
            continue
        if record is TableCall:
            values[name] = call
        elif ghost is None:  # no table follows either
            return None
        elif record is TableGhost:
            values[name] = ghost
        elif record is TableBlocks:
            values[name] = TableBlocks(tables[1]["capacity"], tuple(tables[1]["blocks"]))
        elif record is TableAtWork:
            if tables[1]["in_use"] is None:
                return None
            values[name] = TableAtWork(tables[1]["in_use"], ghost.writing, ghost.pins)
        else:
            seen = tables[0] if name == "pre" else tables[1]
            values[name] = TableState(
                seen["capacity"],
                seen["free"],
                seen["evictable"],
                seen["size"],
                seen["pins"],
                seen["idle"],
            )
    return values


def _why(rule: Contract, values: dict[str, object]) -> str:
    call = values.get("c")
    raised = call.raised if isinstance(call, TableCall) else ""
    return f"{raised} is raised" if raised else rule.explain(**values)
