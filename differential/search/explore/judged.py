"""What a judge knows at a moment, to be put back there, and as a tree without what is history.

A moment is kept as plain data, a tuple for each part of the knowledge. Moments at which a judge
knows the same are one, and have one number.
"""

from collections.abc import Callable, Hashable, Iterable, Mapping, Set
from operator import itemgetter
from typing import Any, NamedTuple

from cacheproof.differential.judges.manager import ManagerJudge, ManagerPosition
from cacheproof.differential.judges.requests import JudgedRequest
from cacheproof.differential.judges.scheduler import SchedulerJudge
from cacheproof.differential.judges.scheduler_position import Arrivals, SchedulerPosition
from cacheproof.differential.search.explore.symmetry import StatePart, Symmetry
from cacheproof.differential.targets.host.explorer import SET, tree_of
from cacheproof.differential.targets.host.protocol import Tree
from cacheproof.spec.ghost import Ghost
from cacheproof.spec.records import EncoderCacheState, LedgerState
from cacheproof.spec.scheduler_records import Standing

LONG_AGO = 2
"""Steps since an encode that stand for all more: ED-3 asks whether one has passed, or more."""
Pairs = tuple[tuple[Any, Any], ...]
Moment = tuple[tuple[Any, ...], tuple[Any, ...]]
"""What a judge knows of a manager, and what of a scheduler."""


class _Ledger(NamedTuple):
    """The target's ledger, the number of what it is `without` sizes, of which older releases show
    none, and these."""

    state: LedgerState
    without: int
    sizes: Pairs


class Knowledge:
    """What one judge knew at the moments that were kept, by number."""

    def __init__(self, judge: ManagerJudge, symmetry: Symmetry) -> None:
        self._judge = judge
        self._symmetry = symmetry
        self._is_shared = isinstance(judge.state, EncoderCacheState)
        self._moments: list[Moment] = []
        self._numbers: dict[Moment, int] = {}
        self._ledgers: list[_Ledger] = []
        self._ledger_numbers: dict[Hashable, int] = {}
        self._without: dict[Hashable, int] = {}
        self._requests: list[JudgedRequest] = []
        self._request_numbers: dict[Hashable, int] = {}
        self._now: tuple[LedgerState | None, int] = None, 0
        self._parts: dict[int, StatePart] = {}
        self._known_parts: dict[tuple[int, Hashable], StatePart] = {}

    def keep(self, is_there: Callable[[str], bool]) -> int:
        """Keep all that the judge's later verdicts depend on. `is_there` tells whether the target
        remembers a request's name."""
        judge = self._judge
        if isinstance(judge, SchedulerJudge):
            judge.forget(is_there)
        at = judge.position()
        of_manager = (
            self._ledger_number(at.state),
            tuple([tuple(step.items()) for step in at.in_flight]),
            *_of_ghost(at.ghost, self._is_shared),
            tuple(sorted([self._told(name, request) for name, request in at.requests.items()])),
            # In order, in which it is told why a contract is broken.
            tuple(at.encoded.items()),
            frozenset(at.gathered),
            frozenset(at.evicting),
            frozenset(at.allocating),
        )
        moment = of_manager, _of_scheduler(at) if isinstance(at, SchedulerPosition) else ()
        known = len(self._moments)
        number = self._numbers.setdefault(moment, known)
        if number == known:
            self._moments.append(moment)
        return number

    def put_back(self, number: int) -> None:
        """Put the judge back into a moment that was kept."""
        of_manager, of_scheduler = self._moments[number]
        ledger, in_flight, *ghost, requests, encoded, gathered, evicting, allocating = of_manager
        state = self._ledgers[ledger].state
        manager = (
            state,
            [dict(step) for step in in_flight],
            _ghost(*ghost),
            self._put_back_requests(requests),
            dict(encoded),
            set(gathered),
            set(evicting),
            set(allocating),
        )
        self._now = state, ledger
        self._judge.go_to(
            SchedulerPosition(*manager, *_scheduler(*of_scheduler))
            if of_scheduler
            else ManagerPosition(*manager)
        )

    def ledger(self) -> int:
        """The target's ledger now, without the sizes: equal ones have one number."""
        return self._ledgers[self._ledger_number(self._judge.state)].without

    def part(self, number: int) -> StatePart:
        """The knowledge as part of a state: all but the ledger, which is part of the target's
        state; with its sizes, which not every target shows."""
        part = self._parts.get(number)
        if part is None:
            (ledger, *of_manager), of_scheduler = self._moments[number]
            told = (self._ledgers[ledger].sizes, *of_manager, *of_scheduler[: len(_SCHEDULER)])
            parts = [self._part(place, one) for place, one in enumerate(told)]
            part = self._parts[number] = self._symmetry.joined(parts)
        return part

    def _part(self, place: int, told: Any) -> StatePart:
        part = self._known_parts.get((place, told))
        if part is None:
            part = self._symmetry.part(_TREES[place](told))
            self._known_parts[place, told] = part
        return part

    def _ledger_number(self, state: LedgerState) -> int:
        if state is self._now[0]:
            return self._now[1]
        sizes: Pairs = ()
        without: Hashable = state
        if isinstance(state, EncoderCacheState):
            _, free, freeable, size, holders, queue, notices = state
            sizes = _pairs(size)
            without = free, freeable, _pairs(holders), tuple(queue.items()), notices
        known = len(self._ledgers)
        number = self._ledger_numbers.setdefault((without, sizes), known)
        if number == known:
            bare = self._without.setdefault(without, len(self._without))
            self._ledgers.append(_Ledger(state, bare, sizes))
        return number

    def _told(self, name: str, request: JudgedRequest) -> tuple[str, int, int]:
        """A request by its name, its number and how far it is. Those alike are one object, since
        the judge is at one moment at a time; no scope has sessions, whose requests grow."""
        number = self._request_numbers.get(request)
        if number is None:
            parts = [getattr(request, part) for part in _OF_REQUEST]
            alike = name, *[tuple(part) if type(part) is list else part for part in parts]
            number = self._request_numbers.setdefault(alike, len(self._requests))
            if number == len(self._requests):
                self._requests.append(request)
                self._request_numbers[request] = number
        return name, number, request.computed

    def _put_back_requests(self, told: Iterable[tuple[str, int, int]]) -> dict[str, JudgedRequest]:
        requests = {}
        for name, number, computed in told:
            request = requests[name] = self._requests[number]
            request.computed = computed
        return requests


_FIRST = itemgetter(0)
_OF_REQUEST = tuple(sorted({*JudgedRequest.__slots__} - {"computed"}))


def _pairs(mapping: Mapping[Any, Any]) -> Pairs:
    """A mapping whose order says nothing."""
    if len(mapping) > 1:
        return tuple(sorted(mapping.items(), key=_FIRST))
    return tuple(mapping.items()) if mapping else ()


def _of_sets(mapping: Mapping[Any, Set[Any]]) -> Pairs:
    return _pairs({key: frozenset(held) for key, held in mapping.items()}) if mapping else ()


def _of_maps(mapping: Mapping[Any, Mapping[Any, Any]]) -> Pairs:
    return _pairs({key: _pairs(held) for key, held in mapping.items()}) if mapping else ()


def _sets(pairs: Pairs) -> dict[Any, set[Any]]:
    return {key: set(held) for key, held in pairs}


def _of_ghost(ghost: Ghost, is_shared: bool) -> tuple[Pairs, ...]:
    """The ghost with moments reduced to their order, and steps since an encode to what ED-3 asks;
    to 0 where entries are shared, whose contracts do not ask for them."""
    idle, steps = ghost.idle_since, ghost.steps_since_encode
    # The clock never goes back: with its readings no state would be met again.
    moments = sorted(set(idle.values())) if idle else ()
    return (
        _of_sets(ghost.needed),
        _pairs({identifier: moments.index(moment) for identifier, moment in idle.items()}),
        _pairs(ghost.size),
        _pairs(ghost.stored),
        _pairs(ghost.debits),
        _pairs({one: 0 if is_shared else min(since, LONG_AGO) for one, since in steps.items()}),
        _of_maps(ghost.claimed_end),
    )


def _ghost(
    needed: Pairs,
    idle: Pairs,
    size: Pairs,
    stored: Pairs,
    debits: Pairs,
    steps: Pairs,
    claimed: Pairs,
) -> Ghost:
    return Ghost(
        _sets(needed),
        dict(idle),
        dict(size),
        dict(stored),
        dict(debits),
        dict(steps),
        {request: dict(ends) for request, ends in claimed},
        1 + max([rank for _, rank in idle], default=-1),
    )


def _of_scheduler(at: SchedulerPosition) -> tuple[Any, ...]:
    """What `SchedulerPosition` has beside that of a manager."""
    return (
        tuple(at.arrivals.added.items()),
        frozenset(at.arrivals.has_run),
        frozenset(at.running),
        _pairs(at.prompts),
        _of_sets(at.claims),
        frozenset(at.dropped),
        at.paused,
        frozenset(at.pending),
        frozenset(at.in_vain),
        at.stood,
        at.steps_without_token,
        frozenset(at.preempted),
        _pairs(at.withheld),
        frozenset(at.present),
        tuple(at.ran),
        tuple([_pairs(drafts) for drafts in at.drafted]),
    )


def _scheduler(
    added: Pairs,
    has_run: Set[str],
    running: Set[str],
    prompts: Pairs,
    claims: Pairs,
    dropped: Set[str],
    paused: bool,
    pending: Set[str],
    in_vain: Set[str],
    stood: Standing | None,
    steps_without_token: int,
    preempted: Set[str],
    withheld: Pairs,
    present: Set[str],
    ran: Iterable[str],
    drafted: Iterable[Pairs],
) -> tuple[Any, ...]:
    return (
        Arrivals(dict(added), set(has_run)),
        set(running),
        dict(prompts),
        _sets(claims),
        set(dropped),
        paused,
        set(pending),
        set(in_vain),
        stood,
        steps_without_token,
        set(preempted),
        dict(withheld),
        set(present),
        list(ran),
        [dict(drafts) for drafts in drafted],
    )


def _map(pairs: Pairs) -> list[Tree]:
    """A tree of a mapping whose order does not matter."""
    told: list[Tree] = [[key, tree_of(value)] for key, value in pairs]
    return [SET, *told]


def _map_of_maps(pairs: Pairs) -> list[Tree]:
    told: list[Tree] = [[key, _map(value)] for key, value in pairs]
    return [SET, *told]


def _debits(pairs: Pairs) -> list[Tree]:
    told: list[Tree] = [[request, number, size] for (request, number), size in pairs]
    return [SET, *told]


def _progress(requests: Iterable[tuple[str, int, int]]) -> list[Tree]:
    told: list[Tree] = [[name, computed] for name, _, computed in requests]
    return [SET, *told]


def _names(pairs: Pairs) -> list[Tree]:
    """In which order requests arrived; how they did is part of the target's state."""
    return [name for name, _ in pairs]


def _steps(steps: Iterable[Pairs]) -> list[Tree]:
    """Steps in flight: their requests are in order."""
    return [tree_of(step) for step in steps]


_Tell = Callable[[Any], Tree]
_GHOST: tuple[_Tell, ...] = (_map, _map, _map, _map, _debits, _map, _map_of_maps)
_MANAGER: tuple[_Tell, ...] = (_map, _steps, *_GHOST, _progress, _map, tree_of, tree_of, tree_of)
_ARRIVALS: tuple[_Tell, ...] = (_names, tree_of)
_AT: tuple[_Tell, ...] = (tree_of, _map, _map, *[tree_of] * 7, _map, tree_of, tree_of)
_SCHEDULER = _ARRIVALS + _AT
_TREES = _MANAGER + _SCHEDULER
"""How each part of a moment is told: first the sizes of its ledger, and last who ran. Drafts
follow from the target's state."""
