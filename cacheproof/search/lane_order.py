"""In which order the lanes of a search take turns: first those that run what a target changed."""

from collections.abc import Sequence

from cacheproof.differential.depths import DEPTHS
from cacheproof.differential.errors import HarnessError
from cacheproof.differential.lanes.lane import Lane
from cacheproof.differential.targets.base import Target
from cacheproof.differential.targets.process import HostTarget
from cacheproof.output.console import CommandOutput
from cacheproof.output.verdict_line import counted, names

FEW = 12
"""Where more definitions differ, nearly every lane runs some."""
SEEDS = 3
"""How many traces of each lane are run to see what it calls."""


def in_order(output: CommandOutput, target: Target, lanes: Sequence[Lane]) -> list[Lane]:
    """The lanes, those first whose first traces call a definition in which the target differs from
    the nearest release; a line says so. As they are where none or many differ, or where all lanes
    call some, or none does."""
    differing = set() if target.reading is None else set(target.reading.differing)
    if not 0 < len(differing) <= FEW or not isinstance(target, HostTarget) or len(lanes) < 2:
        return list(lanes)
    called = {lane.name: differing & _called(target, lane) for lane in lanes}
    first = [lane for lane in lanes if called[lane.name]]
    rest = [lane for lane in lanes if not called[lane.name]]
    if first and rest:
        which = sorted(set().union(*called.values()))
        output.say(
            f"{target.name}: the search begins with the {counted(len(first), 'lane')} that "
            f"{'runs' if len(first) == 1 else 'run'} {names(which)}: "
            f"{', '.join(lane.name for lane in first)}; the other {len(rest)} take their turn after"
        )
    return [*first, *rest]


def _called(target: HostTarget, lane: Lane) -> set[str]:
    """The functions that the lane's first traces call in the target, as a reading names them; none
    where the target breaks over one, which the search will say."""
    if DEPTHS[lane.depth].is_executed:
        return set()
    try:
        return {
            name.partition(":")[2]
            for seed in range(SEEDS)
            for event in target.called(lane.trace(seed, target.model))
            for name in event
        }
    except HarnessError:
        target.close()
        return set()
