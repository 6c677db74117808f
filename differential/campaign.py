"""A seeded search over one target: generate, run, judge, compare, and keep what breaks.

Work is cut into lanes (a depth, a kind of manager, a kind of workload); seeds are dealt to the
lanes in turn. While the host runs a few batches, this process judges the ones before, so that host
and reference work side by side, and neither waits where one lane costs the other more.
"""

import itertools
import time
from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from types import MappingProxyType

from cacheproof.differential.block_hash_generator import block_hash_trace
from cacheproof.differential.encoder_decoder_generator import encoder_decoder_trace
from cacheproof.differential.engine_generator import engine_trace
from cacheproof.differential.errors import HarnessError
from cacheproof.differential.examine import Examination, examine
from cacheproof.differential.generator import manager_trace
from cacheproof.differential.kv_cache_generator import drafted_kv_cache_trace, kv_cache_trace
from cacheproof.differential.media_hash_generator import media_hash_trace
from cacheproof.differential.reachability import Reachability
from cacheproof.differential.record import TraceResult
from cacheproof.differential.scheduler_generator import scheduler_trace
from cacheproof.differential.targets.base import Target
from cacheproof.differential.targets.process import HostTarget
from cacheproof.differential.targets.reference import ReferenceTarget
from cacheproof.differential.trace import AnyEvent, Schedule, Trace
from cacheproof.differential.whisper_generator import whisper_trace
from cacheproof.spec.versions import release_key

BATCH_TRACES = 5
BATCHES_AHEAD = 4
HARNESS_ERRORS_MAX = 5
_COMMON = frozenset({"repeated item", "shared", "rescue", "eviction", "full"})
_ENCODER_CACHE = _COMMON | {
    "item as large as the cache",
    "several evictions at once",
    "evicted and encoded again in one step",
    "first occurrence consumed, later one pending",
    "duplicate within one walk",
    "admitted beside pending items",
    "pending items fill the cache",
    "refused by budget",
    "refused by space",
    "sparse item",
    "no embeddings in the window",
    "abort inside an item",
    "preemption inside an item",
    "stalled after a claim",
    "released again",
    "reset with entries",
    "encoded anew after an eviction",
}
_SCHEDULER = (
    _ENCODER_CACHE
    - {
        "duplicate within one walk",
        "no embeddings in the window",
    }
) | {
    "preempted after encode in the same step",
    "whole item that does not fit",
    "stopped before an item",
    "rolled back before an item",
    "drafter at an item's edge",
    "drafts rejected",
    "hit after preemption",
    "prompt continued",
    "session waits for more prompt",
}

_DECODERS = frozenset(
    {
        "refused by budget",
        "refused by space",
        "decoder item released again",
        "decoder item encoded again",
        "decoder entry reported",
        "cross-attention blocks",
    }
)
_OF_ITEMS_IN_PROMPTS = frozenset({"SC-2", "SC-3", "SC-4", "SC-5", "SC-11", "DF-1"})
_OF_KV_BLOCKS = frozenset({"SC-14", "SC-15", "SC-16", "SC-17"})
"""Not followed over several groups, nor where KV comes from elsewhere."""
_WINDOWS = frozenset(
    {
        "hit in several groups",
        "null blocks in a hit",
        "blocks behind a window given back",
    }
)
_LOADS = frozenset(
    {
        "loaded from elsewhere",
        "waits for a transfer",
        "preempted after a load in the same step",
        "evicted and loaded in one step",
        "transfer failed",
    }
)
_KV_LOADS = frozenset(
    {
        "load under way",
        "load failed",
        "ended while loading",
        "KV loaded within a step",
        "KV loaded within a step failed",
        "KV sent",
        "thrown back for a failed load",
        "ended for a failed load",
        "caching put off until loaded",
        "free put off",
    }
)
_ENGINE = frozenset(
    {
        "repeated item",
        "shared",
        "rescue",
        "eviction",
        "full",
        "refused by budget",
        "refused by space",
        "preemption inside an item",
        "encoded anew after an eviction",
        "stopped before an item",
        "hit after preemption",
        "equal prompts decoded",
    }
)
_WHISPER = _DECODERS | {
    "began anew beside another item",
    "equal prompts decoded",
}
_WITHOUT_KV_CONNECTOR = frozenset({"KT-1", "KT-2", "KT-3"})
# The rows of an engine do not say what they are; those of the runner do.
_OF_AN_ENGINE = _WITHOUT_KV_CONNECTOR | {"WM-5", "WM-6"}
_KV_CACHE = frozenset(
    {
        "pool empty",
        "drafts rejected",
        "load failed",
        "hash of a held block removed",
        "reset refused",
        "reset with cached blocks",
        "groups disagree on a hit",
        "hit of a held block",
        "hit of a free block",
        "hit after preemption",
        "allocation refused",
        "prompt tail cached",
        "cached block handed out",
        "one hash on two blocks",
        "blocks behind a window given back",
        "free put off",
        "load under way",
        "several prompt tails on one block",
        "hit of a duplicate",
        "hit of a block whose free is put off",
        "hit in several groups",
        "null blocks in a hit",
        "every token cached",
        "load behind a hit",
        "load failed from the first token",
        "ended while loading",
        "preempted with a step in flight",
        "window moves beside a step in flight",
        "look-ahead past the model's end",
        "whole sequence refused",
        "refused beside reserved blocks",
        "cross-attention blocks",
        "common prefix",
    }
)
_ITEM_KEYS = frozenset(
    {
        "equal blocks share",
        "item ends on a block boundary",
        "item in two blocks",
        "item moved in an equal block",
    }
)
_MEDIA_HASH = frozenset(
    {
        "another form over the same bytes",
        "types over the same bytes",
        "names of arguments",
        "list against map",
        "type of a key",
        "dtype of an array",
        "shape of an array",
        "fields of an array",
        "array against tensor",
        "size of an image",
        "mode of an image",
        "palette of an image",
        "transparency of an image",
        "image id",
        "picture from one file",
        "frames from one file",
        "order of arguments",
        "order of a mapping",
        "layout of an array",
        "list or tuple",
        "huge int",
    }
)
_BLOCK_HASH = _ITEM_KEYS | frozenset(
    {
        "several items in the last block",
        "prompt of embeddings",
        "tokens and embeddings mixed",
        "adapter",
        "cache salt",
    }
)
_CONTINUED = _ITEM_KEYS | frozenset(
    {
        "prompt continued",
        "discarded token fills a block",
        "several items in a later chunk",
    }
)


@dataclass(frozen=True)
class Lane:
    """One kind of workload. `rare` are the states that a search of it must meet; `resized` lets
    an identifier come back with another size; `silent_on` are contracts that it cannot break, or
    hardly ever, and says nothing of; `by_release` traces differ with what a release offers;
    releases before `since` offer nothing of it."""

    name: str
    depth: str
    manager: str
    make: Callable[..., Trace]
    rare: frozenset[str]
    resized: bool = False
    silent_on: frozenset[str] = frozenset()
    by_release: bool = False
    since: str | None = None

    def __reduce__(self) -> tuple[object, ...]:
        """In another process it is the lane of that name: what makes its traces is no data."""
        return _lane_called, (self.name,)

    def is_offered_by(self, release: str | None) -> bool:
        """Whether the release has what the lane is about; None: whatever any release has."""
        if release is None or self.since is None:
            return True
        return release_key(release) >= release_key(self.since)

    def trace(self, seed: int, release: str | None) -> Trace:
        """The trace of a seed, of what the release offers; None: of all that any does."""
        return self.make(seed, release=release) if self.by_release else self.make(seed)


LANES = {
    lane.name: lane
    for lane in (
        Lane("encoder cache", "manager", "encoder_cache", manager_trace, _ENCODER_CACHE),
        Lane(
            "reused media ids",
            "manager",
            "encoder_cache",
            lambda seed: manager_trace(seed, resized=True),
            _COMMON | {"identifier with another size"},
            resized=True,
        ),
        Lane(
            "encoder-decoder",
            "manager",
            "encoder_decoder",
            lambda seed: manager_trace(seed, "encoder_decoder"),
            frozenset({"decoder item released again", "decoder entry reported"}),
        ),
        Lane(
            "encoder-decoder of several items",
            "manager",
            "encoder_decoder",
            lambda seed: manager_trace(seed, "encoder_decoder", several=True),
            frozenset({"decoder item released again", "admitted beside pending items"}),
        ),
        Lane(
            "scheduler",
            "scheduler",
            "encoder_cache",
            scheduler_trace,
            _SCHEDULER,
            silent_on=_WITHOUT_KV_CONNECTOR,
            by_release=True,
        ),
        Lane(
            "scheduler with loads",
            "scheduler",
            "encoder_cache",
            partial(scheduler_trace, transfers=True),
            _LOADS,
            # its traces let items be split; loads are no part of the compute budget
            silent_on=_WITHOUT_KV_CONNECTOR | {"SC-4", "SC-12"},
            by_release=True,
            since="0.11.1",
        ),
        Lane(
            "scheduler with reused media ids",
            "scheduler",
            "encoder_cache",
            partial(scheduler_trace, resized=True),
            _COMMON | {"identifier with another size", "reused media id rejected"},
            resized=True,
            silent_on=_WITHOUT_KV_CONNECTOR,
            by_release=True,
        ),
        Lane(
            "scheduler with windows",
            "scheduler",
            "encoder_cache",
            partial(scheduler_trace, windows=True),
            _WINDOWS,
            silent_on=_WITHOUT_KV_CONNECTOR | _OF_KV_BLOCKS,
            by_release=True,
        ),
        Lane(
            "scheduler of encoder-decoders",
            "scheduler",
            "encoder_decoder",
            encoder_decoder_trace,
            _DECODERS,
            # who waits holds no entry
            silent_on=_WITHOUT_KV_CONNECTOR | _OF_ITEMS_IN_PROMPTS | _OF_KV_BLOCKS | {"SC-6"},
            by_release=True,
            since="0.13.0",
        ),
        Lane(
            "scheduler with KV loads",
            "scheduler",
            "encoder_cache",
            partial(scheduler_trace, kv_transfers=True),
            _KV_LOADS,
            # who has loaded its KV goes first, and nearly always somebody waits for something
            silent_on=_OF_KV_BLOCKS | {"SC-7", "LV-3"},
            by_release=True,
            since="0.10.2",
        ),
        Lane(
            "LLaVA",
            "engine",
            "encoder_cache",
            engine_trace,
            _ENGINE,
            silent_on=_OF_AN_ENGINE,
        ),
        Lane(
            "Qwen2.5-VL",
            "engine",
            "encoder_cache",
            partial(engine_trace, model="qwen2_5_vl"),
            _ENGINE,
            silent_on=_OF_AN_ENGINE,
        ),
        Lane(
            "Qwen2.5-VL with pruned videos",
            "engine",
            "encoder_cache",
            partial(engine_trace, model="qwen2_5_vl", prunes=True),
            _ENGINE,
            silent_on=_OF_AN_ENGINE,
        ),
        Lane(
            "Whisper",
            "engine",
            "encoder_decoder",
            whisper_trace,
            _WHISPER,
            # who waits holds no entry; the rows of an engine do not say what they are
            silent_on=_WITHOUT_KV_CONNECTOR | _OF_ITEMS_IN_PROMPTS | {"SC-6", "WM-5", "WM-6"},
        ),
        Lane(
            "block keys",
            "block_hash",
            "block_hash",
            block_hash_trace,
            _BLOCK_HASH,
            by_release=True,
        ),
        Lane(
            "block keys of items",
            "block_hash",
            "block_hash",
            partial(block_hash_trace, items_only=True, decodes=False),
            _ITEM_KEYS,
            silent_on=frozenset({"BK-3"}),
            by_release=True,
        ),
        Lane(
            "block keys while decoding",
            "block_hash",
            "block_hash",
            partial(block_hash_trace, items_only=True, continues=False),
            _ITEM_KEYS | {"several items in the last block"},
            by_release=True,
        ),
        Lane(
            "block keys of continued requests",
            "block_hash",
            "block_hash",
            partial(block_hash_trace, items_only=True),
            _CONTINUED,
            by_release=True,
        ),
        Lane(
            "media hash",
            "media_hash",
            "media_hash",
            media_hash_trace,
            _MEDIA_HASH,
            by_release=True,
        ),
        Lane("KV cache", "kv_cache", "kv_cache", kv_cache_trace, _KV_CACHE),
        Lane(
            "KV cache beside a drafter",
            "kv_cache",
            "kv_cache",
            drafted_kv_cache_trace,
            frozenset({"hit of a free block", "groups disagree on a hit", "hit in several groups"}),
            since="0.23.0",
        ),
    )
}


def _lane_called(name: str) -> Lane:
    return LANES[name]


@dataclass(frozen=True)
class Break:
    """A trace that breaks something: a contract by id, in a kind that its judge tells apart, or the
    lockstep, and when it was found."""

    contract: str
    kind: str
    lane: Lane
    trace: Trace
    event: int
    sentence: str
    seconds: float

    @property
    def place(self) -> tuple[str, str, str, str | None]:
        """What is broken and where: breaks of one place may be one fault."""
        return self.contract, self.lane.name, self.kind, self.trace.runner


@dataclass
class Work:
    """How much was run: `steps` of a scheduler, `calls` that were judged."""

    traces: int = 0
    events: int = 0
    steps: int = 0
    calls: int = 0

    def add(self, events: Sequence[AnyEvent], calls: int) -> None:
        """One more trace, of which these events were run."""
        self.traces += 1
        self.events += len(events)
        self.steps += sum([type(event) is Schedule for event in events])
        self.calls += calls

    def sum(self, other: "Work") -> None:
        """As much more as was run elsewhere."""
        self.traces += other.traces
        self.events += other.events
        self.steps += other.steps
        self.calls += other.calls


@dataclass
class LaneReport(Work):
    """What a campaign did in one lane, and what of it was `compared` with the reference; None where
    it had none beside. `traces` has those as well that the release refused."""

    lane: Lane = field(kw_only=True)
    resident_sum: int = 0
    compared: Work | None = None
    illegal: Counter[str] = field(default_factory=Counter)
    reach: Reachability = field(default_factory=Reachability)

    def merge(self, other: "LaneReport") -> None:
        """Take in what was done in the same lane elsewhere."""
        self.sum(other)
        self.resident_sum += other.resident_sum
        if self.compared is not None and other.compared is not None:
            self.compared.sum(other.compared)
        self.illegal.update(other.illegal)
        self.reach.add(other.reach)

    @property
    def never_met(self) -> list[str]:
        """Rare states of this lane that the search did not meet."""
        return self.reach.never(self.lane.rare) if self.traces else []


@dataclass
class Campaign:
    """The outcome of a search. `breaks` keeps a few traces for each broken contract, lane, kind of
    break and model runner; `broken` and `kinds` count traces by contract and lane, and by kind as
    well."""

    target: str
    release: str | None
    lanes: list[LaneReport]
    breaks: list[Break]
    broken: Counter[tuple[str, str]]
    kinds: Counter[tuple[str, str, str]]
    harness_errors: list[str]
    seconds: float

    @classmethod
    def begun(
        cls, target: Target, lanes: Sequence[Lane], against: ReferenceTarget | None
    ) -> "Campaign":
        """A campaign of which nothing was run yet."""
        reports = [LaneReport(lane=lane, compared=Work() if against else None) for lane in lanes]
        return cls(target.name, target.release, reports, [], Counter(), Counter(), [], 0.0)

    @property
    def calls(self) -> int:
        return sum(report.calls for report in self.lanes)

    def merge(self, part: "Campaign", began: float, kept_per_break: int) -> list[Break]:
        """Take in a part of the same search, which began so many seconds after it.

        Returns:
            The breaks that are kept of it.
        """
        reports = {report.lane.name: report for report in self.lanes}
        for report in part.lanes:
            reports[report.lane.name].merge(report)
        self.broken.update(part.broken)
        self.kinds.update(part.kinds)
        self.harness_errors += part.harness_errors
        kept = Counter(one.place for one in self.breaks)
        news = []
        for one in part.breaks:
            kept[one.place] += 1
            if kept[one.place] <= kept_per_break:
                news.append(replace(one, seconds=began + one.seconds))
        self.breaks += news
        return news


Progress = Callable[[LaneReport, int], None]
Batch = tuple[LaneReport, list[Trace]]
_NO_FURTHER: Mapping[str, Sequence[int]] = MappingProxyType({})


def search(
    target: Target,
    lanes: Sequence[Lane],
    *,
    against: ReferenceTarget | None,
    seeds: Sequence[int] | None = None,
    seconds: float | None = None,
    further: Mapping[str, Sequence[int]] = _NO_FURTHER,
    kept_per_break: int = 3,
    progress: Progress = lambda lane, done: None,
) -> Campaign:
    """Search `target` over `seeds` of every lane (None: all, from 0), for about `seconds` at most.

    Behind them come those `further` seeds, by the name of their lane, that are not among `seeds`.
    Of each contract broken in a lane the first `kept_per_break` traces of each kind and each model
    runner are kept.
    A host that breaks is restarted and its batch counted as a harness error; after a few of those
    the search gives up.
    """
    started = time.monotonic()
    outcome = Campaign.begun(target, lanes, against)
    reports = outcome.lanes
    kept: Counter[tuple[str, str, str, str | None]] = Counter()

    def out_of_time() -> bool:
        return seconds is not None and time.monotonic() - started > seconds

    batches = itertools.chain(
        _batches(reports, target.model, seeds, out_of_time),
        _further_batches(reports, target.model, seeds, further),
    )
    for (report, traces), results in _executed(target, batches, outcome.harness_errors):
        try:
            for trace, result in zip(traces, results, strict=True):
                seen = examine(trace, result, target, against, report.reach)
                _tally(report, seen, trace.events[: len(result.records)])
                for contract, kind, event, sentence in seen.breaks():
                    elapsed = time.monotonic() - started
                    found = Break(contract, kind, report.lane, trace, event, sentence, elapsed)
                    outcome.kinds[contract, report.lane.name, kind] += 1
                    kept[found.place] += 1
                    if kept[found.place] <= kept_per_break:
                        outcome.breaks.append(found)
                outcome.broken.update((contract, report.lane.name) for contract in seen.broken)
        except HarnessError as error:
            outcome.harness_errors.append(f"{report.lane.name}: {error}")
        progress(report, len(traces))
    outcome.seconds = time.monotonic() - started
    return outcome


def _tally(report: LaneReport, seen: Examination, events: Sequence[AnyEvent]) -> None:
    if seen.illegal is not None:
        report.traces += 1
        report.illegal[seen.illegal] += 1
        return
    report.add(events, seen.calls)
    report.resident_sum += seen.resident_sum
    if report.compared is not None and seen.compared:
        report.compared.add(events, seen.calls)


def _batches(
    reports: Sequence[LaneReport],
    release: str | None,
    seeds: Sequence[int] | None,
    out_of_time: Callable[[], bool],
) -> Iterator[Batch]:
    """Batches of every lane in turn, until the seeds or the time are used up."""
    all_seeds = itertools.count() if seeds is None else iter(seeds)
    while batch := list(itertools.islice(all_seeds, BATCH_TRACES)):
        for report in reports:
            if out_of_time():
                return
            yield report, [report.lane.trace(seed, release) for seed in batch]


def _further_batches(
    reports: Sequence[LaneReport],
    release: str | None,
    seeds: Sequence[int] | None,
    further: Mapping[str, Sequence[int]],
) -> Iterator[Batch]:
    """A batch of each lane that has seeds of its own."""
    for report in reports:
        own = [seed for seed in further.get(report.lane.name, ()) if seed not in (seeds or ())]
        if own:
            yield report, [report.lane.trace(seed, release) for seed in own]


def _executed(
    target: Target, batches: Iterator[Batch], errors: list[str]
) -> Iterator[tuple[Batch, list[TraceResult]]]:
    """Each batch with its results; a host already has the next ones while one is handed out."""
    at_host: deque[Batch] = deque()
    for batch in itertools.chain(batches, [None]):
        if batch is not None:
            at_host.append(batch)
            try:
                _submit(target, batch)
            except HarnessError as error:
                _restart(target, at_host, error, errors)
        while at_host and (batch is None or len(at_host) > BATCHES_AHEAD):
            try:
                results = _results(target, at_host[0][1])
            except HarnessError as error:
                _restart(target, at_host, error, errors)
            else:
                yield at_host.popleft(), results
        if len(errors) >= HARNESS_ERRORS_MAX:
            return


def _restart(target: Target, at_host: deque[Batch], error: HarnessError, errors: list[str]) -> None:
    """The host broke over its oldest batch, which is lost; those behind it are sent again."""
    while at_host:
        report, traces = at_host.popleft()
        errors.append(f"{report.lane.name}, from seed {traces[0].header.seed}: {error}")
        try:
            for later in at_host:
                _submit(target, later)
            return
        except HarnessError as another:
            error = another


def _results(target: Target, traces: list[Trace]) -> list[TraceResult]:
    return target.collect(len(traces)) if isinstance(target, HostTarget) else target.run(traces)


def _submit(target: Target, batch: Batch) -> None:
    if isinstance(target, HostTarget):
        target.submit(batch[1])
