"""Searches a hasher of media for pairs of calls that it confuses or fails to join.

Batches of generated pairs go to a target; its digests are judged, compared with the reference's,
and remembered, so that calls of different pairs are held against each other too.
"""

from collections import Counter
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

from cacheproof.differential.errors import InputError
from cacheproof.differential.lockstep import compare
from cacheproof.differential.media_hash import Description, MediaHashJudge, content
from cacheproof.differential.media_hash_generator import GENERATOR, Pair, pair
from cacheproof.differential.record import TraceResult
from cacheproof.differential.targets.media_hash import MediaHashTarget

BATCH = 200
REMEMBERED = 2_000_000


def trace_of(one: Pair, algorithm: str = "blake3") -> dict[str, Any]:
    """The trace of a pair, as JSON data."""
    header = {
        "depth": "media_hash",
        "schema": 1,
        "manager": "media_hash",
        "config": {"algorithm": algorithm},
        "generator": GENERATOR,
    }
    values = (one.first, one.second)
    return {"header": header, "events": [{"event": "hash", "value": value} for value in values]}


@dataclass
class Search:
    """One search and what it has found.

    `found` maps (contract, way of the pair) to the first seed; `counts` says how often. `parted`
    lists seeds on which target and reference differ. `stray` counts, by their ways, calls of two
    pairs that share a digest though their contents differ. `reached` counts the pairs of each way
    of which both calls were hashed.
    """

    target: MediaHashTarget
    reference: MediaHashTarget | None = None
    algorithm: str = "blake3"
    fault: str | None = None
    found: dict[tuple[str, str], int] = field(default_factory=dict)
    counts: Counter[tuple[str, str]] = field(default_factory=Counter)
    reached: Counter[str] = field(default_factory=Counter)
    parted: list[tuple[int, str]] = field(default_factory=list)
    stray: Counter[tuple[str, str]] = field(default_factory=Counter)
    hashed: int = 0

    def __post_init__(self) -> None:
        self._seen: dict[str, tuple[int, str, int]] = {}

    def run(self, seeds: range) -> None:
        """Search the pairs of these seeds, in order.

        Raises:
            HarnessError: a host breaks.
            InputError: the target cannot hash with this algorithm.
        """
        for start in range(seeds.start, seeds.stop, BATCH):
            numbers = range(start, min(start + BATCH, seeds.stop))
            pairs = [pair(seed) for seed in numbers]
            traces: Any = [trace_of(one, self.algorithm) for one in pairs]
            if self.reference is not None:
                self.reference.submit(traces)
            results = self.target.run(traces, self.fault)
            for seed, one, result in zip(numbers, pairs, results, strict=True):
                self._take(seed, one, result)
            if self.reference is not None:
                expected = self.reference.collect(len(pairs))
                for seed, theirs, ours in zip(numbers, results, expected, strict=True):
                    difference = compare(ours, theirs)
                    if difference is not None:
                        self.parted.append((seed, difference.sentence))

    def _take(self, seed: int, one: Pair, result: TraceResult) -> None:
        if result.illegal is not None:
            raise InputError(
                f"target {self.target.name}: {result.illegal}; expected an algorithm that it offers"
            )
        judge = MediaHashJudge(self.target.release)
        values = (one.first, one.second)
        for number, (value, record) in enumerate(zip(values, result.records, strict=True)):
            judge.judge(number, SimpleNamespace(value=value), record)
            outcome = record[0]
            if outcome is not None and "digest" in outcome:
                self._remember(seed, one.way, value, outcome["digest"])
        self.hashed += judge.calls_judged
        self.reached[one.way] += judge.calls_judged == len(values)
        for contract in judge.violations:
            self.counts[contract, one.way] += 1
            self.found.setdefault((contract, one.way), seed)

    def _remember(self, seed: int, way: str, value: Description, digest: str) -> None:
        meaning = hash(content(value))
        if digest not in self._seen and len(self._seen) < REMEMBERED:
            self._seen[digest] = (seed, way, meaning)
        earlier, other_way, seen = self._seen.get(digest, (seed, way, meaning))
        if seen != meaning and earlier != seed:
            self.stray[other_way, way] += 1
