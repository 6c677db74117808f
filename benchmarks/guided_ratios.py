"""What runs of a way come to: medians, and how many times as many events another way needs."""

import argparse
import math
from collections.abc import Sequence
from pathlib import Path

import msgspec

OUTCOMES = Path(__file__).parent / "guided.jsonl"


class Outcome(msgspec.Struct, frozen=True):
    """When a way first broke a contract of a fault, on the traces of one base: in which trace, and
    with how many events. `first` is None where none of `traces` did."""

    way: str
    lane: str
    fault: str
    base: int
    traces: int
    first: int | None
    events: int


def outcomes() -> list[Outcome]:
    """What is on file, the last of each."""
    found: dict[tuple[str, str, str, int], Outcome] = {}
    for line in OUTCOMES.read_bytes().splitlines() if OUTCOMES.exists() else ():
        one = msgspec.json.decode(line, type=Outcome)
        found[one.way, one.lane, one.fault, one.base] = one
    return [*found.values()]


def median(found: Sequence[Outcome]) -> float:
    """The median of the events until the break; infinite where half the runs or more had none."""
    events = sorted(math.inf if one.first is None else one.events for one in found)
    middle = len(events) // 2
    return events[middle] if len(events) % 2 else (events[middle - 1] + events[middle]) / 2


def events_per_break(found: Sequence[Outcome]) -> float:
    """Events of all runs for each that ended with a break; half a break stands for none."""
    return sum(one.events for one in found) / max(0.5, sum(one.first is not None for one in found))


def ratio(today: Sequence[Outcome], other: Sequence[Outcome]) -> float:
    """How many times as many events today's way needs; above 1 the other is better."""
    return events_per_break(today) / events_per_break(other)


def mean_ratio(ratios: Sequence[float]) -> tuple[float, float, float]:
    """The geometric mean, and where it lies with 95 % of confidence, faults taken as a sample."""
    logs = [math.log(one) for one in ratios]
    mean = sum(logs) / len(logs)
    spread = math.sqrt(sum((one - mean) ** 2 for one in logs) / max(1, len(logs) - 1))
    around = 1.96 * spread / math.sqrt(len(logs))
    return math.exp(mean), math.exp(mean - around), math.exp(mean + around)


def span(text: str) -> range:
    """The numbers of A:B, as an option gives them. Raises ArgumentTypeError for a text that is no
    such thing."""
    first, _, last = text.partition(":")
    if not (first.isdecimal() and last.isdecimal() and int(first) < int(last)):
        raise argparse.ArgumentTypeError(f"{text!r}: expected A:B with A < B, such as 0:10")
    return range(int(first), int(last))
