"""Judges block keys: every block of a trace is paired with the one that first had its key, and with
the one that first had its content.
"""

from collections.abc import Iterable, Mapping
from typing import Any

from cacheproof.differential.judge import Violation
from cacheproof.differential.reachability import Reachability
from cacheproof.differential.record import StepRecord
from cacheproof.differential.trace import BlockHashConfig, Decode, Prompt, Trace
from cacheproof.spec.block_hash import COMPONENT, BlockContent, BlockPair, RequestKeys
from cacheproof.spec.registry import Contract, contracts

Prefix = tuple[BlockContent, ...]


class Content:
    """A request's content, block by block."""

    def __init__(self, prompt: Prompt, config: BlockHashConfig) -> None:
        self.prompt = prompt
        self.tokens = list(prompt.tokens)
        self._size, self._lookahead = config.block_size, config.lookahead
        self._prefixes: list[Prefix] = [()]

    def prefixes(self) -> list[Prefix]:
        """The prefix through each full block, in order."""
        full = max(0, len(self.tokens) - self._lookahead) // self._size
        while len(self._prefixes) <= full:
            block = self._block((len(self._prefixes) - 1) * self._size)
            self._prefixes.append((*self._prefixes[-1], block))
        return self._prefixes[1:]

    def _block(self, start: int) -> BlockContent:
        prompt, end = self.prompt, start + self._size
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
                (item.identifier, item.offset - start)
                for item in prompt.items
                if item.offset < reach and item.offset + item.length > start
            ),
            adapter=None if prompt.lora is None else (prompt.lora.lora_name, prompt.lora.lora_path),
            salt=prompt.salt,
            embeds=embeds,
        )


class BlockHashJudge:
    """Judges one trace. `violations` holds the first violation of each contract; `calls_judged`
    counts pairs and requests that were compared."""

    state = None
    stored: Mapping[str, int] = {}
    resident_sum = 0

    def __init__(self, trace: Trace, release: str | None, reach: Reachability) -> None:
        assert isinstance(trace.header.config, BlockHashConfig)
        self.violations: dict[str, Violation] = {}
        self.calls_judged = 0
        self._config = trace.header.config
        self._reach = reach
        rules = list(contracts(COMPONENT, release))
        self._of_pair = [rule for rule in rules if rule.parameters == ("p",)]
        self._of_keys = [rule for rule in rules if rule.parameters == ("k",)]
        self._requests: dict[str, Content] = {}
        self._by_key: dict[str, tuple[str, Prefix]] = {}
        self._by_prefix: dict[Prefix, str] = {}
        self._offsets: dict[Any, set[tuple[int, ...]]] = {}

    def judge(self, number: int, event: Any, record: StepRecord) -> None:
        """Judge the record of event number `number`.

        Raises:
            ValueError: the record has another number of keys than the request has full blocks.
        """
        outcome = record[0]
        if outcome is None:
            return
        if isinstance(event, Prompt):
            self._requests[event.request] = Content(event, self._config)
            self._note_prompt(event)
        content = self._requests[event.request]
        if isinstance(event, Decode):
            content.tokens += event.tokens
        prefixes = content.prefixes()
        keys = RequestKeys(tuple(outcome["grown"]), tuple(outcome["fresh"]))
        if not len(prefixes) == len(keys.grown) == len(keys.fresh):
            raise ValueError(f"{len(prefixes)} full blocks and keys for {len(keys.grown)}")
        self._evaluate(self._of_keys, {"k": keys}, number, event)
        for source in (keys.fresh, keys.grown):
            for key, prefix in zip(source, prefixes, strict=True):
                self._pair(key, prefix, number, event)

    def _pair(self, key: str, prefix: Prefix, number: int, event: Any) -> None:
        if prefix not in self._by_prefix:
            self._note_new(prefix)
        first_key = self._by_prefix.setdefault(prefix, key)
        _, first_prefix = self._by_key.setdefault(key, (event.request, prefix))
        pairs = []
        if first_prefix is not prefix:
            pairs.append((True, first_prefix))
        if first_key != key:
            pairs.append((False, prefix))
        for same_key, other in pairs:
            pair = BlockPair(same_key, prefix[-1], other[-1], prefix, other)
            self._evaluate(self._of_pair, {"p": pair}, number, event)
            if same_key and prefix == other:
                self._reach.meet("equal blocks share")

    def _evaluate(
        self, rules: Iterable[Contract], values: Mapping[str, Any], number: int, event: Any
    ) -> None:
        self.calls_judged += 1
        for rule in rules:
            if rule.id not in self.violations and not rule.predicate(*values.values()):
                self.violations[rule.id] = Violation(
                    rule,
                    number,
                    type(event).__struct_config__.tag,
                    event.request,
                    "",
                    rule.explain(**values),
                )

    def _note_new(self, prefix: Prefix) -> None:
        """A block of new content: has it been met with its items at other places?"""
        block = prefix[-1]
        without_offsets = block._replace(items=tuple((name, 0) for name, _ in block.items))
        seen = self._offsets.setdefault((prefix[:-1], without_offsets), set())
        if block.items and seen:
            self._reach.meet("item moved in an equal block")
        seen.add(tuple(offset for _, offset in block.items))

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
