"""One state of a search at a time."""

from typing import Any


def step(search: Any, state: Any) -> None:
    """Go on from a state alone: afterwards the search holds what follows it, and nothing else."""
    search._level.clear()
    search._keys.clear()
    search._judge_steps(state)
