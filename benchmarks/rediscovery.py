"""Finds public faults of vLLM again, by seeds alone, and stays silent where they are mended.

For every fault and every installed release in its range: search the fitting lane from seed 0 until
the fault's contract breaks or the budget is spent. What breaks is shrunk and replayed; silence
counts only when the state that triggers the fault was reached often enough. Outcomes are kept in
a file, so that an interrupted run goes on where it stopped; docs/evidence/rediscovery.md is written
from it.
"""

import argparse
import itertools
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec

from cacheproof.differential.errors import HarnessError
from cacheproof.differential.findings.breaks import Break
from cacheproof.differential.findings.finding import found_in
from cacheproof.differential.generators.manager import manager_trace
from cacheproof.differential.generators.scheduler import scheduler_trace
from cacheproof.differential.judges.rare_states import RARE_STATES, Reachability
from cacheproof.differential.lanes.all_lanes import LANES
from cacheproof.differential.lanes.lane import Lane
from cacheproof.differential.provision import releases
from cacheproof.differential.provision.versions import order
from cacheproof.differential.search.campaign import search
from cacheproof.differential.targets.base import Target
from cacheproof.differential.targets.host.session import calm_collector
from cacheproof.differential.targets.resolve import resolve
from cacheproof.differential.traces.base import Item
from cacheproof.differential.traces.manager import Add, Walk
from cacheproof.differential.traces.scheduler import Chunk
from cacheproof.differential.traces.trace import Trace

ROOT = Path(__file__).parent.parent
OUTCOMES = ROOT / "benchmarks" / "rediscovery.json"
PAGE = ROOT / "docs" / "evidence" / "rediscovery.md"
COMMAND = ".venv/bin/python benchmarks/rediscovery.py"
SECONDS = 120.0
SEEDS_AT_A_TIME = 200
TRIGGERED_ENOUGH = 100
REPLAYS = 2


def one_occurrence_a_walk(trace: Trace) -> Trace:
    """The trace with walks too short to reach two occurrences of one identifier."""
    limits: dict[str, int] = {}
    events = []
    for event in trace.events:
        if isinstance(event, Add):
            limits[event.request] = _shortest_repeat(event.items)
        if isinstance(event, Walk):
            event = Walk(event.request, min(event.tokens, limits[event.request]))
        events.append(event)
    return trace.with_events(events)


def _shortest_repeat(items: Sequence[Item]) -> int:
    gaps = [
        later.offset - (earlier.offset + earlier.length) + 1
        for earlier, later in itertools.combinations(items, 2)
        if earlier.identifier == later.identifier
    ]
    return min(gaps, default=items[-1].offset + items[-1].length + 1_000)


def without_sessions_and_drafter(trace: Trace) -> Trace:
    """The trace with prompts that stay as they are, and nobody who reads a token ahead."""
    config = msgspec.structs.replace(trace.header.config, drafter=False)
    events = tuple(
        msgspec.structs.replace(event, resumable=False) if isinstance(event, Add) else event
        for event in trace.events
        if not isinstance(event, Chunk)
    )
    return Trace(msgspec.structs.replace(trace.header, config=config), events)


@dataclass(frozen=True)
class Fault:
    """A fault of some releases. The first of `contracts` is what the search is for, in that `kind`
    where one is named; silence means that none of them broke so. `first` and `last` are the
    releases to search, None for the newest; `note` is for the reader of the page."""

    key: str
    thread: str
    title: str
    lane: Lane
    contracts: tuple[str, ...]
    trigger: str
    first: str
    last: str | None = None
    kind: str | None = None
    note: str = ""

    def explains(self, found: Break) -> bool:
        """Whether the break is what the search is for."""
        return found.contract in self.contracts and self.kind in (None, found.kind)


ENCODER_CACHE = LANES["encoder cache"]
APART = Lane(
    "encoder cache, one occurrence of an item a step",
    "manager",
    "encoder_cache",
    lambda seed: one_occurrence_a_walk(manager_trace(seed)),
    ENCODER_CACHE.rare,
)
SCHEDULER = LANES["scheduler"]
PLAIN = Lane(
    "scheduler, without sessions and drafter",
    "scheduler",
    "encoder_cache",
    lambda seed, release: without_sessions_and_drafter(scheduler_trace(seed, release=release)),
    SCHEDULER.rare | {"stalled after a claim", "whole item that does not fit"},
    by_release=True,
)
FAULTS = (
    Fault(
        "decoder-budget",
        "vLLM #55733, PR #51228",
        "Every release of an encoder-decoder item credits its budget again",
        LANES["encoder-decoder"],
        ("ED-1", "ED-2"),
        "decoder item released again",
        "0.13.0",
    ),
    Fault(
        "repeated-item",
        "vLLM PR #54284",
        "An item that a request shows twice is released at its first occurrence",
        APART,
        ("EC-6", "EC-6a"),
        "first occurrence consumed, later one pending",
        "0.10.2",
    ),
    Fault(
        "stale-notice",
        "vLLM PR #52482",
        "An entry evicted and encoded again in one step is still reported as evicted",
        ENCODER_CACHE,
        ("EC-9",),
        "evicted and encoded again in one step",
        "0.10.2",
    ),
    Fault(
        "pending-items",
        "vLLM #22711",
        "Items of one request are admitted one by one and allocated together",
        ENCODER_CACHE,
        ("EC-3", "WM-3"),
        "pending items fill the cache",
        "0.10.1.1",
        "0.11.0",
    ),
    Fault(
        "decoder-notices",
        "vLLM PR #32789",
        "Encoder-decoder entries are reported in the step that makes them",
        LANES["encoder-decoder"],
        ("ED-3", "WM-4"),
        "decoder entry reported",
        "0.13.0",
        "0.18.1",
    ),
    Fault(
        "same-step",
        "no thread found; vLLM 0.32.0 mends it",
        "A second occurrence scheduled in the step that encodes the first is not claimed",
        ENCODER_CACHE,
        ("EC-6", "EC-6a"),
        "duplicate within one walk",
        "0.29.0",
        note="Earlier releases do not claim it either, and lose the item by the fault of PR #54284 "
        "first, whose lane therefore schedules one occurrence a step.",
    ),
    Fault(
        "resized",
        "vLLM #55547, PR #57696; vLLM 0.31.0 mends it",
        "An identifier that comes back with another size is credited what was never debited",
        LANES["reused media ids"],
        ("EC-1", "EC-2", "EC-3", "EC-5"),
        "identifier with another size",
        "0.10.2",
    ),
    Fault(
        "preempted",
        "no thread found; the mechanism in vLLM PR #53723",
        "A request preempted in the step that scheduled its item: the encode is dropped, "
        "the entry stays",
        SCHEDULER,
        ("WM-1", "WM-2"),
        "preempted after encode in the same step",
        "0.10.2",
        note="Up to 0.11.0 the victim's encode stays in the step's output, so the state that "
        "triggers the fault does not arise; 0.11.1 takes it out and leaves the entry in the cache.",
    ),
    Fault(
        "stale-notice-sent",
        "vLLM PR #52482",
        "The scheduler sends the notice of an entry evicted and encoded again in one step",
        PLAIN,
        ("EC-9",),
        "evicted and encoded again in one step",
        "0.10.2",
    ),
    Fault(
        "kept-waiting",
        "vLLM PR #31857",
        "A waiting request that gets no KV blocks keeps what it has hit",
        PLAIN,
        ("SC-6",),
        "stalled after a claim",
        "0.10.1.1",
        "0.18.1",
        kind="while waiting",
    ),
    Fault(
        "kept-preempted",
        "source of the releases; vLLM 0.10.2 mends it",
        "A preempted request keeps its entries",
        PLAIN,
        ("SC-6",),
        "preemption inside an item",
        "0.10.1.1",
        "0.14.1",
        kind="after a preemption",
    ),
    Fault(
        "split-item",
        "vLLM #52306, PR #52412",
        "An item that must stay whole is split when a chunk starts on it",
        PLAIN,
        ("SC-4",),
        "whole item that does not fit",
        "0.10.2",
    ),
    Fault(
        "media-forms",
        "vLLM PR #17378",
        "Arrays and images are hashed by their bytes alone, without shape, dtype, size or palette",
        LANES["media hash"],
        ("MH-3a",),
        "another form over the same bytes",
        "0.8.5",
        "0.9.0.1",
        note="Other contents (MH-3) are confused by every release: see [the media hash]"
        "(media-hash.md).",
    ),
    Fault(
        "moved-item",
        "vLLM PR #36708",
        "A block key names an item and not where in the block it stands",
        LANES["block keys of items"],
        ("BK-1", "BK-2"),
        "item moved in an equal block",
        "0.10.1.1",
        "0.27.1",
    ),
    Fault(
        "grown-block",
        "vLLM PR #51694; vLLM 0.31.0 mends it",
        "A block that fills while decoding names only the last item of the request",
        LANES["block keys while decoding"],
        ("BK-3", "BK-1", "BK-2"),
        "several items in the last block",
        "0.10.2",
    ),
    Fault(
        "zero-embedding",
        "vLLM #56655, PR #56656",
        "A zero embedding and token 0 make one key, in prompts that mix tokens and embeddings",
        LANES["block keys"],
        ("BK-1", "BK-2"),
        "tokens and embeddings mixed",
        "0.31.0",
        note="Before 0.31.0 the same contracts break in this lane for other reasons: see "
        "[grown-block](../../faults/grown-block/page.md).",
    ),
)


class Found(msgspec.Struct, frozen=True):
    """The first break: where, how small it became, and how long the search took."""

    contract: str
    seed: int
    events: int
    replays: str
    seconds: float
    sentence: str


class Outcome(msgspec.Struct, frozen=True):
    """What a search of one release for one fault came to. `seconds` is the whole search."""

    fault: str
    release: str
    found: Found | None
    triggered: int
    calls: int
    seconds: float

    @property
    def word(self) -> str:
        """The outcome in a word."""
        if self.found is not None:
            return "found"
        return "silent" if self.triggered >= TRIGGERED_ENOUGH else "not enough"


def hunt(fault: Fault, target: Target, seconds: float) -> Outcome:
    """Search one release for one fault. Raises HarnessError when the search itself broke."""
    started = time.monotonic()
    reach = Reachability()
    breaks: dict[str, tuple[Break, float]] = {}
    calls = 0
    for first in itertools.count(0, SEEDS_AT_A_TIME):
        spent = time.monotonic() - started
        if spent > seconds or fault.contracts[0] in breaks:
            break
        campaign = search(
            target,
            [fault.lane],
            against=None,
            seeds=range(first, first + SEEDS_AT_A_TIME),
            seconds=seconds - spent,
        )
        if campaign.harness_errors:
            raise HarnessError(campaign.harness_errors[0])
        calls += campaign.calls
        reach.add(campaign.lanes[0].reach)
        for found in campaign.breaks:
            if fault.explains(found):
                breaks.setdefault(found.contract, (found, spent + found.seconds))
    spent = time.monotonic() - started
    found = _written_down(fault, target, breaks)
    assert target.release is not None
    return Outcome(
        fault.key, target.release, found, reach.met[fault.trigger], calls, round(spent, 1)
    )


def _written_down(
    fault: Fault, target: Target, breaks: dict[str, tuple[Break, float]]
) -> Found | None:
    contract = next((rule for rule in fault.contracts if rule in breaks), None)
    if contract is None:
        return None
    found, seconds = breaks[contract]
    finding = found_in(target, found.trace, contract, kind=found.kind, times=REPLAYS)
    if finding is None or found.trace.header.seed is None:
        raise HarnessError(f"{target.name} does not break {contract} a second time")
    return Found(
        contract,
        found.trace.header.seed,
        len(finding.events),
        finding.replays,
        round(seconds, 2),
        finding.sentence,
    )


def page(outcomes: Sequence[Outcome]) -> str:
    """docs/evidence/rediscovery.md."""
    by_place = {(outcome.fault, outcome.release): outcome for outcome in outcomes}
    versions = sorted({outcome.release for outcome in outcomes}, key=order)
    lines = [
        "# Faults of real releases, found again by seeds",
        "",
        "Each search starts at seed 0, knows nothing of the fault but the lane that can show it,",
        f"and has {SECONDS:.0f} seconds for a release. *Found* names the first seed whose trace",
        "breaks the contract, the events that are left after shrinking, and the seconds that the",
        "search took with the release's host already running. *Silent* counts only when the state",
        f"that triggers the fault was reached at least {TRIGGERED_ENOUGH} times (*triggered*);",
        "with less it says *not enough*. *No thread found* is what a search of stored threads",
        "came to: see [the faults](../../faults/README.md).",
        "",
        f"    {COMMAND} --again",
        "",
        "makes this page; without `--again` it goes on where it stopped. `--fault` and `--release`",
        "pick parts of it.",
        "",
        "| release | " + " | ".join(f"[{fault.key}](#{fault.key})" for fault in FAULTS) + " |",
        "|---" * (len(FAULTS) + 1) + "|",
    ]
    for version in versions:
        cells = [by_place.get((fault.key, version)) for fault in FAULTS]
        lines.append(f"| {version} | " + " | ".join(c.word if c else "" for c in cells) + " |")
    for fault in FAULTS:
        lines += _section(fault, [by_place.get((fault.key, version)) for version in versions])
    return "\n".join(lines) + "\n"


def _section(fault: Fault, outcomes: Sequence[Outcome | None]) -> list[str]:
    lines = [
        "",
        f"## {fault.key}",
        "",
        f"{fault.title} ({fault.thread}). Lane: {fault.lane.name}. "
        f"Contracts: {', '.join(fault.contracts)}.",
        f"Trigger: {fault.trigger} ({RARE_STATES[fault.trigger]}).",
        *([fault.note] if fault.note else []),
        "",
        "| release | outcome | contract | seed | events after shrinking | replays alike | "
        "seconds to find | triggered | calls judged |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for outcome in outcomes:
        if outcome is None:
            continue
        found = outcome.found
        what = (
            f"{found.contract} | {found.seed} | {found.events} | {found.replays} | {found.seconds}"
            if found
            else f"| | | | none in {outcome.seconds:.0f}"
        )
        lines.append(
            f"| {outcome.release} | {outcome.word} | {what} | {outcome.triggered:,} | "
            f"{outcome.calls:,} |"
        )
    return lines


def _installed(fault: Fault, wanted: Sequence[str]) -> list[str]:
    versions = sorted((release.version for release in releases.list_installed()), key=order)
    return [
        version
        for version in versions
        if order(fault.first) <= order(version)
        and (fault.last is None or order(version) <= order(fault.last))
        and (not wanted or version in wanted)
    ]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    keys = [fault.key for fault in FAULTS]
    parser.add_argument("--fault", action="append", choices=keys, default=[], help="only this one")
    parser.add_argument("--release", action="append", default=[], help="only this one")
    parser.add_argument("--seconds", type=float, default=SECONDS, help="budget of one search")
    parser.add_argument("--again", action="store_true", help="search again what is on file")
    options = parser.parse_args()
    calm_collector()
    kept = (
        msgspec.json.decode(OUTCOMES.read_bytes(), type=list[Outcome]) if OUTCOMES.exists() else []
    )
    outcomes = {(outcome.fault, outcome.release): outcome for outcome in kept}
    for fault in FAULTS:
        if options.fault and fault.key not in options.fault:
            continue
        for version in _installed(fault, options.release):
            if (fault.key, version) in outcomes and not options.again:
                continue
            outcome = _searched(fault, version, options.seconds)
            if outcome is None:
                continue
            outcomes[fault.key, version] = outcome
            _keep([*outcomes.values()])
            print(f"{fault.key:16} {version:9} {outcome.word:10} {_told(outcome)}", flush=True)
    PAGE.write_text(page([*outcomes.values()]))


def _searched(fault: Fault, version: str, seconds: float) -> Outcome | None:
    """The outcome; None, with a word about it, when the release's host broke."""
    target = resolve(f"vllm@{version}", report=print)
    try:
        assert target.protocol  # starts the host: its imports are no part of the search
        return hunt(fault, target, seconds)
    except HarnessError as error:
        print(f"{fault.key:16} {version:9} void       {error}", flush=True)
        return None
    finally:
        target.close()


def _keep(outcomes: list[Outcome]) -> None:
    keys = [fault.key for fault in FAULTS]
    outcomes.sort(key=lambda outcome: (keys.index(outcome.fault), order(outcome.release)))
    OUTCOMES.write_bytes(msgspec.json.format(msgspec.json.encode(outcomes), indent=1) + b"\n")


def _told(outcome: Outcome) -> str:
    if outcome.found is None:
        return f"after {outcome.seconds} s, triggered {outcome.triggered} times"
    found = outcome.found
    return f"{found.contract} seed {found.seed}, {found.events} events, {found.seconds} s"


if __name__ == "__main__":
    main()
