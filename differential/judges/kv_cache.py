"""Judges the KV cache manager: after every event the contracts of the pool, and of each answer."""

from collections import Counter
from collections.abc import Mapping, Sequence, Set
from functools import lru_cache
from itertools import starmap
from typing import Any

import msgspec

import cacheproof.spec.kv_cache
from cacheproof.differential.judges.kv_cache_ghost import (
    KVLayout,
    Lives,
    Place,
    RequestGhost,
    SlotsAsked,
    named_by,
)
from cacheproof.differential.judges.kv_cache_mirror import (
    KVCacheMirror,
    Queues,
    changed_hashes,
    filled,
)
from cacheproof.differential.judges.kv_cache_rare import KVCacheRareStates
from cacheproof.differential.judges.rare_states import Reachability
from cacheproof.differential.judges.rules import RulesAbout, Subject, about, by_subject
from cacheproof.differential.judges.violation import Violation, by_kind
from cacheproof.differential.targets.host.protocol import Protocol
from cacheproof.differential.traces.kv_cache import KVCacheEvent
from cacheproof.differential.traces.outcomes import (
    KVChange,
    KVConfig,
    KVEvent,
    KVOutcome,
    LookupAnswer,
    StoredFields,
    ToldEvent,
)
from cacheproof.differential.traces.records import KVCacheCall, StepRecord
from cacheproof.differential.traces.trace import Trace
from cacheproof.reference.semantics import Semantics
from cacheproof.spec.block_pool import (
    PoolEvents,
    PoolForgets,
    PoolRelease,
    PoolReset,
    PoolState,
    PoolTake,
    StoredBlocks,
    StoredChain,
    StoredNames,
)
from cacheproof.spec.kv_cache import (
    Admission,
    Cached,
    EventOutcome,
    Grant,
    Load,
    Lookup,
    PrefixClaim,
    Residencies,
    Retained,
    SlotTables,
    Statistics,
    Tables,
)
from cacheproof.spec.registry import contracts

FIRST_BLOCKS = "first blocks of a window"
DROPPED = "a block that a lookup drops"
MANAGER = cacheproof.spec.kv_cache.COMPONENT


class KVCacheJudge:
    """Judges one trace. `violations` holds the first violation of each contract, `subjects` what
    each of them is about.

    `semantics` are those of the release judged: in what order it releases blocks, and whether it
    keeps some free.
    """

    state = None
    stored: Mapping[str, int] = {}
    resident_sum = 0

    def __init__(
        self, config: KVConfig, semantics: Semantics, release: str | None, reach: Reachability
    ) -> None:
        self.violations: dict[str, Violation] = {}
        self.subjects: dict[str, Any] = {}
        self.calls_judged = 0
        self._config = config
        self._semantics = semantics
        self._rules = _rules_of(release)
        self._layout = KVLayout(config)
        self._mirror = KVCacheMirror(config, semantics)
        self._requests: dict[str, RequestGhost] = {}
        self._rare = KVCacheRareStates(reach.meet, self._mirror, self._layout)
        self._replayed: Counter[str] = Counter()
        self._counted = [0] * 7  # resets; then requests, tokens, hits: new, preempted
        self._before: dict[tuple[int, int], int] = {}
        self._names: dict[tuple[int, int], frozenset[str]] = {}
        self._lives = Lives(is_caching=config["enable_caching"])
        self._evicted_by_id: set[int] = set()
        self._where = (0, "", "")

    @property
    def pool(self) -> PoolState:
        """The pool as the records say that it is."""
        return self._mirror.pool

    @property
    def by_kind(self) -> dict[tuple[str, str], Violation]:
        """The violations by contract and kind."""
        return by_kind(self.violations)

    def mend(self, flags: Mapping[str, bool]) -> None:
        """Judge the release with these flags of its semantics; call before the first event."""
        self._semantics = self._semantics.changed(flags)

    def judge(self, number: int, event: KVCacheEvent | KVEvent, record: StepRecord) -> None:
        """Judge the record of event number `number`; the event may also be plain data."""
        if isinstance(event, msgspec.Struct):
            event = _plain(event)
        outcome: KVOutcome | None = record.outcome
        raised = record.raised
        kind, name = event["event"], event.get("request", "")
        self._where = (number, kind, name)
        self._lives.now = number
        self._check(EventOutcome(raised.type if raised else ""))
        if raised or outcome is None:  # the trace ends here, or a no-op
            return
        answer, changed = outcome["answer"], outcome["changed"]
        known = self._requests.get(name)
        self._rare.observe(event, outcome, known)
        if kind == "slots" and known is not None:
            self._judge_slots(name, known, outcome)
            return
        new = self._judge_change(event, answer, changed)
        self._follow(event, answer)
        if known is not None and (new or kind == "loaded"):
            certain = answer if kind == "loaded" else known.certain
            self._check_cached(name, known, new, certain, is_due=kind == "loaded")
        if kind == "common_prefix" and answer is not None:
            self._check_common_prefix(name, answer)
        if kind == "take_stats" and answer is not None:
            self._judge_statistics(*answer)
        if kind == "take_residencies":
            told = sorted((life, idle, tuple(gaps)) for life, idle, gaps in answer)
            self._check(Residencies(tuple(told), self._lives.take()))
        if kind == "take_events" and self._config["kv_events"]:
            self._judge_events(answer)

    def _judge_change(self, event: KVEvent, answer: object, changed: KVChange) -> frozenset[str]:
        """Judge and take over the changes of an event that hands out no block. Returns the keys
        that blocks got in it."""
        kind = event["event"]
        queues = self._mirror.given_back(self._given(event, answer, changed), goes_on=False)
        if changed:
            queue = tuple(changed.get("queue", self._mirror.queue))
            self._check(PoolRelease(self._mirror.queue, queue, *queues))
        if kind == "reset_prefix":
            self._check(PoolReset(bool(answer), self._mirror.held))
            self._counted[0] |= bool(answer)
            if answer:
                self._lives.forget()
        if kind == "evict_blocks" and answer:
            self._lives.end(event["blocks"])
        named = self._named(event, answer)
        self._evicted_by_id |= named
        new = self._new_keys(changed)
        self._put_off_or_free(kind, answer)
        self._apply(changed, handed_out=frozenset(), named=named)
        return new

    def _check(self, subject: Subject, kind: str = "") -> None:
        """Judge a subject by all contracts about it; `kind` says in which way one is broken."""
        self.calls_judged += 1
        rules = self._rules.get(type(subject))
        if rules is None or rules.hold(subject):
            return
        for rule in rules:
            if rule.id not in self.violations and not rule.predicate(subject):
                why = rule.explain(**about(rule, subject))
                self.violations[rule.id] = Violation(rule, *self._where, "", why, kind)
                self.subjects[rule.id] = subject

    def _judge_slots(self, name: str, known: RequestGhost, outcome: KVOutcome) -> None:
        """Judge a lookup, and whether and with which blocks the request got its slots."""
        hit: list[list[int]] = [[] for _ in self._layout.groups]
        for call in starmap(KVCacheCall, outcome["calls"]):
            if call.operation == "get_computed_blocks":
                hit = call.answer[0]
                self._judge_lookup(known, call.answer)
            else:
                asked = SlotsAsked.of(call)
                hit = call.arguments[1].get("new_computed_blocks", hit)
                changed = outcome["changed"]
                hits, new = self._judge_grant(name, known, asked, hit, call.answer, changed)
                self._lives.hit(hits)
                self._lives.hand_out(new)

    def _judge_lookup(self, known: RequestGhost, answer: LookupAnswer) -> None:
        lookup = self._lookup(known, answer)
        is_of_first_blocks = self._layout.is_of_first_blocks(lookup.longest)
        self._check(lookup, FIRST_BLOCKS if is_of_first_blocks else "")

    def _judge_grant(
        self,
        name: str,
        known: RequestGhost,
        asked: SlotsAsked,
        hit: list[list[int]],
        answer: Sequence[Sequence[int]] | None,
        changed: KVChange,
    ) -> tuple[Set[int], Set[int]]:
        """Judge whether and with which blocks a request got its slots; `hit` are those that it
        brings, `answer` the ids that it was told, None for a refusal. Returns those that it hit and
        those that it got for new content."""
        given = self._given({"event": "slots", "request": name}, answer, changed)
        queues = self._mirror.given_back(given, goes_on=True)
        self._check(self._admission(name, known, asked, hit, queues, answer is not None))
        had = filled(self._mirror.tables.get(name, []))
        has = filled(self._mirror.tables_behind(name, changed))
        at_hit = filled(hit)
        new = {place: block for place, block in has.items() if had.get(place) != block}
        touched = {block for place, block in new.items() if at_hit.get(place) == block}
        handed_out = frozenset(block for place, block in new.items() if at_hit.get(place) != block)
        taken = handed_out - touched
        first, last = queues
        waiting = tuple(b for b in (*first, *self._mirror.queue, *last) if b not in touched)
        in_order = tuple(block for block in waiting if block in taken)
        queue = tuple(changed.get("queue", self._mirror.queue))
        new_keys = self._new_keys(changed)
        was_running = known.state == "running"
        needed = self._layout.needed(known, asked)
        if answer is not None:
            self._count_lookup(known, asked.hit)
            known.get_slots(asked)
        self._apply(changed, handed_out=handed_out, named=frozenset())
        self._check(PoolTake(waiting, in_order, queue))
        told = tuple(block for table in answer or () for block in table)
        self._check(
            Grant(
                answer is not None,
                told,
                self._mirror.refs,
                self._mirror.hashes,
                frozenset(self._layout.keys(known)),
                frozenset(has.values()),
                taken if was_running else frozenset(),
            )
        )
        if answer is not None:
            if asked.loads:
                self._check(Load(needed, frozenset(has)))
                known.left_out = needed - has.keys()
            self._check(SlotTables(needed - known.left_out, frozenset(has), frozenset(new)))
            self._check_cached(name, known, new_keys, known.certain, is_due=True)
        return touched, taken

    def _count_lookup(self, known: RequestGhost, hit: int) -> None:
        """Count the lookup of a request that is admitted, unless it reads nothing."""
        if known.computed == 0 and known.reads_cache and self._config["enable_caching"]:
            first = 4 if known.preempted else 1
            for place, count in enumerate((1, known.tokens, hit), first):
                self._counted[place] += count

    def _judge_statistics(self, usage: float, counts: Sequence[int]) -> None:
        blocks = self._mirror.num_blocks - 1  # without the null block
        told = [int(count) for count in counts]
        counted, self._counted = self._counted, [0] * len(self._counted)
        held = blocks - self._mirror.free
        self._check(Statistics(round(usage * blocks), held, tuple(told), tuple(counted)))

    def _lookup(self, known: RequestGhost, answer: LookupAnswer) -> Lookup:
        tables, hit, _ = answer
        places = filled(tables)
        looks = self._config["enable_caching"] and known.reads_cache
        return Lookup(
            known.tokens,
            hit,
            {block: self._layout.key(known, place) for place, block in places.items()},
            self._mirror.hashes,
            frozenset(places),
            self._layout.read_behind(hit),
            self._layout.longest_hit(known, self._mirror.found) if looks else 0,
        )

    def _admission(
        self,
        name: str,
        known: RequestGhost,
        asked: SlotsAsked,
        hit: Sequence[Sequence[int]],
        queues: Queues,
        granted: bool,
    ) -> Admission:
        mirror, layout = self._mirror, self._layout
        tables = mirror.tables.get(name, [[] for _ in layout.groups])
        start = known.computed + asked.hit + asked.external
        if self._semantics.kv_cache.keeps_window_of_last_token:
            start = layout.start(known, asked)

        def need(tokens: int, *, capped: bool) -> int:
            blocks = 0
            for group, table, found in zip(layout.groups, tables, hit, strict=True):
                wanted = group.blocks(asked.encoder if group.kind == "cross" else tokens)
                wanted = min(wanted, group.blocks_max) if capped else wanted
                skipped = group.first_read(start)
                blocks += max(0, wanted - max(skipped, len(table) + len(found)))
                blocks += sum(not mirror.refs[block] for block in found[skipped:] if block)
            return blocks

        keeps = asked.others and known.state in ("waiting", "preempted")
        watermark = self._config["watermark"] if self._semantics.kv_cache.keeps_watermark else 0.0
        return Admission(
            granted,
            need(layout.slots(known, asked), capped=False),
            mirror.free + sum(map(len, queues)),
            asked.must_fit,
            need(min(known.tokens, self._config["max_model_len"]), capped=True),
            mirror.free,
            int(watermark * mirror.num_blocks) if keeps else 0,
            asked.reserved,
        )

    def _given(self, event: KVEvent, answer: object, changed: KVChange) -> list[list[int]]:
        """The blocks that an event gives back, in that order, by group; of a free that was put off,
        all at once."""
        kind, name = event["event"], event.get("request", "")
        if kind == "settle":
            return [self._mirror.put_off[0][::-1]] if answer and self._mirror.put_off else []
        if name not in changed.get("tables", {}) or (kind == "end" and answer is not True):
            return []
        kept = filled(self._mirror.tables_behind(name, changed))
        return [
            [
                table[position]
                for position in reversed(range(len(table)))  # the last one first (BP-5)
                if (group, position) not in kept
            ]
            for group, table in enumerate(self._mirror.tables.get(name, []))
        ]

    def _named(self, event: KVEvent, answer: object) -> frozenset[int]:
        """The blocks that are to lose their hashes."""
        if event["event"] == "evict_blocks" and answer:
            return frozenset(event["blocks"]) & self._mirror.hashes.keys()
        if event["event"] == "reset_prefix" and answer:
            return frozenset(self._mirror.hashes)
        return frozenset()

    def _new_keys(self, changed: KVChange) -> frozenset[str]:
        """The keys that blocks get in an event."""
        had = self._mirror.hashes
        return frozenset(
            key
            for block, keys in changed_hashes(changed).items()
            for key in keys
            if key not in had[block]
        )

    def _apply(
        self, changed: KVChange, *, handed_out: frozenset[int], named: frozenset[int]
    ) -> None:
        """Take over the changes, and judge the state after them."""
        had = self._mirror.hashes
        lost = frozenset(
            block
            for block, keys in changed_hashes(changed).items()
            if set(had[block]) > set(keys) or (had[block] and not keys)
        )
        self._mirror.apply(changed)
        self._evicted_by_id -= handed_out  # they get new content
        if changed or named:
            self._check(PoolForgets(lost, handed_out | named, named, self._mirror.hashes))
        if changed:
            self._check(self.pool)
        if "tables" in changed:
            self._check(Tables(self._mirror.places))

    def _check_cached(
        self, name: str, known: RequestGhost, new: frozenset[str], certain: int, *, is_due: bool
    ) -> None:
        """Judge the request's keys: `new` ones cover only what is certain, and full blocks that are
        due are found unless they were evicted by their id."""
        covered = self._layout.keys(known)
        due: frozenset[str] = frozenset()
        if is_due and self._config["enable_caching"]:
            blocks = filled(self._mirror.tables.get(name, []))
            due = frozenset(
                self._layout.key(known, place)
                for place in self._layout.places_worth_caching(certain)
                if self._is_due(place, blocks)
            )
        unread = [
            place
            for place in self._layout.places(known, new)
            if not self._layout.can_be_read(place)
        ]
        if new:
            self._check(Retained(frozenset(new), len(unread)))
        self._check(
            Cached(
                {key: covered.get(key, known.tokens + 1) for key in new},
                certain,
                due,
                self._mirror.found,
            ),
            self._uncached(known, certain, due - self._mirror.found.keys()),
        )

    def _uncached(self, known: RequestGhost, certain: int, keys: frozenset[str]) -> str:
        """The kind DROPPED where keys are missing of blocks alone that lookups drop; else none."""
        read = self._layout.places_worth_caching(certain, dropped=False) if keys else frozenset()
        is_read = any(self._layout.key(known, place) in keys for place in read)
        return DROPPED if keys and not is_read else ""

    def _is_due(self, place: Place, blocks: Mapping[Place, int]) -> bool:
        """Whether the block there must be found: not one given back by a window or evicted by
        id."""
        block = blocks.get(place)
        if self._layout.groups[place[0]].kind == "sliding_window" and block is None:
            return False
        return block not in self._evicted_by_id

    def _check_common_prefix(self, name: str, counts: Sequence[int]) -> None:
        tables = self._mirror.tables.get(name, [])
        told = dict(enumerate(counts))
        blocks = [
            block
            for (group, position), block in filled(tables).items()
            if position < told.get(group, 0)
        ]
        self._check(
            PrefixClaim(
                len(self._layout.groups),
                len(counts),
                tuple(blocks),
                {
                    other: frozenset(filled(self._mirror.tables.get(other, [])).values())
                    for other, request in self._requests.items()
                    if request.state == "running"
                },
            )
        )

    def _put_off_or_free(self, kind: str, answer: object) -> None:
        if kind == "end" and isinstance(answer, list):
            self._mirror.put_off.append(answer)
        elif kind == "settle" and answer:
            self._mirror.put_off.pop(0)

    def _follow(self, event: KVEvent, answer: Any) -> None:
        """Follow what an event makes of its request."""
        kind, name = event["event"], event.get("request", "")
        if answer is None or (kind != "arrive" and name not in self._requests):
            return
        if kind == "arrive":
            tokens = sum(count for _, count in event["text"])
            reads_cache = not event["skip_reading"]
            self._requests[name] = RequestGhost(tokens, answer, reads_cache, named_by(event))
            self._note_hashes(self._requests[name])
        elif kind == "output":
            known = self._requests[name]
            known.end_step(event["accepted"], answer or None)
            self._note_hashes(known)
            if known.tokens == self._config["max_model_len"]:
                del self._requests[name]
        elif kind == "loaded":
            self._requests[name].end_load(answer)
        elif kind == "preempt":
            self._requests[name].lose_blocks()
        elif kind == "end":
            del self._requests[name]

    def _judge_events(self, told: Sequence[ToldEvent]) -> None:
        for event in told:
            if event[0] == "stored":
                covered = len(event[1]) * event[3]["block_size"]
                self._check(StoredBlocks(len(event[3]["token_ids"]), covered))
                self._check_names(event[1], event[3])
                is_whole = len(event[3]["token_ids"]) == covered  # else BP-6 speaks of it
                if is_whole and self._is_chained(event[3].get("group_idx")):
                    self._check(self._chain(event[1], event[2], event[3]["block_size"]))
        self._replay(told)
        counts = {key: len(blocks) for key, blocks in self._mirror.found.items()}
        self._check(PoolEvents(+self._replayed, self._per_hash(counts)))

    def _check_names(self, numbers: Sequence[int], fields: StoredFields) -> None:
        """Judge what an event says that blocks hold beside tokens, where requests say it of all."""
        held = [self._names.get((fields["block_size"], number)) for number in numbers]
        if "extra_keys" in fields and None not in held:
            told = [
                frozenset(key if isinstance(key, str) else key[0] for key in keys or ())
                for keys in fields["extra_keys"] or ()
            ]
            self._check(StoredNames(tuple(told), tuple(one for one in held if one is not None)))

    def _is_chained(self, group: int | None) -> bool:
        """Whether the blocks of an event follow one another: a window's are cached here and there.
        Older events name no group."""
        groups = self._layout.groups
        return all(one.kind == "full" for one in (groups if group is None else [groups[group]]))

    def _chain(self, numbers: Sequence[int], parent: int | None, size: int) -> StoredChain:
        """The predecessor of each hash of an event, as it says and as the requests have it."""
        before = [(one, self._before.get((size, one))) for one in numbers]
        told = [-1 if parent is None else parent, *numbers]
        known = [place for place, (_, number) in enumerate(before) if number is not None]
        return StoredChain(
            tuple(told[place] for place in known), tuple(before[place][1] or 0 for place in known)
        )

    def _note_hashes(self, known: RequestGhost) -> None:
        """Note what comes before each hash of a request, in blocks of each group's size, and what
        the block of the hash holds beside tokens."""
        for size in {group.size for group in self._layout.groups}:
            step = size // self._layout.hash_size
            for end in range(step - 1, len(known.hashes), step):
                before = known.hashes[end - step] if end >= step else -1
                self._before.setdefault((size, known.hashes[end]), before)
                if known.named is not None:
                    last = (end + 1) * self._layout.hash_size
                    names = known.names_in(range(last - size, last))
                    self._names.setdefault((size, known.hashes[end]), names)

    def _replay(self, told: Sequence[ToldEvent]) -> None:
        for event in told:
            if event[0] == "cleared":  # followers of the events forget all
                self._replayed.clear()
                continue
            sign = 1 if event[0] == "stored" else -1
            group = event[3].get("group_idx") if event[0] == "stored" else event[3]
            for number in event[1]:
                self._replayed[f"{group}:{number}"] += sign

    def _per_hash(self, counts: Mapping[str, int]) -> Counter[str]:
        """Blocks per hash, as the events call them: older ones name no groups."""
        found: Counter[str] = Counter()
        for key, count in counts.items():
            number = key.split(":")[1]
            found[key if self._semantics.kv_cache.events_name_groups else f"None:{number}"] += count
        return found


@lru_cache
def _rules_of(release: str | None) -> Mapping[type, RulesAbout]:
    """The contracts that judge the manager of a release, by the type of what they are about."""
    return by_subject(contracts(MANAGER, release))


def _plain(event: KVCacheEvent) -> KVEvent:
    plain: KVEvent = msgspec.to_builtins(event)
    return plain


def judge_of(
    trace: Trace, release: str | None, protocol: Protocol, reach: Reachability
) -> KVCacheJudge:
    """The judge for a trace; `release` is the target's, None where it is no release."""
    semantics = Semantics.ideal() if release is None else Semantics.of_vllm(release)
    return KVCacheJudge(msgspec.to_builtins(trace.header.config), semantics, release, reach)
