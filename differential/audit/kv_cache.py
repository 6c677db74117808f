"""Audits what a record has of a KV cache manager, beside the audit of its scheduler."""

from collections.abc import Callable, Sequence

import msgspec

from cacheproof.differential.audit.following import Contradiction
from cacheproof.differential.audit.kv_judging import AuditKVJudge
from cacheproof.differential.audit.silence import kv_not_judged
from cacheproof.differential.judges.violation import Violation
from cacheproof.differential.recording.messages import KVCalls, KVState
from cacheproof.differential.recording.settings import KV_NOT_FOLLOWED
from cacheproof.differential.traces.kv_cache import KVCacheConfig
from cacheproof.spec.registry import Contract

Take = Callable[[dict[str, Violation]], None]
"""Takes violations out, so that they are noticed again when something breaks again."""
_HARD = (AttributeError, LookupError, TypeError, ValueError, ArithmeticError)


class KVAudit:
    """Judges the calls of one KV cache manager as they come.

    Attributes:
        calls, judged: how many calls came since the first state, and how many were judged.
        unjudged: what of this manager not every contract follows. Where none does, no call counts.
        rules: the contracts that judge it.
    """

    def __init__(self) -> None:
        self.calls = 0
        self.judged = 0
        self.unjudged: set[str] = set()
        self.rules: Sequence[Contract] = ()
        self._judge: AuditKVJudge | None = None
        self._shown: AuditKVJudge | None = None
        self._is_followed = False

    def suspend(self) -> None:
        """Stop judging until the next state: something is missing."""
        self._judge = self._shown = None

    def follow(self, message: KVState | KVCalls, release: str | None, take: Take) -> str:
        """Judge what a record tells; `take` is given what each call breaks. Returns what does not
        fit what came before; empty: all does."""
        if isinstance(message, KVState):
            return self._state(message, release)
        if self._is_followed:
            self.calls += len(message.calls)
        if self._judge is None:
            return ""
        for call in message.calls:
            try:
                self._judge.follow(call)
            except (Contradiction, *_HARD) as error:
                self.suspend()
                return f"{type(error).__name__}: {error}"
            self.judged += 1
            if self._judge.violations:
                take(self._judge.violations)
        return ""

    def _state(self, state: KVState, release: str | None) -> str:
        self.unjudged = set(state.unjudged)
        self._is_followed = self.unjudged.isdisjoint(KV_NOT_FOLLOWED)
        if not self._is_followed:
            self.suspend()
            return ""
        try:
            if self._shown is None:
                silent = kv_not_judged(state.unjudged)
                config = msgspec.convert(state.config, KVCacheConfig)
                self._shown = AuditKVJudge(msgspec.to_builtins(config), release, silent)
            self._shown.take_in(state)
        except (Contradiction, msgspec.MsgspecError, *_HARD) as error:
            self.suspend()
            return f"a state that is none: {error}"
        if state.more:
            return ""
        shown, self._shown = self._shown, None
        if self._judge is None:
            self._begin(shown)
            return ""
        word = self._judge.is_at(shown)
        if word:
            self._begin(shown)
            return f"a state shows other {word} than the records before it"
        return ""

    def _begin(self, judge: AuditKVJudge) -> None:
        self._judge = judge
        self.rules = judge.rules
