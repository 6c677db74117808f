"""Two targets that run the same traces, for the commands that compare: diff and review."""

from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from typing import NamedTuple

from cacheproof.differential.lanes.lane import Lane
from cacheproof.differential.targets.base import Target
from cacheproof.differential.targets.resolve import resolve, share_libraries
from cacheproof.output.announcing import start
from cacheproof.output.console import CommandOutput
from cacheproof.search.lane_choice import lanes_for_both, require_lanes
from cacheproof.work.plan import lanes_at


class TwoTargets(NamedTuple):
    """Two targets whose hosts have started, the lanes that both run, and those of one alone."""

    one: Target
    other: Target
    lanes: Sequence[Lane]
    left_out: Sequence[Lane]


@contextmanager
def two_targets(
    output: CommandOutput, one_text: str, other_text: str, depth: str | None
) -> Iterator[TwoTargets]:
    """Open two targets at a depth, at all depths where it is None, and close them at the end.

    Raises:
        InputError: a target that is none, or two that have no lane in common.
        HarnessError: one does not start.
    """
    asked = lanes_at(depth)
    require_lanes(asked, one_text, other_text)
    with (
        closing(resolve(one_text, report=output.say)) as one,
        closing(resolve(other_text, report=output.say)) as other,
    ):
        for target in (one, other):
            start(output, target)
        share_libraries(one, other)
        yield TwoTargets(one, other, *lanes_for_both(asked, one, other, output))
