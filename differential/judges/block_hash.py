"""Judges block keys: every block of a trace is paired with the one that first had its key, and with
the one that first had its content.
"""

from collections.abc import Mapping
from functools import lru_cache
from typing import NamedTuple

from cacheproof.differential.judges.rare_states import Reachability
from cacheproof.differential.judges.rules import RulesAbout, Subject, about, by_subject
from cacheproof.differential.judges.violation import Violation, by_kind
from cacheproof.differential.targets.host.protocol import Protocol
from cacheproof.differential.traces.base import tag_of
from cacheproof.differential.traces.block_hash import (
    BlockHashConfig,
    BlockHashEvent,
    Continue,
    Decode,
    Prompt,
)
from cacheproof.differential.traces.outcomes import BlockKeysOutcome
from cacheproof.differential.traces.records import StepRecord
from cacheproof.differential.traces.trace import Trace
from cacheproof.spec.block_hash import COMPONENT, BlockContent, BlockPair, KeyCount, RequestKeys
from cacheproof.spec.registry import contracts

Prefix = tuple[BlockContent, ...]
SHARED = "equal blocks share"


class KeyPlace(NamedTuple):
    """Where a key was met: the last of these blocks, as the request grew or hashed `afresh`."""

    event: int
    request: str
    afresh: bool
    prefix: Prefix


class Content:
    """A request's content, block by block. Once a request with a drafter is continued there are
    two: a block whose look-ahead reached a token that is now discarded keeps the KV that it was
    computed with.

    There are two of it once a request that has a drafter is continued: of a block whose look-ahead
    reached a token that is now discarded, the KV stays what it was computed with.
    """

    def __init__(self, prompt: Prompt, config: BlockHashConfig) -> None:
        self.tokens = list(prompt.tokens)
        self._prompt = prompt
        self._items = [(item.identifier, item.offset, item.length) for item in prompt.items]
        self._size, self._lookahead = config.block_size, config.lookahead
        self._afresh: list[Prefix] = [()]
        self._computed = self._afresh

    def afresh(self) -> list[Prefix]:
        """The prefix through each full block, of the tokens as they now are."""
        return self._extended(self._afresh)

    def computed(self) -> list[Prefix]:
        """The prefix through each full block, of the tokens that the request's own KV was computed
        for."""
        return self._extended(self._computed)

    def go_on(self, chunk: Continue) -> None:
        """Follow a continued request: its last token is discarded, and the chunk follows what is
        left."""
        kept = len(self.tokens) - 1
        computed = [(), *self.computed()[: kept // self._size]]
        self.tokens[kept:] = chunk.tokens
        self._items += [(item.identifier, kept + item.offset, item.length) for item in chunk.items]
        is_one = self._computed is self._afresh
        self._afresh = self._afresh[: 1 + max(0, kept - self._lookahead) // self._size]
        is_one = is_one and len(computed) == len(self._afresh)
        self._computed = self._afresh if is_one else computed

    def _extended(self, prefixes: list[Prefix]) -> list[Prefix]:
        full = max(0, len(self.tokens) - self._lookahead) // self._size
        while len(prefixes) <= full:
            block = self._block((len(prefixes) - 1) * self._size)
            prefixes.append((*prefixes[-1], block))
        return prefixes[1:]

    def _block(self, start: int) -> BlockContent:
        prompt, end = self._prompt, start + self._size
        reach = end + self._lookahead
        embeds = (prompt.embeds or ())[start:reach]
        tokens = list(self.tokens[start:reach])
        for position, row in enumerate(embeds):
            if row is not None:
                tokens[position] = 0
        return BlockContent(
            tokens=tuple(tokens[: self._size]),
            ahead=tuple(tokens[self._size :]),
            items=tuple(
                (identifier, offset - start)
                for identifier, offset, length in self._items
                if offset < reach and offset + length > start
            ),
            adapter=None if prompt.lora is None else (prompt.lora.lora_name, prompt.lora.lora_path),
            salt=prompt.salt,
            embeds=embeds,
        )


class _Paired(NamedTuple):
    """What a block came to that was met before with that key: in how many pairs it is, and how many
    of these share a key rightly. The prefix is kept so that its id stays its own."""

    prefix: Prefix
    pairs: int
    shared: int


class BlockHashJudge:
    """Judges one trace. `violations` holds the first violation of each contract, `places` where the
    two blocks of it were met, and `compared` how many keys of a request were. `calls_judged` counts
    pairs and requests that were compared."""

    state = None
    stored: Mapping[str, int] = {}
    resident_sum = 0

    def __init__(self, trace: Trace, release: str | None, reach: Reachability) -> None:
        assert isinstance(trace.header.config, BlockHashConfig)
        self.violations: dict[str, Violation] = {}
        self.places: dict[str, tuple[KeyPlace, KeyPlace]] = {}
        self.compared = 0
        self.calls_judged = 0
        self._config = trace.header.config
        self._reach = reach
        self._rules = _rules_of(release)
        self._requests: dict[str, Content] = {}
        self._by_key: dict[str, KeyPlace] = {}
        self._by_prefix: dict[Prefix, tuple[str, KeyPlace]] = {}
        self._paired: dict[tuple[int, str], _Paired] = {}
        self._offsets: dict[tuple[Prefix, BlockContent], set[tuple[int, ...]]] = {}

    @property
    def by_kind(self) -> dict[tuple[str, str], Violation]:
        """The violations by contract and kind."""
        return by_kind(self.violations)

    def judge(self, number: int, event: BlockHashEvent, record: StepRecord) -> None:
        """Judge the record of event number `number`."""
        outcome: BlockKeysOutcome | None = record.outcome
        raised = record.raised
        if raised is not None:
            self._evaluate(KeyCount(0, 0, 0, raised.type), number, event)
        if outcome is None:
            return
        if isinstance(event, Prompt):
            self._requests[event.request] = Content(event, self._config)
            self._note_prompt(event)
        content = self._requests[event.request]
        if isinstance(event, Decode):
            content.tokens += event.tokens
        elif isinstance(event, Continue):
            self._note_continue(event, content)
            content.go_on(event)
        afresh, computed = content.afresh(), content.computed()
        fresh, grown = outcome["fresh"], outcome["grown"]
        count = KeyCount(len(afresh), len(grown), len(fresh), "")
        self._evaluate(count, number, event)
        if not count.blocks == count.grown == count.fresh:
            return  # which key is whose block's is not known
        alike = sum(a is b or a == b for a, b in zip(computed, afresh, strict=True))
        keys = RequestKeys(tuple(grown[:alike]), tuple(fresh[:alike]))
        self.compared = alike
        self._evaluate(keys, number, event)
        for source, prefixes, is_fresh in ((fresh, afresh, True), (grown, computed, False)):
            for key, prefix in zip(source, prefixes, strict=True):
                # Its pairs are those that it had then: what is first of a key or content stays so.
                again = self._paired.get((id(prefix), key))
                if again is None:
                    place = KeyPlace(number, event.request, is_fresh, prefix)
                    self._paired[id(prefix), key] = self._pair(key, place, event)
                    continue
                self.calls_judged += again.pairs
                for _ in range(again.shared):
                    self._reach.meet(SHARED)

    def _pair(self, key: str, place: KeyPlace, event: BlockHashEvent) -> _Paired:
        """Judge a block beside the first ones of its key and of its content."""
        prefix = place.prefix
        if prefix not in self._by_prefix:
            self._note_new(prefix)
        first_key, first_of_prefix = self._by_prefix.setdefault(prefix, (key, place))
        first_of_key = self._by_key.setdefault(key, place)
        pairs, shared = [], 0
        if first_of_key.prefix is not prefix:
            pairs.append((True, first_of_key))
        if first_key != key:
            pairs.append((False, first_of_prefix))
        for same_key, first in pairs:
            other = first.prefix
            pair = BlockPair(same_key, prefix[-1], other[-1], prefix, other)
            for contract in self._evaluate(pair, place.event, event):
                self.places[contract] = (first, place)
            if same_key and prefix == other:
                shared += 1
                self._reach.meet(SHARED)
        return _Paired(prefix, len(pairs), shared)

    def _evaluate(self, subject: Subject, number: int, event: BlockHashEvent) -> list[str]:
        """Judge by all contracts about it; ids of those that break for the first time."""
        self.calls_judged += 1
        rules = self._rules[type(subject)]
        if rules.hold(subject):
            return []
        broken = [
            rule for rule in rules if rule.id not in self.violations and not rule.predicate(subject)
        ]
        for rule in broken:
            self.violations[rule.id] = Violation(
                rule,
                number,
                tag_of(type(event)),
                event.request,
                "",
                rule.explain(**about(rule, subject)),
            )
        return [rule.id for rule in broken]

    def _note_new(self, prefix: Prefix) -> None:
        """Note a block of new content, and whether its items were met at other places."""
        block = prefix[-1]
        without_offsets = block._replace(items=tuple((name, 0) for name, _ in block.items))
        seen = self._offsets.setdefault((prefix[:-1], without_offsets), set())
        if block.items and seen:
            self._reach.meet("item moved in an equal block")
        seen.add(tuple(offset for _, offset in block.items))

    def _note_continue(self, chunk: Continue, content: Content) -> None:
        meet = self._reach.meet
        meet("prompt continued")
        if len(content.tokens) % self._config.block_size == 0:
            meet("discarded token fills a block")
        if len(chunk.items) > 1:
            meet("several items in a later chunk")

    def _note_prompt(self, prompt: Prompt) -> None:
        meet, size = self._reach.meet, self._config.block_size
        full = len(prompt.tokens) // size * size
        if sum(item.offset + item.length > full for item in prompt.items) > 1:
            meet("several items in the last block")
        for item in prompt.items:
            if (item.offset + item.length) % size == 0:
                meet("item ends on a block boundary")
            if item.offset // size != (item.offset + item.length - 1) // size:
                meet("item in two blocks")
        if prompt.embeds is not None:
            mixed = None in prompt.embeds
            meet("tokens and embeddings mixed" if mixed else "prompt of embeddings")
        if prompt.lora is not None:
            meet("adapter")
        if prompt.salt is not None:
            meet("cache salt")


@lru_cache
def _rules_of(release: str | None) -> Mapping[type, RulesAbout]:
    """The contracts that judge the keys of a release, by the type of what they are about."""
    none = {kind: RulesAbout() for kind in (BlockPair, KeyCount, RequestKeys)}
    return none | by_subject(contracts(COMPONENT, release))


def judge_of(
    trace: Trace, release: str | None, protocol: Protocol, reach: Reachability
) -> BlockHashJudge:
    """The judge for a trace; `release` is the target's, None where it is no release."""
    return BlockHashJudge(trace, release, reach)
