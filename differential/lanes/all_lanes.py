"""All lanes, in the order in which searches take turns."""

from cacheproof.differential.depths import DEPTHS, part
from cacheproof.differential.lanes.lane import Lane
from cacheproof.differential.traces.trace import ModelRunner

LANES: dict[str, Lane] = {
    lane.name: lane
    for depth in DEPTHS.values()
    for module in depth.lanes
    for lane in part(module).LANES
}
PROJECTS = sorted({lane.project for lane in LANES.values()} - {"reference"})
"""Projects whose releases lanes are for."""


def lane_called(name: str, runner: ModelRunner | None = None) -> Lane:
    """The lane of that name, with traces for a model runner. Raises KeyError when there is none."""
    return LANES[name].under(runner)
