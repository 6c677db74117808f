"""What a screen shows of a depth, beside what the engine does."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from cacheproof.differential.judges.retrace import Moment

Rows = Sequence[tuple[str, ...]]


@dataclass(frozen=True)
class View:
    """Two tables.

    Attributes:
        lanes: titles of the columns that show each event, the first of them what was asked.
        sides: what stands in the others, of a moment.
        step_titles: titles of the columns that show the first wrong step.
        step: its rows, of the moments up to it; empty where nothing is to be seen.
        nothing: what to say then, of that moment.
    """

    lanes: tuple[str, ...]
    sides: Callable[[Moment], tuple[str, ...]]
    step_titles: tuple[str, ...]
    step: Callable[[Sequence[Moment]], Rows]
    nothing: Callable[[Moment], str] | None = None
