"""Judges the KV cache manager: after every event the contracts of the pool, and of each answer."""

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

import cacheproof.spec.kv_cache
from cacheproof.differential.judge import Violation
from cacheproof.differential.reachability import Reachability
from cacheproof.differential.record import StepRecord
from cacheproof.reference.semantics import Semantics
from cacheproof.spec.block_pool import PoolEvents, PoolRelease, PoolState, StoredBlocks
from cacheproof.spec.kv_cache import Grant, Lookup, Outcome, Tables
from cacheproof.spec.registry import Contract, contracts

Event = Mapping[str, Any]
MANAGER = cacheproof.spec.kv_cache.COMPONENT


class _Known:
    """What the judge knows of a request: how many tokens, the numbers of its hashes."""

    def __init__(self, tokens: int, hashes: list[int]) -> None:
        self.tokens = tokens
        self.hashes = hashes
        self.preempted = False


class KVCacheJudge:
    """Judges one trace. `violations` holds the first violation of each contract.

    `semantics` are those of the release judged, which says in what order it releases blocks.
    """

    state = None
    stored: Mapping[str, int] = {}
    resident_sum = 0

    def __init__(
        self, config: Event, semantics: Semantics, release: str | None, reach: Reachability
    ) -> None:
        self.violations: dict[str, Violation] = {}
        self.calls_judged = 0
        self._config = config
        self._semantics = semantics
        self._meet = reach.meet
        self._rules: dict[type, list[Contract]] = {}
        for rule in contracts(MANAGER, release):
            (kind,) = set(rule.predicate.__annotations__.values()) - {bool}
            self._rules.setdefault(kind, []).append(rule)
        blocks = range(1, config["num_blocks"])
        self._free = len(blocks)
        self._queue = tuple(blocks)
        self._refs = dict.fromkeys(blocks, 0)
        self._hashes: dict[int, tuple[str, ...]] = dict.fromkeys(blocks, ())
        self._found: dict[str, tuple[int, ...]] = {}
        self._tables: dict[str, list[list[int]]] = {}
        self._put_off: list[list[int]] = []
        self._replayed: Counter[str] = Counter()
        self._requests: dict[str, _Known] = {}
        sizes = [group["block_size"] for group in config["groups"]]
        self._scales = [size // min(sizes) for size in sizes]

    @property
    def pool(self) -> PoolState:
        """The pool as the records say that it is."""
        held = Counter(
            block
            for blocks in (
                *(table for tables in self._tables.values() for table in tables),
                *self._put_off,
            )
            for block in blocks
            if block
        )
        return PoolState(
            self._config["num_blocks"],
            self._free,
            self._queue,
            self._refs,
            held,
            self._hashes,
            self._found,
        )

    def judge(self, number: int, event: Any, record: StepRecord) -> None:
        """Judge the record of event number `number`; the event may also be plain data."""
        if isinstance(event, msgspec.Struct):
            event = msgspec.to_builtins(event)
        outcome, _, raised, _ = record
        place = (number, event["event"], event.get("request", ""))
        self._check("c", Outcome(raised[0] if raised else ""), place)
        if raised or outcome is None:
            return
        self._follow(event, outcome["answer"])
        for operation, name, _, answer in outcome["calls"]:
            if operation == "get_computed_blocks":
                self._look_up(self._requests[name], answer, place)
        before = self._queue
        due = self._due(event, outcome)
        self._apply(outcome["changed"])
        self._put_off_or_free(event, outcome["answer"])
        for operation, name, _, answer in outcome["calls"]:
            if operation == "allocate_slots":
                self._grant(self._requests[name], answer, place)
        if outcome["changed"]:
            self._check("s", self.pool, place)
            if "tables" in outcome["changed"]:
                self._check("s", self._places(), place)
        if due is not None:
            self._check("w", PoolRelease(before, self._queue, *due), place)
        if event["event"] == "take_events" and self._config["kv_events"]:
            for stored in (told for told in outcome["answer"] if told[0] == "stored"):
                covered = len(stored[1]) * stored[3]["block_size"]
                blocks = StoredBlocks(len(stored[3]["token_ids"]), covered)
                self._check("w", blocks, place)
            self._replay(outcome["answer"])
            found = self._per_hash({key: len(blocks) for key, blocks in self._found.items()})
            self._check("w", PoolEvents(+self._replayed, found), place)
        if self._free == 0:
            self._meet("pool empty")

    def _places(self) -> Tables:
        places: dict[int, frozenset[tuple[int, int]]] = {}
        for tables in self._tables.values():
            for group, table in enumerate(tables):
                for position, block in enumerate(table):
                    if block:
                        known = places.get(block, frozenset())
                        places[block] = known | {(group, position)}
        return Tables(places)

    def _check(self, letter: str, subject: Any, place: tuple[int, str, str]) -> None:
        self.calls_judged += 1
        for rule in self._rules.get(type(subject), ()):
            if rule.id not in self.violations and not rule.predicate(subject):
                why = rule.explain(**{letter: subject})
                self.violations[rule.id] = Violation(rule, *place, "", why)

    def _follow(self, event: Event, answer: Any) -> None:
        """Keep up with what the requests are."""
        kind, name = event["event"], event.get("request", "")
        if kind == "arrive" and answer is not None:
            self._requests[name] = _Known(sum(count for _, count in event["text"]), answer)
        elif kind == "output" and answer:
            known = self._requests[name]
            if event["accepted"] < answer[2]:
                self._meet("drafts rejected")
            known.tokens = answer[0]
            known.hashes = [*known.hashes, *answer[1]]
        elif kind == "preempt" and answer:
            self._requests[name].preempted = True
        elif kind == "loaded" and answer is not None and event["valid"] <= answer:
            self._meet("load failed")
        elif kind == "evict_blocks" and any(
            self._refs[block] and self._hashes[block]
            for block in event["blocks"]
            if block in self._refs
        ):
            self._meet("hash of a held block removed")
        elif kind == "reset_prefix":
            if not answer:
                self._meet("reset refused")
            elif self._found:
                self._meet("reset with cached blocks")

    def _look_up(self, known: _Known, answer: Any, place: tuple[int, str, str]) -> None:
        tables, hit, further = answer
        keys = {
            block: self._key(known, group, position)
            for group, table in enumerate(tables)
            for position, block in enumerate(table)
            if block
        }
        self._check("c", Lookup(known.tokens, hit, keys, self._hashes), place)
        if further:
            self._meet("groups disagree on a hit")
        for block in keys:
            self._meet("hit of a held block" if self._refs.get(block) else "hit of a free block")
        if keys and known.preempted:
            self._meet("hit after preemption")

    def _key(self, known: _Known, group: int, position: int) -> str:
        end = (position + 1) * self._scales[group]
        return f"{group}:{known.hashes[end - 1]}" if end <= len(known.hashes) else ""

    def _grant(self, known: _Known, answer: Any, place: tuple[int, str, str]) -> None:
        new = tuple(block for table in answer or () for block in table)
        own = frozenset(
            f"{group}:{number}" for group in range(len(self._scales)) for number in known.hashes
        )
        grant = Grant(answer is not None, new, self._refs, self._hashes, own)
        self._check("c", grant, place)
        if answer is None:
            self._meet("allocation refused")

    def _due(self, event: Event, outcome: Event) -> tuple[tuple[int, ...], tuple[int, ...]] | None:
        """What an event that only gives blocks back must put in front of the queue and behind it.

        None for other events.
        """
        kind, answer = event["event"], outcome["answer"]
        tables = self._tables.get(event.get("request", ""), [])
        if (kind in ("end", "preempt") and answer is True) or (kind == "loaded" and answer == 0):
            given = [list(reversed(table)) for table in tables]
        elif kind == "settle" and answer and self._put_off:
            given = [self._put_off[0][::-1]]
        elif kind == "skip" and answer is not None:
            now = outcome["changed"].get("tables", {}).get(event["request"])
            if now is None:
                return (), ()
            given = [
                [was for was, left in reversed(list(zip(table, kept, strict=True))) if not left]
                for table, (kept, _) in zip(tables, now, strict=True)
            ]
        else:
            return None
        return self._order(given)

    def _order(self, given: list[list[int]]) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """What stands in front and behind after these blocks are given back, list by list."""
        splits = self._semantics.stacks_without_caching
        if self._config["enable_caching"]:
            splits = self._semantics.reuses_unfindable_first
        refs = dict(self._refs)
        first: list[int] = []
        last: list[int] = []
        for blocks in given:
            released = []
            for block in blocks:
                if block:
                    refs[block] -= 1
                    if refs[block] == 0:
                        released.append(block)
            if splits:
                first = [block for block in released if not self._hashes[block]] + first
                released = [block for block in released if self._hashes[block]]
            last += released
        return tuple(first), tuple(last)

    def _apply(self, changed: Event) -> None:
        self._free = changed.get("free", self._free)
        self._queue = tuple(changed.get("queue", self._queue))
        for block, refs in changed.get("refs", {}).items():
            self._refs[int(block)] = refs
        hashes = changed.get("hashes", {})
        for block, keys in hashes.items():
            had = self._hashes[int(block)]
            self._hashes[int(block)] = tuple(f"{key[0]}:{key[1]}" for key in keys or ())
            if keys and len(keys) > 1:
                self._meet("prompt tail cached")
            if had and self._refs[int(block)] and str(block) in changed.get("refs", {}):
                self._meet("cached block handed out")
        for key, blocks in changed.get("map", {}).items():
            if blocks is None:
                del self._found[key]
            else:
                self._found[key] = tuple(blocks)
                if len(blocks) > 1:
                    self._meet("one hash on two blocks")
        for name, tables in changed.get("tables", {}).items():
            if tables is None:
                del self._tables[name]
                continue
            blocks = [table for table, _ in tables]
            if any(0 in table for table in blocks) and name in self._tables:
                self._meet("blocks behind a window given back")
            self._tables[name] = blocks

    def _put_off_or_free(self, event: Event, answer: Any) -> None:
        kind = event["event"]
        if kind == "end" and isinstance(answer, list):
            self._put_off.append(answer)
            self._meet("free put off")
        elif kind == "settle" and answer:
            self._put_off.pop(0)
        elif kind == "slots" and event["delay"] and answer == "loads":
            self._meet("load under way")

    def _replay(self, told: list[Any]) -> None:
        for event in told:
            if event[0] == "cleared":
                self._replayed.clear()
                continue
            sign = 1 if event[0] == "stored" else -1
            group = event[3].get("group_idx") if event[0] == "stored" else event[3]
            for number in event[1]:
                self._replayed[f"{group}:{number}"] += sign

    def _per_hash(self, counts: Mapping[str, int]) -> Counter[str]:
        """Blocks per hash, in the words of the events: older ones do not name groups."""
        found: Counter[str] = Counter()
        for key, count in counts.items():
            number = key.split(":")[1]
            found[key if self._semantics.events_name_groups else f"None:{number}"] += count
        return found


def judge_records(
    config: Event,
    events: Iterable[Event],
    records: Iterable[StepRecord],
    semantics: Semantics,
    release: str | None = None,
    reach: Reachability | None = None,
) -> KVCacheJudge:
    """The judge behind all records of a trace."""
    judge = KVCacheJudge(config, semantics, release, reach or Reachability())
    for number, (event, record) in enumerate(zip(events, records, strict=False)):
        judge.judge(number, event, record)
    return judge
