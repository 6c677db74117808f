"""What a running audit knows, as metrics for Prometheus."""

import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping

from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from cacheproof.differential.audit.auditor import Auditor
from cacheproof.spec.records import DecoderCacheState, EncoderCacheState
from cacheproof.spec.registry import by_id

PREFIX = "cacheproof"
HOLDERS_MAX = 10
"""Most requests that are named, by how much they hold; a label must not have endless values."""


class Metrics(Collector):
    """The metrics of an audit as it was when `publish` was called last: what reads them is another
    thread."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self._families: list[Metric] = []
        self.registry.register(self)

    def publish(self, auditors: Mapping[str, Auditor]) -> None:
        """Take what the auditors, by engine, know now."""
        self._families = list(_families(auditors))

    def collect(self) -> Iterable[Metric]:
        """The families that were published last."""
        return self._families


class _Family:
    """A family of metrics whose first label is the engine."""

    def __init__(self, kind: type, name: str, words: str, labels: tuple[str, ...] = ()) -> None:
        self.metric = kind(f"{PREFIX}_{name}", words, labels=("engine", *labels))

    def add(self, value: float, *labels: str) -> None:
        self.metric.add_metric(labels, value)


def _families(auditors: Mapping[str, Auditor]) -> Iterator[Metric]:
    yield from _of_the_audit(auditors)
    yield from _of_the_cache(auditors)
    yield from _of_requests(auditors)


def _of_the_audit(auditors: Mapping[str, Auditor]) -> Iterator[Metric]:
    steps = _Family(CounterMetricFamily, "steps", "Steps that were recorded")
    judged = _Family(CounterMetricFamily, "judged_steps", "Steps that were judged")
    stores = _Family(
        CounterMetricFamily, "compared_stores", "Steps after which a worker's store was compared"
    )
    lost = _Family(CounterMetricFamily, "lost_records", "Records that the engine could not write")
    gaps = _Family(CounterMetricFamily, "gaps", "Places where the record has a gap")
    delay = _Family(
        GaugeMetricFamily, "last_record_timestamp_seconds", "Time of the last record, in Unix time"
    )
    broken = _Family(
        CounterMetricFamily,
        "broken_contracts",
        "Times that a contract was broken",
        ("contract", "harm"),
    )
    raised = _Family(
        CounterMetricFamily, "raised", "Exceptions of the engine", ("operation", "error")
    )
    for engine, auditor in auditors.items():
        account = auditor.account
        steps.add(account.steps, engine)
        judged.add(account.judged_steps, engine)
        stores.add(account.stores, engine)
        lost.add(account.lost, engine)
        gaps.add(account.gap_count, engine)
        delay.add(auditor.now or time.time(), engine)
        times: Counter[str] = Counter()
        for (contract, _), count in account.broken.items():
            times[contract] += count
        for contract, count in times.items():
            broken.add(count, engine, contract, by_id(contract).harm)
        for what, count in account.raised.items():
            operation, _, error = what.partition(": ")
            raised.add(count, engine, operation, error)
    for family in (steps, judged, stores, lost, gaps, delay, broken, raised):
        yield family.metric


def _of_the_cache(auditors: Mapping[str, Auditor]) -> Iterator[Metric]:
    room = _Family(
        GaugeMetricFamily,
        "encoder_cache_embeddings",
        "Embeddings of the encoder cache that requests need, that are idle, and that are free",
        ("state",),
    )
    entries = _Family(
        GaugeMetricFamily, "encoder_cache_entries", "Entries of the encoder cache", ("state",)
    )
    held = _Family(
        GaugeMetricFamily,
        "encoder_cache_held_embeddings",
        f"Embeddings that a request holds, of the {HOLDERS_MAX} that hold most",
        ("request",),
    )
    hits = _Family(
        CounterMetricFamily, "encoder_cache_hits", "Items of requests that the cache had"
    )
    encodes = _Family(CounterMetricFamily, "encoder_cache_encodes", "Entries that were taken in")
    evictions = _Family(CounterMetricFamily, "encoder_cache_evictions", "Entries that were evicted")
    for engine, auditor in auditors.items():
        traffic = auditor.account.traffic
        hits.add(traffic.hits, engine)
        encodes.add(traffic.encodes, engine)
        evictions.add(traffic.evictions, engine)
        state = None if auditor.judge is None else auditor.judge.state
        if isinstance(state, DecoderCacheState):
            room.add(state.capacity - state.free_slots, engine, "needed")
            room.add(state.free_slots, engine, "free")
        elif isinstance(state, EncoderCacheState):
            idle = sum(state.queue.values())
            room.add(state.capacity - state.free_slots - idle, engine, "needed")
            room.add(idle, engine, "idle")
            room.add(state.free_slots, engine, "free")
            entries.add(len(state.size) - len(state.queue), engine, "needed")
            entries.add(len(state.queue), engine, "idle")
            for request, size in _holders(state).most_common(HOLDERS_MAX):
                held.add(size, engine, request)
    for family in (room, entries, held, hits, encodes, evictions):
        yield family.metric


def _holders(state: EncoderCacheState) -> Counter[str]:
    """Embeddings by the request that holds them; what several hold counts for each."""
    sizes: Counter[str] = Counter()
    for identifier, requests in state.holders.items():
        for request in requests:
            sizes[request] += state.size.get(identifier, 0)
    return sizes


def _of_requests(auditors: Mapping[str, Auditor]) -> Iterator[Metric]:
    requests = _Family(GaugeMetricFamily, "requests", "Requests by what they do", ("state",))
    oldest = _Family(
        GaugeMetricFamily,
        "oldest_waiting_request_age_seconds",
        "Time since the arrival of the waiting request that arrived first",
    )
    blocks = _Family(
        GaugeMetricFamily, "kv_blocks", "KV blocks, by whether anybody holds them", ("state",)
    )
    for engine, auditor in auditors.items():
        follower = auditor.follower
        if follower is None:
            continue
        requests.add(len(follower.running), engine, "running")
        requests.add(len(follower.waiting), engine, "waiting")
        # A record can name one that is not there: a contract is broken, and it has no age.
        known = follower.arrivals
        arrivals = [known[name] for name in follower.waiting if name in known]
        oldest.add(max(0.0, auditor.now - min(arrivals)) if arrivals else 0.0, engine)
        blocks.add(follower.free_blocks, engine, "free")
    for family in (requests, oldest, blocks):
        yield family.metric
