"""A scheduler's judge that asks no contract again of what it has found to hold.

A step in which each request gets one token past its prompt, and in which nothing else happens, is
quiet: of most records that contracts look at it has an empty one, of which all of them hold. A step
that does nothing with entries, and finds the ledger's as the step before has left them, keeps the
contracts of steps that this one kept. Tests hold both to the verdicts without them.
"""

import ast
from collections.abc import Callable, Collection
from copy import copy
from functools import lru_cache, partial

from cacheproof.differential.audit.following import NOTHING_DRAWN
from cacheproof.differential.judges import narrowing
from cacheproof.differential.judges.manager import Calls
from cacheproof.differential.judges.rare_states import Reachability
from cacheproof.differential.judges.rules import FOLLOWED, Rules
from cacheproof.differential.judges.scheduler import SchedulerJudge
from cacheproof.differential.judges.scheduler_items import Advance
from cacheproof.differential.targets.host.protocol import Protocol
from cacheproof.differential.traces.outcomes import StepOutcome
from cacheproof.differential.traces.records import CallRecord, StepRecord
from cacheproof.differential.traces.scheduler import Schedule
from cacheproof.differential.traces.trace import Trace
from cacheproof.spec.records import Call, EncoderCacheState, LedgerState
from cacheproof.spec.registry import Contract

STIRS = (
    "loads",
    "drafts",
    "new",
    "resumed",
    "preempted",
    "rejected",
    "awaiting",
    "encode",
    "notices",
)
"""Fields of an outcome that say that something happens."""
_RARELY = frozenset({"withheld", "sent_again", "dropped"})
_ONLY_DRAWS_NOTHING = [NOTHING_DRAWN]
_SCHEDULE = Schedule()
_SHORT = frozenset({"check", "can", "allocate", "release"}), frozenset({"free"})
"""Calls that are judged the short way: about an item, and about no item."""
_SAYS_NOTHING = ("", False, 0, frozenset[str](), False)
"""Fields of a call that was answered yes, no or nothing, from `raised` on."""
_made: Callable[[tuple[object, ...]], Call] = partial(tuple.__new__, Call)
_EMPTY = frozenset({"w.notices", "w.encoded", "w.gathered", "w.evicting"})
"""What a step has nothing of that does nothing with entries."""
_KEPT = frozenset({"w.capacity", "w.store", "w.ledger", "w.pending"})
"""What it has as the step before, if the ledger has the same entries."""


def is_kept(rule: Contract) -> bool:
    """Whether a step that does nothing with entries keeps a contract of steps, if the step before
    kept it and left the same entries."""
    return all(map(_is_kept, narrowing.conjuncts(rule.expression.tree)))


def _is_kept(conjunct: ast.expr) -> bool:
    match conjunct:
        case ast.Call(func=ast.Name(id="all"), args=[ast.GeneratorExp(generators=[over])]):
            if ast.unparse(over.iter) in _EMPTY:
                return True
    read = {ast.unparse(one) for one in ast.walk(conjunct) if isinstance(one, ast.Attribute)}
    return read <= _KEPT


@lru_cache
def _following_claims(rules: Rules) -> Rules:
    """The same contracts, of which those of states look only at what changed of what is needed too:
    a call adds to that no more than its own claim, and what is needed less breaks none."""
    states = [rule for rule, _ in (*rules.of_state, *rules.of_state_and_ghost)]
    following = copy(rules)
    narrowed = narrowing.of_states(states, FOLLOWED | {"g.needed"})
    following.narrowed = rules.narrowed._replace(states=narrowed)
    return following


class ShortcutJudge(SchedulerJudge):
    """Judges one scheduler, of which an audit follows neither sessions nor KV. `_row_of` is the
    outcome of the last step, if it was a quiet one."""

    def __init__(
        self,
        trace: Trace,
        rules: Rules,
        reach: Reachability,
        protocol: Protocol,
        release: str | None,
    ) -> None:
        is_shared = trace.header.manager == "encoder_cache"
        rules = _following_claims(rules) if is_shared else rules
        super().__init__(trace, rules, reach, protocol, release)
        self._has_quiet_steps = (
            self._kv is None
            and self.protocol.releases_on_update
            and "notices" in self._evaluator.rules.silent
            and not self._subjects.has_whole_items
        )
        self._keeps_steps = all(map(is_kept, self._evaluator.rules.of_step))

    def _call(self, record: CallRecord, running: set[str] | None = None) -> None:
        """Follow one call and judge it, in the order of the judge of any manager. A call about an
        item of a shared cache, or that frees a request, takes a way without the others' cases."""
        operation, name, number, budget, pending, answer, delta = record
        at, evaluator = self._at, self._evaluator
        pre, ghost, rules = at.state, at.ghost, evaluator.rules
        if name is None or self._is_decoder or operation not in _SHORT[number is None]:
            super()._call(record, running)
            return
        identifier, size, end = "", 0, 0
        if number is None:
            number = -1
            if running is None or name not in running:
                self._withdraw(name)
        else:
            request = at.requests[name]
            identifier, size = request.identifiers[number], request.sizes[number]
            end = request.ends[number]
        item = operation, name, number, identifier, size, end
        debited, granted = (name, number) in ghost.debits, answer is True
        if rules.promised[operation]:
            asked = _made((*item, 0, 0, False, debited, *_SAYS_NOTHING))
            evaluator.promises(pre, ghost, at.encoded, asked)
        changed: Collection[str] = ()
        post: LedgerState = pre
        is_allocated = operation == "allocate"
        if is_allocated:
            ghost.encode(name, number, identifier, size)
            debited, changed = True, (identifier,)
        if delta is not None:
            post = at.state = self._replay(pre, delta)
            changed = self._changed(pre, post, delta)
            # The ghost has another size for the entry, even where the ledger stayed as it was.
            if is_allocated and identifier not in changed:
                changed = {*changed, identifier}
        call = _made((*item, budget or 0, pending or 0, granted, debited, *_SAYS_NOTHING))
        if delta is not None or rules.unchanged[operation]:
            evaluator.transition(pre, post, ghost, call, changed)
        if operation == "release":
            ghost.release(name, number)
        is_claimed = is_allocated or (granted and operation == "check")
        if is_claimed:
            ghost.claim(name, identifier, end)
            if identifier not in changed:
                changed = {*changed, identifier}
        if is_claimed or delta is not None:
            evaluator.state(pre, post, ghost, call, "", changed)
        if is_allocated:
            at.allocating.add(name)
            at.encoded[identifier] = size
        elif delta is not None and operation == "can":
            assert isinstance(pre, EncoderCacheState)
            assert isinstance(post, EncoderCacheState)
            if any(one in pre.size and one not in post.size for one in delta.entries):
                at.evicting.add(name)

    def _quiet(self, record: StepRecord) -> StepOutcome | None:
        """The outcome of a step, if that is a quiet one."""
        outcome: StepOutcome | None = record.outcome
        if record.raised is not None or not outcome or any(map(outcome.get, STIRS)):
            return None
        scheduled, computed, at = outcome["scheduled"], outcome["computed"], self._at
        # Who stands still is judged at every step.
        if not scheduled or len(computed) != len(scheduled) or self._is_decoder:
            return None
        requests, prompts = at.requests, at.prompts
        for name, tokens in scheduled.items():
            if tokens != 1 or name not in requests or name not in computed:
                return None
            begin = computed[name]
            if begin < prompts[name] or begin < requests[name].end_of_items:
                return None
        return outcome

    def _is_as_it_was(self, outcome: StepOutcome, calls: Calls) -> bool:
        """Whether nobody has stopped running before a quiet step, and no entry is touched."""
        if not self._has_quiet_steps or (calls and calls != _ONLY_DRAWS_NOTHING):
            return False
        if outcome["total"] != len(outcome["scheduled"]) or not _RARELY.isdisjoint(outcome):
            return False
        at = self._at
        if at.encoded or at.gathered or at.evicting or at.running != set(outcome["running"]):
            return False
        owed = [name for name, _ in at.ghost.debits]
        return at.ghost.claimed_end.keys() <= at.running and at.running.issuperset(owed)

    def _judge_quiet(self, number: int, outcome: StepOutcome) -> None:
        """Judge a quiet step: follow what it moves, and ask of what is not empty, in the order of
        any other step."""
        at = self._at
        self._evaluator.event = number
        ends = {name: begin + 1 for name, begin in outcome["computed"].items()}
        for name, end in ends.items():
            at.requests[name].computed = end
        at.in_flight.append(ends)
        at.drafted.append(outcome["drafts"])
        self._finish_step(())
        self._check("schedule", self._subjects.plan(at, outcome, Advance(ends, {}, set())))
        self._rare.schedule(outcome)
        for name in at.claims.keys() - at.running:
            del at.claims[name]
        at.arrivals.has_run.update(ends)
        self._judge_progress(outcome)
        at.ran = outcome["running"]
        self._judge_presence(_SCHEDULE, outcome)

    def _finish_step(self, notices: tuple[str, ...]) -> None:
        at, before, last = self._at, self._state_of_last_step, self._last_step
        acts = notices or at.encoded or at.gathered or at.evicting
        is_kept = (
            not acts
            and self._keeps_steps
            and self._last_step_held
            and at.state is not before
            and _has_same_entries(before, at.state)
        )
        if last is None or not is_kept:
            super()._finish_step(notices)
            return
        at.ghost.step((), {})
        self._last_step = last._replace(
            before=last.store,
            notices=(),
            encoded=at.encoded.keys(),
            gathered=at.gathered,
            evicting=at.evicting,
            allocating=at.allocating,
        )
        self._state_of_last_step = at.state
        self._new_step()


def _has_same_entries(before: LedgerState | None, after: LedgerState) -> bool:
    return (
        isinstance(before, EncoderCacheState)
        and isinstance(after, EncoderCacheState)
        and before.size is after.size
        and before.notices == after.notices
    )
