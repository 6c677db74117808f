"""Which rare states of the KV cache a trace meets."""

from collections.abc import Callable
from itertools import starmap

from cacheproof.differential.judges.kv_cache_ghost import KVLayout, RequestGhost, SlotsAsked
from cacheproof.differential.judges.kv_cache_mirror import KVCacheMirror, changed_hashes, filled
from cacheproof.differential.traces.outcomes import KVChange, KVEvent, KVOutcome
from cacheproof.differential.traces.records import KVCacheCall


class KVCacheRareStates:
    """Told of every event before its changes are taken over; `meet` counts a state by its name."""

    def __init__(
        self, meet: Callable[[str], None], mirror: KVCacheMirror, layout: KVLayout
    ) -> None:
        self._meet = meet
        self._mirror = mirror
        self._layout = layout

    def observe(self, event: KVEvent, outcome: KVOutcome, known: RequestGhost | None) -> None:
        """Count what the event meets; `known` is its request as it was before."""
        answer, changed = outcome["answer"], outcome["changed"]
        observe = getattr(self, f"_{event['event']}", None)
        if observe is not None and answer is not None:
            observe(event, outcome, known)
        self._changes(event.get("request", ""), changed)

    def _changes(self, name: str, changed: KVChange) -> None:
        mirror = self._mirror
        if changed.get("free") == 0:
            self._meet("pool empty")
        for block, keys in changed_hashes(changed).items():
            if len(keys) > 1:
                self._meet("prompt tail cached")
            if len(keys) > 2:
                self._meet("several prompt tails on one block")
            was_free = mirror.hashes[block] and not mirror.refs[block]
            if was_free and changed.get("refs", {}).get(str(block)):
                self._meet("cached block handed out")
        for blocks in changed.get("map", {}).values():
            if blocks and len(blocks) > 1:
                self._meet("one hash on two blocks")
        had = filled(mirror.tables.get(name, []))
        behind = mirror.tables_behind(name, changed)
        if any(
            not block and (group, position) in had
            for group, table in enumerate(behind)
            for position, block in enumerate(table)
        ):
            self._meet("blocks behind a window given back")

    def _slots(self, event: KVEvent, outcome: KVOutcome, known: RequestGhost) -> None:
        for call in starmap(KVCacheCall, outcome["calls"]):
            if call.operation == "get_computed_blocks":
                self._lookup(known, *call.answer)
            else:
                self._request(known, SlotsAsked.of(call), outcome["answer"])

    def _lookup(
        self, known: RequestGhost, tables: list[list[int]], hit: int, further: int | None
    ) -> None:
        mirror = self._mirror
        if further:
            self._meet("groups disagree on a hit")
        put_off = {block for blocks in mirror.put_off for block in blocks}
        for block in filled(tables).values():
            held = mirror.refs.get(block)
            self._meet("hit of a held block" if held else "hit of a free block")
            if block in put_off:
                self._meet("hit of a block whose free is put off")
            if any(len(mirror.found.get(key, ())) > 1 for key in mirror.hashes.get(block, ())):
                self._meet("hit of a duplicate")
        if any(0 in table for table in tables):
            self._meet("null blocks in a hit")
        if hit and known.preempted:
            self._meet("hit after preemption")
        if hit and len(tables) > 1:
            self._meet("hit in several groups")
        places = self._layout.places_worth_caching(known.tokens)
        keys = {self._layout.key(known, place) for place in places}
        if known.tokens % self._layout.aligned == 0 and keys and keys <= mirror.found.keys():
            self._meet("every token cached")

    def _request(self, known: RequestGhost, asked: SlotsAsked, answer: object) -> None:
        if not answer:
            self._refused(known, asked)
            return
        if asked.loads:
            self._meet("load under way")
        if asked.external and asked.hit:
            self._meet("load behind a hit")
        if asked.lookahead and asked.lookahead > self._layout.slots(known, asked) - (
            known.computed + asked.hit + asked.external + asked.tokens
        ):
            self._meet("look-ahead past the model's end")
        if asked.encoder and any(group.kind == "cross" for group in self._layout.groups):
            self._meet("cross-attention blocks")

    def _refused(self, known: RequestGhost, asked: SlotsAsked) -> None:
        self._meet("allocation refused")
        if asked.must_fit:
            self._meet("whole sequence refused")
        elif asked.reserved:
            self._meet("refused beside reserved blocks")

    def _output(self, event: KVEvent, outcome: KVOutcome, known: RequestGhost) -> None:
        answer = outcome["answer"]
        if answer and event["accepted"] < answer[2]:
            self._meet("drafts rejected")

    def _preempt(self, event: KVEvent, outcome: KVOutcome, known: RequestGhost) -> None:
        if known.in_flight:
            self._meet("preempted with a step in flight")

    def _end(self, event: KVEvent, outcome: KVOutcome, known: RequestGhost) -> None:
        if isinstance(outcome["answer"], list):
            self._meet("free put off")
        if known.state == "loading":
            self._meet("ended while loading")

    def _loaded(self, event: KVEvent, outcome: KVOutcome, known: RequestGhost) -> None:
        if event["valid"] < known.computed:
            self._meet("load failed")
            if event["valid"] == 0:
                self._meet("load failed from the first token")

    def _skip(self, event: KVEvent, outcome: KVOutcome, known: RequestGhost) -> None:
        if known.in_flight and outcome["changed"]:
            self._meet("window moves beside a step in flight")

    def _common_prefix(self, event: KVEvent, outcome: KVOutcome, known: RequestGhost) -> None:
        if any(outcome["answer"]):
            self._meet("common prefix")

    def _evict_blocks(self, event: KVEvent, outcome: KVOutcome, known: None) -> None:
        mirror = self._mirror
        if any(mirror.refs.get(block) and mirror.hashes[block] for block in event["blocks"]):
            self._meet("hash of a held block removed")

    def _reset_prefix(self, event: KVEvent, outcome: KVOutcome, known: None) -> None:
        if not outcome["answer"]:
            self._meet("reset refused")
        elif self._mirror.found:
            self._meet("reset with cached blocks")
