"""What a judge knows at a moment, to be put back there, and as a tree without what is history."""

import pickle
from collections.abc import Callable, Mapping
from typing import TypeVar

from cacheproof.differential.judges.manager import ManagerJudge
from cacheproof.differential.judges.scheduler import SchedulerJudge
from cacheproof.differential.judges.scheduler_position import SchedulerPosition
from cacheproof.differential.targets.host.explorer import SET, tree_of
from cacheproof.differential.targets.host.protocol import Tree
from cacheproof.spec.ghost import Ghost
from cacheproof.spec.records import EncoderCacheState, LedgerState

LONG_AGO = 2
"""Steps since an encode that stand for all more: ED-3 asks whether one has passed, or more."""


def saved(judge: ManagerJudge, is_there: Callable[[str], bool]) -> bytes:
    """All that a judge's later verdicts depend on; equal only for judges that know the same.
    `is_there` tells whether the target remembers a request's name."""
    _forget_history(judge.ghost, isinstance(judge.state, EncoderCacheState))
    if isinstance(judge, SchedulerJudge):
        judge.forget(is_there)
    return pickle.dumps(judge.position(), pickle.HIGHEST_PROTOCOL)


def put_back(judge: ManagerJudge, position: bytes) -> None:
    judge.go_to(pickle.loads(position))


def ledger(judge: ManagerJudge) -> LedgerState:
    """The target's ledger without the sizes, of which older releases show none."""
    state = judge.state
    return state._replace(size={}) if isinstance(state, EncoderCacheState) else state


ValueT = TypeVar("ValueT")


def tree(judge: ManagerJudge) -> list[Tree]:
    """A judge's knowledge as a tree: all but the ledger, which is part of the target's state; with
    its sizes, which not every target shows. Requests are in order where they are in flight."""
    at = judge.position()
    return [
        _ghost(at.ghost),
        _map(getattr(at.state, "size", {}), int),
        _map(at.requests, lambda request: request.computed),
        tree_of(at.in_flight),
        _map(at.encoded, int),
        tree_of(at.gathered),
        tree_of(at.evicting),
        tree_of(at.allocating),
        *(_of_scheduler(at) if isinstance(at, SchedulerPosition) else ()),
    ]


def _of_scheduler(at: SchedulerPosition) -> list[Tree]:
    """What the judge knows of a scheduler: in which order requests arrived, and which have run. How
    they arrived is part of the target's state."""
    return [
        list(at.arrivals.added),
        tree_of(at.arrivals.has_run),
        tree_of(at.running),
        _map(at.prompts, int),
        _map(at.claims, tree_of),
        tree_of(at.dropped),
        at.paused,
        tree_of(at.pending),
        tree_of(at.in_vain),
        tree_of(at.stood),
        at.steps_without_token,
        tree_of(at.preempted),
        _map(at.withheld, tree_of),
        tree_of(at.present),
        list(at.ran),
    ]


def _forget_history(ghost: Ghost, is_shared: bool) -> None:
    """Reduce moments to their order, and steps since an encode to what ED-3 asks; to 0 where
    entries are shared, whose contracts do not ask for them."""
    # The clock never goes back: with its readings no state would be met again.
    moments = {moment: rank for rank, moment in enumerate(sorted(set(ghost.idle_since.values())))}
    for identifier, moment in ghost.idle_since.items():
        ghost.idle_since[identifier] = moments[moment]
    ghost._clock = len(moments)
    for identifier, steps in ghost.steps_since_encode.items():
        ghost.steps_since_encode[identifier] = 0 if is_shared else min(steps, LONG_AGO)


def _ghost(ghost: Ghost) -> list[Tree]:
    return [
        _map(ghost.needed, tree_of),
        _map(ghost.idle_since, int),
        _map(ghost.size, int),
        _map(ghost.stored, int),
        [SET, *([*debit, size] for debit, size in ghost.debits.items())],
        _map(ghost.steps_since_encode, int),
        _map(ghost.claimed_end, lambda ends: _map(ends, int)),
    ]


def _map(pairs: Mapping[str, ValueT], of: Callable[[ValueT], Tree]) -> list[Tree]:
    """A tree of a mapping whose order does not matter."""
    return [SET, *([key, of(value)] for key, value in pairs.items())]
