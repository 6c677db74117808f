"""Judges the calls of one manager of encoder outputs as they are made, by anyone: no trace says
what the requests are owed, so it is folded from the calls alone.

A claim is an allocation, or a look-up that hits. It ends when the claimed input is released, or the
request freed: whoever calls says by that that the request is past it. A step ends with the call
that draws the notices. What is allocated and given up again within one step may never be encoded;
of such an entry nothing is demanded of the worker's store until it is allocated anew.
"""

from collections import Counter, deque
from collections.abc import Iterable
from functools import lru_cache
from typing import Any, NamedTuple

from cacheproof.differential.judges.evaluator import Evaluator
from cacheproof.differential.judges.live_contracts import ENCODER_DECODER, SILENT
from cacheproof.differential.judges.rules import Rules, rules_for
from cacheproof.differential.judges.violation import Violation
from cacheproof.differential.targets.host.scheduler.recorder import Snapshot
from cacheproof.spec.ghost import Ghost
from cacheproof.spec.records import (
    Call,
    DecoderCacheState,
    EncoderCacheState,
    LedgerState,
    Step,
    inputs_in,
    leaves_out,
    named_by,
    number_of,
)
from cacheproof.spec.registry import Contract

CALLS_SHOWN = 8
_CLAIMING = frozenset({"allocate", "check"})
_SCHEDULER = "scheduler"


class Given(NamedTuple):
    """A call that is about to be made, as far as a manager looks at it. Without a request or an
    input `request` is empty or `input_id` -1; `identifiers` are those of all inputs of a request
    that is asked about as a whole."""

    operation: str
    request: str = ""
    input_id: int = -1
    identifier: str = ""
    size: int = 0
    budget: int = 0
    pending: int = 0
    identifiers: tuple[str, ...] = ()

    def __str__(self) -> str:
        told = [self.request] if self.request else []
        if self.input_id >= 0:
            told.append(f"{self.input_id}: {self.identifier} of {self.size}")
        if self.operation == "can":
            told.append(f"budget {self.budget}, pending {self.pending}")
        return f"{self.operation}({', '.join(told)})"


@lru_cache
def live_rules(kind: str, release: str | None) -> Rules:
    """The contracts of a kind of manager, and what its callers promise. A claim ends with a call,
    so the moment at which an entry becomes idle is known under asynchronous scheduling too."""
    return rules_for(kind, release, _SCHEDULER)


class LiveManager:
    """Judges one manager from its first call on. `spoke` counts how often each contract was asked,
    `calls` are the last ones made. Once a contract is broken it is of no use any more.

    Args:
        kind: "encoder_cache" or "encoder_decoder".
        capacity: of the manager, in embeddings.
        snapshot: its state before the first call; it has no entries.
        release: whose contracts it is held to; None: those of the newest.
    """

    def __init__(
        self,
        kind: str,
        capacity: int,
        snapshot: Snapshot,
        release: str | None,
        spoke: Counter[str],
    ) -> None:
        self.spoke = spoke
        self.calls: deque[str] = deque(maxlen=CALLS_SHOWN)
        self._kind = kind
        self._is_decoder = kind == ENCODER_DECODER
        self._capacity = capacity
        self._evaluator = Evaluator(live_rules(kind, release))
        self._ghost = Ghost()
        self._claims: dict[tuple[str, str], set[int]] = {}
        self._inputs: dict[tuple[str, int], str] = {}
        self._encoded: dict[str, int] = {}
        self._uncertain: set[str] = set()
        self._state = self._of(snapshot)

    def is_as_left(self, snapshot: Snapshot) -> bool:
        """Whether the manager is as its last call has left it."""
        return self._of(snapshot) == self._state

    def is_another(self, call: Given) -> bool:
        """Whether an input of the call was another item when the request claimed it last."""
        shown = (
            enumerate(call.identifiers) if call.identifiers else ((call.input_id, call.identifier),)
        )
        return any(
            self._inputs.get((call.request, number)) not in (None, identifier)
            for number, identifier in shown
        )

    def promises(self, call: Given) -> Violation | None:
        """The promise that the caller breaks with a call that it is about to make, if any."""
        promised = self._evaluator.rules.promised[call.operation]
        heard = [rule.id for rule, _ in promised if rule.id not in SILENT[self._kind]]
        if not heard:
            return None
        self.spoke.update(heard)
        self._evaluator.promises(self._state, self._ghost, self._encoded, self._call(call))
        return next(iter(self._evaluator.violations.values()), None)

    def raised(self, call: Given, error: BaseException) -> list[Violation]:
        """Judge a call that raised; returns what that breaks."""
        self.calls.append(f"{call} raises {type(error).__name__}")
        self._ask(self._evaluator.rules.of_event)
        self._evaluator.raised(self._call(call)._replace(raised=type(error).__name__))
        return self._broken()

    def answered(self, call: Given, answer: Any, snapshot: Snapshot) -> list[Violation]:
        """Judge a call that was answered; returns what that breaks. The order is that of
        judges/manager.py."""
        self.calls.append(str(call) if answer is None else f"{call} = {answer}")
        evaluator, ghost, rules = self._evaluator, self._ghost, self._evaluator.rules
        operation = call.operation
        pre = self._state
        judged = self._call(call)._replace(granted=answer is True)
        if operation == "embeds":
            judged = judged._replace(tells=answer is not None, answered=number_of(answer))
        elif operation == "inputs":
            inputs = inputs_in(answer)
            judged = judged._replace(
                told=named_by(inputs, call.identifiers),
                leaves_out=leaves_out(ghost.debits, call.request, inputs),
            )
        self._tell_before(call)
        post = self._of(snapshot)
        post = self._state = pre if post == pre else post
        self._ask(rules.of_event)
        if pre is not post:
            self._ask(rules.of_ghost[operation])
            self._ask(rule for rule, _ in rules.of_state)
        self._ask(
            rule for rule, _ in (rules.unchanged if pre is post else rules.changed)[operation]
        )
        evaluator.transition(pre, post, ghost, judged)
        self._tell_after(call, answer)
        self._ask(rule for rule, _ in rules.of_state_and_ghost)
        evaluator.state(pre, post, ghost, judged)
        self._give_up()
        if operation == "allocate":
            self._encoded[call.identifier] = call.size
            self._uncertain.discard(call.identifier)
        if operation == "notices":
            self._step(tuple(answer))
        return self._broken()

    def _broken(self) -> list[Violation]:
        return list(self._evaluator.violations.values())

    def _ask(self, rules: Iterable[Contract]) -> None:
        self.spoke.update(rule.id for rule in rules)

    def _call(self, call: Given) -> Call:
        operation, request, number, identifier, size, budget, pending, _ = call
        debited = (request, number) in self._ghost.debits
        return Call(
            operation, request, number, identifier, size, 0, budget, pending, False, debited, ""
        )

    # what the requests are owed

    def _tell_before(self, call: Given) -> None:
        """Tell the ghost what a call says of the requests as soon as it is made."""
        ghost, request = self._ghost, call.request
        if call.operation == "free":
            ghost.withdraw(request)
            self._claims = {at: ids for at, ids in self._claims.items() if at[0] != request}
            self._inputs = {at: of for at, of in self._inputs.items() if at[0] != request}
        elif call.operation == "allocate":
            ghost.encode(request, call.input_id, call.identifier, call.size)
        elif call.operation == "reset":
            ghost.reset()
            for forgotten in (self._claims, self._inputs, self._encoded, self._uncertain):
                forgotten.clear()

    def _tell_after(self, call: Given, answer: object) -> None:
        """Tell the ghost what a call says of the requests once it is answered."""
        request, number, identifier = call.request, call.input_id, call.identifier
        if call.operation == "release":
            self._ghost.release(request, number)
            self._get_past(request, number, identifier)
        elif call.operation in _CLAIMING and (call.operation == "allocate" or answer is True):
            self._ghost.claim(request, identifier, 0)
            self._claims.setdefault((request, identifier), set()).add(number)
            self._inputs[request, number] = identifier

    def _get_past(self, request: str, number: int, identifier: str) -> None:
        """Note that the request is past an input; where it claims no other one of the identifier,
        it needs the entry no more. All claims end after token 0, one that is over before it."""
        claimed = self._claims.get((request, identifier), set())
        if number not in claimed:
            return
        claimed.discard(number)
        del self._inputs[request, number]
        if not claimed:
            del self._claims[request, identifier]
            self._ghost.claimed_end[request][identifier] = -1
            self._ghost.consume(request, -1)

    def _give_up(self) -> None:
        """Give up what the step has allocated and nobody needs any more: it may never be
        encoded."""
        given_up = self._encoded.keys() - self._ghost.needed.keys()
        for identifier in given_up:
            del self._encoded[identifier]
        self._uncertain |= given_up

    # steps

    def _step(self, notices: tuple[str, ...]) -> None:
        ghost, state = self._ghost, self._state
        before = ghost.stored.keys() | self._uncertain
        ghost.step(notices, self._encoded)
        self._uncertain -= set(notices)
        ledger = state.size if isinstance(state, EncoderCacheState) else {}
        store = {h: ledger[h] for h in self._uncertain if h in ledger} | ghost.stored
        encoded = self._encoded.keys()
        self._ask(
            rule for rule in self._evaluator.rules.of_step if rule.id not in SILENT[self._kind]
        )
        self._evaluator.step(
            Step(
                capacity=self._capacity,
                before=dict.fromkeys(before, 0),
                notices=notices,
                encoded=encoded,
                gathered=encoded if self._is_decoder else frozenset(),
                store=store,
                ledger=ledger,
                pending=frozenset(),
                steps_since_encode=ghost.steps_since_encode,
                evicting=frozenset(),
                allocating=frozenset(),
            )
        )
        self._encoded = {}

    # states

    def _of(self, snapshot: Snapshot) -> LedgerState:
        free, freeable, cached, sizes, queue, notices = snapshot
        if self._is_decoder:
            return DecoderCacheState(self._capacity, free, tuple(notices))
        known = self._ghost.size
        return EncoderCacheState(
            self._capacity,
            free,
            freeable,
            {h: sizes[h] if h in sizes else known.get(h, 0) for h in cached},
            {h: frozenset(requests) for h, requests in cached.items()},
            dict(queue),
            tuple(notices),
        )
