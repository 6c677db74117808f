"""What a replay concludes: a pure function of its runs and of what is listed of what they break."""

from collections.abc import Sequence
from dataclasses import dataclass

from cacheproof.output.verdict_line import VerdictLine, counted, names


@dataclass(frozen=True)
class BrokenContract:
    """A contract that a replay breaks, what it says, at which event, counted from 1, and the listed
    fault that this is; None of one that is not listed."""

    contract: str
    title: str
    event: int
    fault: str | None


@dataclass(frozen=True)
class Replayed:
    """Runs of a trace on a target.

    Attributes:
        target: as after --target.
        file: the file's name.
        path: what to give to `replay`.
        events, calls: of the trace; calls that were judged.
        same, times: how many runs came out as expected, and how many there were.
        broken: what the first of them breaks, what matters most first.
        parts_at: the event, counted from 1, at which it differs from the reference; None where it
            agrees, or was not compared.
        is_compared: whether there was a reference.
        asked: the contract of a finding, which this target keeps; None where it breaks, or where
            it is a trace that is replayed.
        seen_on: a target that was seen to break on this trace, and the listed fault that it has.
    """

    target: str
    file: str
    path: str
    events: int
    calls: int
    same: int
    times: int
    broken: Sequence[BrokenContract] = ()
    parts_at: int | None = None
    is_compared: bool = False
    asked: str | None = None
    seen_on: tuple[str, str] | None = None


def of_replay(ran: Replayed) -> VerdictLine:
    """The sentence, and what to do next."""
    if ran.same < ran.times:
        return VerdictLine(
            f"{ran.target} does not do the same each time on {ran.file}: {ran.same} of "
            f"{counted(ran.times, 'run')} agree, so that this replay shows nothing.",
            "run it more often",
            f"cacheproof replay {ran.path} --target {ran.target} --times {10 * ran.times}",
        )
    if ran.broken:
        return _of_breaks(ran)
    drawn = f"cacheproof replay {ran.path} --target {ran.target}"
    if ran.parts_at is not None:
        return VerdictLine(
            f"{ran.target} breaks no contract on {ran.file}, and differs from the reference at "
            f"event {ran.parts_at} of {ran.events}.",
            "see the run drawn",
            f"{drawn} --html run.html",
        )
    kept = f"keeps {ran.asked} and every other contract" if ran.asked else "keeps every contract"
    agrees = ", and decides as the reference does" if ran.is_compared else ""
    sentence = (
        f"{ran.target} {kept} on {ran.file} ({counted(ran.events, 'event')}, "
        f"{counted(ran.calls, 'call')} judged){agrees}"
    )
    if ran.seen_on is None:
        return VerdictLine(f"{sentence}.")
    seen, fault = ran.seen_on
    return VerdictLine(
        f"{sentence}; the trace shows {fault}, which {seen} has.",
        f"see it break on {seen}",
        f"cacheproof replay {ran.path} --target {seen}",
    )


def _of_breaks(ran: Replayed) -> VerdictLine:
    first, contracts = ran.broken[0], names([one.contract for one in ran.broken])
    faults = list(dict.fromkeys(one.fault for one in ran.broken if one.fault))
    unlisted = [one.contract for one in ran.broken if one.fault is None]
    place = f"at event {first.event} of {ran.events} this does not hold: {first.title}"
    sentence = f"{ran.target} breaks {contracts} on {ran.file}: {place}."
    known = f"the known fault{'s' * (len(faults) > 1)} {names(faults)}"
    if unlisted:
        beside = f" It shows {known} too." if faults else ""
        new = contracts if not faults and len(ran.broken) > 1 else names(unlisted)
        return VerdictLine(
            f"{sentence} No known fault explains {new}.{beside}",
            "see the run drawn",
            f"cacheproof replay {ran.path} --target {ran.target} --html run.html",
        )
    return VerdictLine(
        f"{sentence} It is {known}." if len(faults) == 1 else f"{sentence} It shows {known}.",
        "read what it is, and how to avoid it",
        f"cacheproof explain {first.fault}",
    )
