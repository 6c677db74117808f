"""Moments of two clocks: machines share the one, and only the other goes on evenly."""

import time


def of_clock(moment: float) -> float:
    """A moment of the monotonic clock as one of the clock."""
    return time.time() + moment - time.monotonic()


def monotonic(moment: float) -> float:
    """A moment of the clock as one of the monotonic clock."""
    return time.monotonic() + moment - time.time()
