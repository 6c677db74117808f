"""Judges an engine: its scheduler's decisions, what its worker's store holds, and its answers."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec

from cacheproof.differential.judges.manager import Calls, Handler
from cacheproof.differential.judges.outputs import is_tie, taken
from cacheproof.differential.judges.rare_states import Reachability
from cacheproof.differential.judges.rules import Rules, rules_of
from cacheproof.differential.judges.scheduler import SchedulerJudge
from cacheproof.differential.targets.host.media_inputs import is_given
from cacheproof.differential.targets.host.protocol import Protocol
from cacheproof.differential.traces.base import Adapter, Item, Rows
from cacheproof.differential.traces.engine import Reload
from cacheproof.differential.traces.manager import Add, Update
from cacheproof.differential.traces.outcomes import (
    ContinuedOutcome,
    DecodedToken,
    StepOrigins,
    StepOutcome,
    UpdateOutcome,
)
from cacheproof.differential.traces.records import UNDER_FIRST
from cacheproof.differential.traces.scheduler import Chunk, Schedule
from cacheproof.differential.traces.trace import Trace
from cacheproof.spec.records import RowsRead, SlotsRead, StoreMemory, Twins

RequestTurn = tuple[str, int]
"""A request, and the number of its turn: 0 unless it is a session."""
Turn = tuple[int, tuple[int, ...], int, tuple[Item, ...]]
"""A further turn of a session: the token at which its chunk begins, what is kept before it, its
length and its items."""
Prompt = tuple[int, tuple[Item | Rows, ...], Adapter | None, int, tuple[Turn, ...]]
"""Length, items or embeddings, adapter, the number of the model's weights then, and the turns of a
session after its first."""
_OF_THE_STORE = frozenset({"mirror"})
ANSWERS = "under the first model runner and under the second"
STORES = "entries under the first model runner and under the second"
"""Kinds in which EQ-1 is broken."""


class EngineJudge(SchedulerJudge):
    """Judges one trace at engine depth. Requests of one prompt are twins: they must decode the
    same. Their texts are compared as far as both have come, and not after a token that rounding may
    have decided. So are those of a request under the second model runner and under the first, whose
    stores hold the same entries up to there, where both were told the same.

    Requests of one prompt are twins: they must decode the same. Their texts are compared as far as
    both have come, and not behind a token that rounding may have decided. So are those of a request
    under the second model runner and under the first, whose stores hold the same entries up to
    there, where both were told the same.
    """

    def __init__(
        self,
        trace: Trace,
        rules: Rules,
        reach: Reachability,
        protocol: Protocol,
        release: str | None,
    ) -> None:
        super().__init__(trace, rules, reach, protocol, release)
        self._turn: Counter[str] = Counter()
        self._prompt_of: dict[RequestTurn, Prompt] = {}
        self._weights = 0
        self._salt_of: dict[str, str | None] = {}
        self._decided: dict[RequestTurn, list[int]] = {}
        self._tied: set[str] = set()
        self._turn_under_first: Counter[str] = Counter()
        self._under_first: dict[RequestTurn, list[int]] = {}
        self._tied_under_first: set[str] = set()
        self._told_otherwise = False

    def _handlers_by_event(self) -> dict[type, Handler]:
        return super()._handlers_by_event() | {Reload: self._reload}

    def _add(self, event: Add, outcome: object, calls: Calls) -> None:
        super()._add(event, outcome, calls)
        given = event.embeds or ()
        self._prompt_of[event.request, 0] = (
            event.prompt,
            event.items + given,
            event.lora,
            self._weights,
            (),
        )
        self._salt_of[event.request] = event.salt
        if len({is_given(msgspec.to_builtins(item)) for item in event.items}) > 1:
            self._reach.meet("embeddings beside media")
        if given:
            is_whole = sum(one.length for one in given) == event.prompt
            self._reach.meet("prompt of embeddings" if is_whole else "tokens and embeddings mixed")
        self._decided[event.request, 0] = []

    def _chunk(self, event: Chunk, outcome: ContinuedOutcome | None, calls: Calls) -> None:
        super()._chunk(event, outcome, calls)
        if outcome is not None:
            self._go_on_under_first(outcome)

    def _schedule(self, event: Schedule, outcome: StepOutcome | None, calls: Calls) -> None:
        super()._schedule(event, outcome, calls)
        if outcome is None or "store" not in outcome:
            return  # the worker raised, which comes with the step's output
        self._judge_store(outcome["store"])
        self._judge_stores(outcome)
        memory = outcome["memory"]
        self._check(
            "schedule", StoreMemory(self._capacity * memory["bytes_of_row"], memory["bytes_held"])
        )
        self._judge_origins(outcome.get("origins", {}))
        if not self._is_decoder:
            return
        begun = {self._prompt_of[name, 0][1] for name in outcome["encode"]}
        if len(begun) > 1 and outcome["resumed"]:
            self._reach.meet("began anew beside another item")

    def _reload(self, event: Reload, outcome: object, calls: Calls) -> None:
        """Note new weights: what is kept in blocks is wrong from now on, and who is there has no
        twin any more."""
        self._only_calls(event, outcome, calls)
        self._reach.meet("new weights")
        self._weights += 1
        self._tied |= {name for name, _ in self._decided}
        if self._kv_blocks is not None:
            self._kv_blocks.forget()

    def _end_steps(self, event: Update, outcome: UpdateOutcome | None, calls: Calls) -> None:
        if outcome is not None:  # before sessions go on, which drop their last token
            self._answered(outcome["outputs"], outcome.get("untaken", {}))
            self._judge_answers(outcome)
            self._go_on_under_first(outcome)
        super()._end_steps(event, outcome, calls)

    def _answered(
        self, outputs: Mapping[str, Sequence[DecodedToken]], untaken: Mapping[str, Sequence[int]]
    ) -> None:
        """Note what requests have decoded, without what the scheduler did not take."""
        for name, tokens in taken(outputs, untaken):
            if self._kv_blocks is not None:
                self._kv_blocks.decode(name, [token for token, *_ in tokens])
            self._note_tokens(name, tokens)
            self._judge_twins((name, self._turn[name]))

    def _go_on(self, continued: Iterable[tuple[str, int]]) -> None:
        """Twins of a session's next turn are those that kept the same and got the same chunk."""
        for name, first in continued:
            before = name, self._turn[name]
            chunk, kept = self._chunks[name][0], max(0, first - self._at.prompts[name])
            turn = first, tuple(self._decided[before][:kept]), chunk.prompt, chunk.items
            length, given, adapter, weights, turns = self._prompt_of[before]
            self._turn[name] += 1
            now = name, self._turn[name]
            self._prompt_of[now] = length, given, adapter, weights, (*turns, turn)
            self._decided[now] = []
        super()._go_on(continued)

    def _go_on_under_first(self, outcome: ContinuedOutcome) -> None:
        """Follow a turn's end under the first model runner: with other drafts it comes in another
        step."""
        for name, _ in outcome.get(UNDER_FIRST, {}).get("continued", ()):
            self._turn_under_first[name] += 1

    def _judge_store(self, store: Mapping[str, int]) -> None:
        """The worker's own store after the step, in the place of what should be in it."""
        assert self._last_step is not None
        self._evaluator.step(self._last_step._replace(store=store), "schedule", _OF_THE_STORE)

    def _judge_stores(self, outcome: StepOutcome) -> None:
        """Which entries either model runner's store holds, as long as both were told the same: with
        other drafts, as by prompt lookup, other items are encoded."""
        told = outcome.get(UNDER_FIRST, {})
        if "store" not in told:
            return
        self._told_otherwise |= any(told[name] != outcome[name] for name in ("encode", "notices"))
        if not self._told_otherwise and not self._tied_under_first:
            pair = Twins(_sorted(told["store"]), _sorted(outcome["store"]))
            self._check("schedule", pair, lambda: STORES)

    def _judge_answers(self, outcome: UpdateOutcome) -> None:
        """Judge what requests are answered under the first model runner against what they are here.
        With other drafts either may be ahead."""
        told = outcome.get(UNDER_FIRST, {})
        for name, tokens in taken(told.get("outputs", {}), told.get("untaken", {})):
            _note(tokens, self._under_first_of(name), name, self._tied_under_first)
        for name in sorted({*outcome["outputs"], *told.get("outputs", ())}):
            for turn in range(1 + min(self._turn[name], self._turn_under_first[name])):
                one, other = self._under_first.get((name, turn), []), self._decided[name, turn]
                both = min(len(one), len(other))
                if both:
                    pair = Twins(tuple(one[:both]), tuple(other[:both]))
                    self._check("update", pair, lambda: ANSWERS)

    def _under_first_of(self, name: str) -> list[int]:
        """What a request has decoded in its turn under the first model runner."""
        return self._under_first.setdefault((name, self._turn_under_first[name]), [])

    def _judge_origins(self, origins: Mapping[str, StepOrigins]) -> None:
        """Judge what was read that is another's, where the target's rows and slots say what they
        are."""
        for kind, record in (("rows", RowsRead), ("slots", SlotsRead)):
            if kind in origins:
                told = origins[kind]
                if told["read"]:
                    self._reach.meet(f"{kind} of known origin read")
                expected, found = _frozen(told["expected"]), _frozen(told["found"])
                self._check("schedule", record(expected, found))

    def _note_tokens(self, name: str, tokens: Sequence[DecodedToken]) -> None:
        was_tied = name in self._tied
        _note(tokens, self._decided[name, self._turn[name]], name, self._tied)
        if name in self._tied and not was_tied:
            self._reach.meet("best two logits nearly tie")

    def _judge_twins(self, asked: RequestTurn) -> None:
        for twin, prompt in self._prompt_of.items():
            if twin == asked:
                continue
            both = min(len(self._decided[asked]), len(self._decided[twin]))
            if prompt != self._prompt_of[asked]:
                if both and _bare(prompt) == _bare(self._prompt_of[asked]):
                    self._reach.meet("equal prompts under two adapters")
                continue
            if both:
                self._reach.meet("equal prompts decoded")
                if prompt[-1]:
                    self._reach.meet("equal turns decoded")
                if self._salt_of[asked[0]] != self._salt_of[twin[0]]:
                    self._reach.meet("equal prompts under two salts")
                twins = Twins(*(tuple(self._decided[one][:both]) for one in (twin, asked)))
                self._check("update", twins, self._misled)

    def _misled(self) -> str:
        """Whether a request read KV that is not right before: a kind in which answers part."""
        return "over KV that is not right" if "SC-15" in self.violations else ""


def _note(tokens: Iterable[DecodedToken], text: list[int], name: str, tied: set[str]) -> None:
    """Add a request's tokens to its text, up to one that rounding may have decided: it is tied."""
    for token in tokens:
        if is_tie(token):
            tied.add(name)
        if name in tied:
            return
        text.append(token[0])


def _bare(prompt: Prompt) -> tuple[object, ...]:
    """The prompt under no adapter; equal to itself alone."""
    length, given, _, weights, turns = prompt
    names = [getattr(one, "mm_hash", None) or one.identifier for one in given]
    return weights, turns, length, *zip(names, (one.offset for one in given), strict=True)


def _sorted(store: Mapping[str, int]) -> tuple[tuple[str, int], ...]:
    return tuple(sorted(store.items()))


def _frozen(entries: Sequence[Any]) -> tuple[Any, ...]:
    return tuple(tuple(one) if isinstance(one, list) else one for one in entries)


def judge_of(
    trace: Trace, release: str | None, protocol: Protocol, reach: Reachability
) -> EngineJudge:
    """The judge for a trace; `release` is the target's, None where it is no release."""
    return EngineJudge(trace, rules_of(trace, release), reach, protocol, release)
