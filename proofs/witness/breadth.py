"""Breadth first through the states that calls lead to: each state is gone on from once."""

from collections import deque
from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass
from typing import Generic, TypeVar

from cacheproof.proofs.witness.limits import Endless, limited

StateT = TypeVar("StateT")
CallT = TypeVar("CallT")
SECONDS_OF_STATE = 3.0
"""CPU time of this process that all calls from one state may take; they take some milliseconds."""


@dataclass(frozen=True)
class BreadthReached(Generic[StateT, CallT]):
    """How far it went: how many states there are, and whether each was gone on from; or the state
    and the call at which it ended, since the call does not."""

    states: int = 0
    closed: bool = False
    endless: tuple[StateT, CallT] | None = None


def breadth_first(
    begin: Callable[[], StateT | None],
    offered: Callable[[StateT], Iterable[CallT]],
    made: Callable[[StateT, CallT], StateT | None],
    key: Callable[[StateT], Hashable],
    goes_on: Callable[[], bool],
) -> BreadthReached[StateT, CallT]:
    """Go through states, until none is new, or it goes on no more and the last state is done.

    Args:
        begin: makes the first state; None where there is none.
        offered: the calls that are made from a state.
        made: the state after a call; None where it is not to be gone on from.
        key: equal for states of which only one need be gone on from.
        goes_on: whether another state is gone on from.

    Raises:
        Endless: making the first state does not end.
    """
    with limited(SECONDS_OF_STATE) as begin_anew:
        first = begin()
        level = deque([] if first is None else [first])
        met = {key(state) for state in level}
        while level and goes_on():
            begin_anew()
            state = level.popleft()
            for call in offered(state):
                try:
                    after = made(state, call)
                    if after is not None and (of_after := key(after)) not in met:
                        met.add(of_after)
                        level.append(after)
                except Endless:
                    return BreadthReached(endless=(state, call))
        return BreadthReached(len(met), not level)
