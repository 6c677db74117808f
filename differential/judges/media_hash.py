"""Judges the digests of a media hash: each call is held against every call before it."""

from collections.abc import Callable, Mapping

from cacheproof.differential.judges.rare_states import RARE_STATES, Reachability
from cacheproof.differential.judges.violation import Violation, first_of_each
from cacheproof.differential.media.descriptions import Description
from cacheproof.differential.media.differences import kind_of, parts_of, refused_part
from cacheproof.differential.media.meaning import Meaning, content, same_form, spelling
from cacheproof.differential.targets.host.protocol import Protocol
from cacheproof.differential.traces.media_hash import Hash
from cacheproof.differential.traces.outcomes import DigestOutcome
from cacheproof.differential.traces.records import StepRecord
from cacheproof.differential.traces.trace import Trace
from cacheproof.spec.media_hash import COMPONENT, HashAnswer, HashedPair
from cacheproof.spec.registry import contracts


def pair_of(
    first: Description, second: Description, first_digest: str, second_digest: str
) -> HashedPair:
    """The record that the contracts look at."""
    same_spelling = spelling(first) == spelling(second)
    return HashedPair(
        same_content=content(first) == content(second),
        same_form=same_form(first, second),
        same_spelling=same_spelling,
        same_but_order=not same_spelling
        and spelling(first, ordered=False) == spelling(second, ordered=False),
        same_but_pixels=not same_spelling
        and spelling(first, by_id=True) == spelling(second, by_id=True),
        first_digest=first_digest,
        second_digest=second_digest,
    )


class MediaHashJudge:
    """Judges one trace. `by_kind` holds the first violation of each contract by each kind of
    difference (`media_hash_kinds`); `calls_judged` counts digests. `release` narrows the contracts
    to those that it promises."""

    state = None
    stored: Mapping[str, int] = {}
    resident_sum = 0

    def __init__(self, release: str | None, reach: Reachability) -> None:
        self.by_kind: dict[tuple[str, str], Violation] = {}
        self.calls_judged = 0
        rules = list(contracts(COMPONENT, release))
        self._rules = [rule for rule in rules if rule.parameters == ("p",)]
        self._of_answer = [rule for rule in rules if rule.parameters == ("c",)]
        self._reach = reach
        self._last: Description | None = None
        self._of_digest: dict[str, dict[Meaning, tuple[int, Description]]] = {}
        self._of_ids: dict[Meaning, tuple[int, Description, str]] = {}
        self._of_spelling: dict[Meaning, dict[tuple[Meaning, str], tuple[int, Description]]] = {}

    @property
    def violations(self) -> dict[str, Violation]:
        """The first violation of each contract."""
        return first_of_each(self.by_kind)

    def judge(self, number: int, event: Hash, record: StepRecord) -> None:
        """Judge the outcome of one `hash` event; no-ops have none."""
        outcome: DigestOutcome | None = record.outcome
        value = event.value
        if outcome is None:
            return
        self.calls_judged += 1
        self._judge_answer(number, value, HashAnswer(outcome.get("raises", "")))
        if "raises" in outcome:
            return
        self._note(value)
        if "unstable" in outcome:
            self._judge(number, number, value, value, ("one digest", "another"))
            return
        digest = outcome["digest"]
        alike = self._of_digest.setdefault(digest, {})
        for earlier, seen in alike.values():
            self._judge(number, earlier, seen, value, (digest, digest))
        alike.setdefault(content(value), (number, value))
        spelled = self._of_spelling.setdefault(spelling(value, ordered=False), {})
        for (_, other), (earlier, seen) in spelled.items():
            self._judge(number, earlier, seen, value, (other, digest))
        spelled.setdefault((spelling(value), digest), (number, value))
        by_id = spelling(value, by_id=True)
        if by_id != spelling(value):
            earlier, seen, other = self._of_ids.setdefault(by_id, (number, value, digest))
            if earlier != number:
                self._judge(number, earlier, seen, value, (other, digest))

    def _judge_answer(self, number: int, value: Description, answer: HashAnswer) -> None:
        for rule in self._of_answer:
            if not rule.predicate(answer):
                why, kind = rule.explain(c=answer), refused_part(value)
                violation = Violation(rule, number, "hash", "", "", why, kind)
                self.by_kind.setdefault((rule.id, kind), violation)

    def _judge(
        self,
        number: int,
        earlier: int,
        first: Description,
        second: Description,
        digests: tuple[str, str],
    ) -> None:
        pair = pair_of(first, second, *digests)
        for rule in self._rules:
            holds: Callable[[HashedPair], bool] = rule.predicate
            if holds(pair):
                continue
            kind = kind_of(first, second)
            beside = "hashed twice" if earlier == number else f"beside event {earlier + 1}"
            why = f"{beside}, {kind}: {rule.explain(p=pair)}"
            violation = Violation(rule, number, "hash", "", "", why, kind)
            self.by_kind.setdefault((rule.id, kind), violation)

    def _note(self, value: Description) -> None:
        """Count the rare state of two neighbours that differ in one part alone."""
        last, self._last = self._last, value
        if last is None:
            return
        if not same_form(last, value):
            self._reach.meet("another form over the same bytes")
        found = parts_of(last, value)
        if len(found) == 1 and found <= RARE_STATES.keys():
            self._reach.meet(*found)


def judge_of(
    trace: Trace, release: str | None, protocol: Protocol, reach: Reachability
) -> MediaHashJudge:
    """The judge for a trace; `release` is the target's, None where it is no release."""
    return MediaHashJudge(release, reach)
