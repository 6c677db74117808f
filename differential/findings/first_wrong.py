"""The first wrong step of a finding's trace: what the target decided there, and in which function.

Findings with the same one are likely faces of one cause (`faces.py`, docs/explain/identity.md).
"""

import msgspec

from cacheproof.differential.judges.examination import LOCKSTEP, Examination
from cacheproof.differential.targets.base import Target
from cacheproof.differential.targets.process import HostTarget
from cacheproof.differential.texts import places
from cacheproof.differential.traces.trace import Trace


class FirstWrong(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Where a trace first goes wrong, up to the event at which its finding shows.

    Attributes:
        event: the event, from 0, at which the target first differs from the reference; where it
            does not, at which it first breaks a contract.
        operation: what is asked there, a call of a manager or a kind of event; empty where no call
            says.
        functions: where definitions of the target differ from those of the nearest release, those
            that were called from there to where the finding shows, the one that decided there
            first; else the function that the step is about.
        changed: whether `functions` are such definitions.
        parts: what differs from the reference there, the part that the others follow from first;
            empty where nothing does.
        broken: the contracts that are broken there, each with its kind.
    """

    event: int
    operation: str
    functions: tuple[str, ...]
    changed: bool
    parts: tuple[str, ...]
    broken: tuple[tuple[str, str], ...]

    @property
    def place(self) -> str:
        """The function that decided."""
        return self.functions[0]


def tells_itself(target: Target, contract: str) -> bool:
    """Whether a trace that is not small tells where it first goes wrong: of a difference that is
    where it shows, and where one definition alone differs it is that one's doing. Else what differs
    first may have nothing to do with what breaks later."""
    is_one = target.reading is not None and len(target.reading.differing) == 1
    return contract == LOCKSTEP or is_one


def first_wrong(target: Target, trace: Trace, seen: Examination, event: int) -> FirstWrong | None:
    """The first wrong step of a trace whose finding shows at `event`; None where nothing was seen
    up to there. No batch of the target's may be in flight.

    Raises:
        HarnessError: the target broke.
    """
    broken = sorted(
        (one.event, *place, one.operation)
        for place, one in seen.by_kind.items()
        if one.event <= event
    )
    difference = seen.difference
    if difference is not None and difference.event <= event:
        first, operation = difference.event, difference.operation
        parts = difference.parts or (difference.field,)
        functions = _changed(target, trace, first, event, operation)
    elif broken:
        first, operation = broken[0][0], broken[0][3]
        parts, functions = (), ()
    else:
        return None
    there = tuple((contract, kind) for at, contract, kind, _ in broken if at == first)
    about = places.way(trace, first, operation)[-1].name
    return FirstWrong(first, operation, functions or (about,), bool(functions), parts, there)


def _changed(
    target: Target, trace: Trace, first: int, last: int, operation: str
) -> tuple[str, ...]:
    """The definitions of the target that differ from the nearest release's and were called from the
    `first` wrong step to the `last`. Where one alone differs, a difference from the reference is
    its doing, called or not: all else reads as what the reference models."""
    differing = {} if target.reading is None else target.reading.differing
    if len(differing) < 2:
        return tuple(differing)
    called = [_names(one) & differing.keys() for one in _called(target, trace)][: last + 1]
    before_it = called[:first][::-1]
    deciding = next((some for some in (*called[first : first + 1], *before_it) if some), set())
    asked = places.way(trace, first, operation)[-1]
    of_asked = [name for name in sorted(deciding) if name == asked.name]
    of_owner = [name for name in sorted(deciding) if name.partition(".")[0] == asked.owner]
    return tuple(dict.fromkeys((*of_asked, *of_owner, *sorted(deciding.union(*called[first:])))))


def _called(target: Target, trace: Trace) -> list[list[str]]:
    return target.called(trace) if isinstance(target, HostTarget) else []


def _names(called: list[str]) -> set[str]:
    """The definitions without their modules, as a reading names them."""
    return {name.partition(":")[2] for name in called}
