"""The judge of a KV cache manager's traces, put beside an engine that runs.

It differs in what is known. What a request is, the record says at each call about it. It may begin
in the middle: what a state shows is taken as it is, and judged from there on.
"""

from collections import Counter
from collections.abc import Callable, Collection, Sequence
from typing import Any, TypedDict, Unpack

from cacheproof.differential.audit.following import Contradiction, name_of
from cacheproof.differential.judges.kv_cache import MANAGER, KVCacheJudge
from cacheproof.differential.judges.kv_cache_ghost import RequestGhost
from cacheproof.differential.judges.kv_cache_mirror import filled
from cacheproof.differential.judges.kv_cache_rare import KVCacheRareStates
from cacheproof.differential.judges.rare_states import Reachability
from cacheproof.differential.judges.rules import by_subject
from cacheproof.differential.recording.kv_reading import queue_after, tables_after
from cacheproof.differential.recording.messages import KV_OPERATIONS, KVCall, KVFacts, KVState
from cacheproof.differential.traces.outcomes import (
    KVChange,
    KVConfig,
    KVEvent,
    KVOutcome,
    ToldEvent,
)
from cacheproof.differential.traces.records import KVCacheCall, Raised, StepRecord
from cacheproof.reference.semantics import Semantics
from cacheproof.spec.registry import contracts

_STATES = {
    "RUNNING": "running",
    "PREEMPTED": "preempted",
    "WAITING_FOR_REMOTE_KVS": "loading",
}
_FINISHED = "FINISHED"
_CHAINED_MAX = 200_000
"""Most keys whose predecessor is remembered."""


class FurtherFields(TypedDict, total=False):
    """What an event says beside its kind and its request."""

    valid: int
    blocks: list[int]


class _NoRareStates(KVCacheRareStates):
    """An audit searches nothing, and counts no states that a search must meet."""

    def observe(self, event: KVEvent, outcome: KVOutcome, known: RequestGhost | None) -> None:
        pass


class AuditKVJudge(KVCacheJudge):
    """Judges one KV cache manager from a state on. `config` is that of a trace; `rules` are the
    contracts that judge it, without those that are `silent`."""

    def __init__(self, config: KVConfig, release: str | None, silent: Collection[str]) -> None:
        semantics = Semantics.ideal() if release is None else Semantics.of_vllm(release)
        reach = Reachability()
        super().__init__(config, semantics, release, reach)
        self._rare = _NoRareStates(reach.meet, self._mirror, self._layout)
        self.rules = [rule for rule in contracts(MANAGER, release) if rule.id not in silent]
        self._rules = by_subject(self.rules)
        self._inherited: set[str] = set()
        self._number = 0
        self._has_raised = False
        self._handlers: dict[str, Callable[[str, KVCall, KVChange], None]] = {
            "get_computed_blocks": self._looked_up,
            "get_computed_blocks_for_connector": self._changed,
            "allocate_slots": self._asked,
            "cache_blocks": self._cached,
            "free": self._freed,
            "pop_blocks_for_free": self._popped,
            "free_blocks": self._settled,
            "pool": self._used_from_outside,
            "read": self._read,
        }

    def take_in(self, state: KVState) -> None:
        """Take a part of a state for what is; the last part has the rest."""
        mirror = self._mirror
        changed = self._expanded(state.changed)
        mirror.apply(changed)
        for name, tables in changed.get("tables", {}).items():
            self._inherited.add(name)
            for table, cached in tables or ():
                self._evicted_by_id.update(
                    block for block in table[: cached or 0] if block and not mirror.hashes[block]
                )
        if not state.more:
            mirror.put_off = [list(blocks) for blocks in state.put_off]
            self._counted = list(state.counts)
            self._take_in_events([_event(one) for one in state.pending])

    def _take_in_events(self, pending: list[ToldEvent]) -> None:
        """Begin the replay of events at what is found now, less the events that were not taken
        yet."""
        found = {key: len(blocks) for key, blocks in self._mirror.found.items()}
        self._replay(pending)
        undone = Counter({key: -count for key, count in self._replayed.items()})
        self._replayed = self._per_hash(found)
        self._replayed.update(undone)

    def is_at(self, other: "AuditKVJudge") -> str:
        """The part in which another judge's state differs from this one's; empty: none."""
        for word in ("queue", "free", "refs", "hashes", "found", "tables", "put_off"):
            if getattr(self._mirror, word) != getattr(other._mirror, word):
                return word
        return ""

    def follow(self, call: KVCall) -> None:
        """Judge a call.

        Raises:
            Contradiction: it does not fit those before it.
        """
        operation, request, facts, _, _, told, raised = call
        name = "" if request is None else name_of(request)
        changed = self._expanded(told or {})
        if facts is not None:
            self._learn(name, facts)
        if raised is not None:
            self._judge(
                KV_OPERATIONS[operation], name, StepRecord(None, [], Raised(raised, ""), None)
            )
            self._mirror.apply(changed)
            self._has_raised = True
            return
        kind = KV_OPERATIONS[operation]
        self._handlers.get(kind, self._other)(name, call, changed)

    # what a request is

    def _learn(self, name: str, facts: KVFacts) -> None:
        status, tokens, computed, reads, preemptions, known, keys = facts
        request = self._requests.get(name)
        if request is None:
            if known:
                raise Contradiction(f"{name}: {known} keys of it have not been told")
            request = self._requests[name] = RequestGhost(tokens, [], reads)
        if len(request.hashes) < known:
            raise Contradiction(f"{name}: {known} keys of it have not been told")
        if keys:
            request.hashes = [*request.hashes[:known], *keys]
            if self._config["kv_events"]:
                self._note_hashes(request)
        request.tokens, request.computed, request.reads_cache = tokens, computed, reads
        request.state = _STATES.get(status, "waiting")
        request.preempted = preemptions > 0
        request.in_flight.clear()
        if name in self._inherited:
            self._inherited.discard(name)
            self._inherit(name, request)

    def _inherit(self, name: str, request: RequestGhost) -> None:
        """Take the tables that a request has as judging begins for right: what they leave out, a
        load left out, and they have room for the encoder tokens of its admission."""
        tables = self._mirror.tables.get(name, [])
        there = filled(tables)
        request.left_out = self._layout.read_behind(request.computed) - there.keys()
        for group, table in zip(self._layout.groups, tables, strict=True):
            if group.kind == "cross":
                request.encoder = len(table) * group.size

    # what was asked

    def _judge(
        self, kind: str, name: str, record: StepRecord, **fields: Unpack[FurtherFields]
    ) -> None:
        self._number += 1
        self.judge(self._number, {"event": kind, "request": name, **fields}, record)

    def _outcome(self, answer: object, changed: KVChange, *calls: KVCacheCall) -> StepRecord:
        outcome = {"answer": answer, "calls": list(calls), "changed": changed}
        return StepRecord(outcome, [], None, None)

    def _changed(self, name: str, call: KVCall, changed: KVChange) -> None:
        """Judge a call by what it changed alone."""
        self._judge(KV_OPERATIONS[call[0]], name, self._outcome(True, changed))

    def _looked_up(self, name: str, call: KVCall, changed: KVChange) -> None:
        known, (_, _, _, told, answer, _, _) = self._requests[name], call
        reads = known.reads_cache
        limit = told.get("max_cache_hit_length")
        if limit is not None and limit < known.tokens - 1:
            known.reads_cache = False  # how much is found then is the scheduler's choice
        looked_up = KVCacheCall("get_computed_blocks", name, None, answer)
        self._judge("slots", name, self._outcome(True, {}, looked_up))
        known.reads_cache = reads
        if changed:
            self._changed(name, call, changed)

    def _asked(self, name: str, call: KVCall, changed: KVChange) -> None:
        told, answer = dict(call[3]), call[4]
        count = told.pop("num_new_tokens", 0)
        arguments = {"num_lookahead_tokens": 0, **told}
        asked = KVCacheCall("allocate_slots", name, [count, arguments], answer)
        self._judge("slots", name, self._outcome(answer is not None, changed, asked))

    def _cached(self, name: str, call: KVCall, changed: KVChange) -> None:
        if self._requests[name].state != "loading":
            self._changed(name, call, changed)
            return
        valid = call[3].get("num_computed_tokens", 0)
        self._judge("loaded", name, self._outcome(valid, changed), valid=valid)

    def _freed(self, name: str, call: KVCall, changed: KVChange) -> None:
        kind = "end" if _has_finished(call) else "preempt"
        self._judge(kind, name, self._outcome(True, changed))

    def _popped(self, name: str, call: KVCall, changed: KVChange) -> None:
        known = self._requests[name]
        self._judge("end", name, self._outcome(call[4] or True, changed))
        if not _has_finished(call):
            known.lose_blocks()
            self._requests[name] = known

    def _settled(self, name: str, call: KVCall, changed: KVChange) -> None:
        blocks, put_off = call[3]["blocks"][::-1], self._mirror.put_off
        if not blocks:
            self._changed(name, call, changed)
            return
        if blocks not in put_off:
            raise Contradiction("blocks are freed that no request has given up")
        put_off.remove(blocks)
        put_off.insert(0, blocks)
        self._judge("settle", "", self._outcome(True, changed))

    def _used_from_outside(self, name: str, call: KVCall, changed: KVChange) -> None:
        raise Contradiction(f"{call[3]['method']}: the block pool is used beside its manager")

    def _read(self, name: str, call: KVCall, changed: KVChange) -> None:
        if self._has_raised:  # which may leave behind what it had half done
            self._mirror.apply(changed)
        else:
            self._changed(name, call, changed)

    def _other(self, name: str, call: KVCall, changed: KVChange) -> None:
        operation, _, _, told, answer, _, _ = call
        kind, fields = _KINDS[KV_OPERATIONS[operation]], {}
        if kind == "evict_blocks":
            fields["blocks"] = told["blocks"]
            answer = len(told["blocks"])
        elif kind == "take_events":
            answer = [_event(one) for one in answer or ()]
        elif kind == "skip":
            answer = told["tokens"]
        self._judge(kind, name, self._outcome(answer, changed), **fields)

    def _expanded(self, changed: Any) -> KVChange:
        """A change as the manager's recorder tells it."""
        expanded: KVChange = {**changed}
        if "queue" in changed:
            expanded["queue"] = queue_after(self._mirror.queue, changed["queue"])
        if "tables" in changed:
            told = {name_of(int(number)): one for number, one in changed["tables"].items()}
            expanded["tables"] = tables_after(self._mirror.tables, told)
        return expanded

    def _judge_events(self, told: Sequence[ToldEvent]) -> None:
        super()._judge_events(told)
        if len(self._before) > _CHAINED_MAX:
            self._before.clear()
            for request in self._requests.values():
                self._note_hashes(request)


_KINDS = {
    "remove_skipped_blocks": "skip",
    "evict_blocks": "evict_blocks",
    "reset_prefix_cache": "reset_prefix",
    "get_num_common_prefix_blocks": "common_prefix",
    "take_events": "take_events",
    "make_prefix_cache_stats": "take_stats",
}
"""Kind of trace event that a call stands for."""


def _has_finished(call: KVCall) -> bool:
    facts = call[2]
    return facts is not None and facts[0].startswith(_FINISHED)


def _event(told: ToldEvent) -> ToldEvent:
    """A KV event as a trace's host tells it, without its tokens."""
    if told[0] != "stored":
        return list(told)
    fields = told[3]
    return [*told[:3], {**fields, "token_ids": range(fields["tokens"])}]
