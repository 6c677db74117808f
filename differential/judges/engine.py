"""Judges an engine: its scheduler's decisions, what its worker's store holds, and its answers."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import msgspec

from cacheproof.differential.judges.outputs import is_tie
from cacheproof.differential.judges.rare_states import Reachability
from cacheproof.differential.judges.rules import rules_of
from cacheproof.differential.judges.scheduler import SchedulerJudge
from cacheproof.differential.targets.host.media_inputs import is_given
from cacheproof.differential.targets.host.protocol import Protocol
from cacheproof.differential.traces.base import Adapter, Item, Rows
from cacheproof.differential.traces.engine import Reload
from cacheproof.differential.traces.manager import Add, Update
from cacheproof.differential.traces.records import UNDER_FIRST
from cacheproof.differential.traces.trace import Trace
from cacheproof.spec.records import RowsRead, SlotsRead, StoreMemory, Twins

Prompt = tuple[int, tuple[Item | Rows, ...], Adapter | None, int]
"""Length, items or embeddings, adapter, and by number the weights that the model had then."""
_OF_THE_STORE = frozenset({"mirror"})
ANSWERS = "under the first model runner and under the second"
STORES = "entries under the first model runner and under the second"
"""Kinds in which EQ-1 is broken."""


class EngineJudge(SchedulerJudge):
    """Judges one trace at engine depth.

    Requests of one prompt are twins: they must decode the same. Their texts are compared as far as
    both have come, and not behind a token that rounding may have decided. So are those of a request
    under the second model runner and under the first, whose stores hold the same entries up to
    there.
    """

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._prompt_of: dict[str, Prompt] = {}
        self._weights = 0
        self._salt_of: dict[str, str | None] = {}
        self._decided: dict[str, list[int]] = {}
        self._tied: set[str] = set()
        self._under_first: dict[str, list[int]] = {}
        self._tied_under_first: set[str] = set()

    def _handlers_by_event(self) -> dict[type, Callable[[Any, Any, Any], None]]:
        return super()._handlers_by_event() | {Reload: self._reload}

    def _add(self, event: Add, outcome: Any, calls: Any) -> None:
        super()._add(event, outcome, calls)
        given = event.embeds or ()
        self._prompt_of[event.request] = (
            event.prompt,
            event.items + given,
            event.lora,
            self._weights,
        )
        self._salt_of[event.request] = event.salt
        if len({is_given(msgspec.to_builtins(item)) for item in event.items}) > 1:
            self._reach.meet("embeddings beside media")
        if given:
            is_whole = sum(one.length for one in given) == event.prompt
            self._reach.meet("prompt of embeddings" if is_whole else "tokens and embeddings mixed")
        self._decided[event.request] = []

    def _schedule(self, event: Any, outcome: Any, calls: Any) -> None:
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
        begun = {self._prompt_of[name][1] for name in outcome["encode"]}
        if len(begun) > 1 and outcome["resumed"]:
            self._reach.meet("began anew beside another item")

    def _reload(self, event: Reload, outcome: Any, calls: Any) -> None:
        """What is kept in blocks is wrong from now on, and who is there has a twin no longer."""
        self._only_calls(event, outcome, calls)
        self._reach.meet("new weights")
        self._weights += 1
        self._tied |= self._decided.keys()
        if self._kv_blocks is not None:
            self._kv_blocks.forget()

    def _update(self, event: Update, outcome: Any, calls: Any) -> None:
        super()._update(event, outcome, calls)
        if outcome is None:
            return
        for name, tokens in outcome["outputs"].items():
            if self._kv_blocks is not None:
                self._kv_blocks.decode(name, [token for token, *_ in tokens])
            self._note_tokens(name, tokens)
            self._judge_twins(name)
        self._judge_answers(outcome.get(UNDER_FIRST, {}).get("outputs", {}))

    def _judge_store(self, store: Mapping[str, int]) -> None:
        """The worker's own store after the step, in the place of what should be in it."""
        assert self._last_step is not None
        self._evaluator.step(self._last_step._replace(store=store), "schedule", _OF_THE_STORE)

    def _judge_stores(self, outcome: Mapping[str, Any]) -> None:
        """Which entries either model runner's store holds, as long as no text may have parted."""
        told = outcome.get(UNDER_FIRST, {}).get("store")
        if told is not None and not self._tied_under_first:
            pair = Twins(*(tuple(sorted(one.items())) for one in (told, outcome["store"])))
            self._check("schedule", pair, lambda: STORES)

    def _judge_answers(self, told: Mapping[str, Sequence[Any]]) -> None:
        """What requests are answered under the first model runner, beside what they are here."""
        for name, tokens in told.items():
            answered = self._under_first.setdefault(name, [])
            _note(tokens, answered, name, self._tied_under_first)
            both = min(len(answered), len(self._decided[name]))
            if both:
                pair = Twins(tuple(answered[:both]), tuple(self._decided[name][:both]))
                self._check("update", pair, lambda: ANSWERS)

    def _judge_origins(self, origins: Mapping[str, Any]) -> None:
        """What was read that is another's, where the target's rows and slots say what they are."""
        for kind, record in (("rows", RowsRead), ("slots", SlotsRead)):
            if kind in origins:
                told = origins[kind]
                if told["read"]:
                    self._reach.meet(f"{kind} of known origin read")
                expected, found = _frozen(told["expected"]), _frozen(told["found"])
                self._check("schedule", record(expected, found))

    def _note_tokens(self, name: str, tokens: Sequence[Any]) -> None:
        was_tied = name in self._tied
        _note(tokens, self._decided[name], name, self._tied)
        if name in self._tied and not was_tied:
            self._reach.meet("best two logits nearly tie")

    def _judge_twins(self, name: str) -> None:
        for twin, prompt in self._prompt_of.items():
            both = min(len(self._decided[name]), len(self._decided[twin]))
            if twin == name or prompt != self._prompt_of[name]:
                if both and _bare(prompt) == _bare(self._prompt_of[name]):
                    self._reach.meet("equal prompts under two adapters")
                continue
            if both:
                self._reach.meet("equal prompts decoded")
                if self._salt_of[name] != self._salt_of[twin]:
                    self._reach.meet("equal prompts under two salts")
                twins = Twins(tuple(self._decided[twin][:both]), tuple(self._decided[name][:both]))
                self._check("update", twins, self._misled)

    def _misled(self) -> str:
        """Whether a request read KV that is not right before: a kind in which answers part."""
        return "over KV that is not right" if "SC-15" in self.violations else ""


def _note(tokens: Iterable[Any], text: list[int], name: str, tied: set[str]) -> None:
    """Add a request's tokens to its text, up to one that rounding may have decided: it is tied."""
    for token in tokens:
        if is_tie(token):
            tied.add(name)
        if name in tied:
            return
        text.append(token[0])


def _bare(prompt: Prompt) -> tuple[Any, ...]:
    """The prompt under no adapter; equal to itself alone."""
    length, given, _, weights = prompt
    names = [getattr(one, "mm_hash", None) or one.identifier for one in given]
    return weights, length, *zip(names, (one.offset for one in given), strict=True)


def _frozen(entries: Sequence[Any]) -> tuple[Any, ...]:
    return tuple(tuple(one) if isinstance(one, list) else one for one in entries)


def judge_of(
    trace: Trace, release: str | None, protocol: Protocol, reach: Reachability
) -> EngineJudge:
    """What judges a trace of a target that is that release, or none."""
    return EngineJudge(trace, rules_of(trace, release), reach, protocol, release)
