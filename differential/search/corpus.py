"""The smallest traces of a register, run on a target before any seed is searched."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from cacheproof.differential.errors import HarnessError
from cacheproof.differential.findings.breaks import Break
from cacheproof.differential.findings.question import Question
from cacheproof.differential.findings.register import Record, broke, held
from cacheproof.differential.judges.examination import LOCKSTEP, Examination, examine
from cacheproof.differential.lanes.lane import Lane
from cacheproof.differential.search.bisection import tellings
from cacheproof.differential.targets.base import Target
from cacheproof.differential.targets.reference import ReferenceTarget
from cacheproof.differential.traces.trace import Trace


@dataclass
class Corpus:
    """What came of a register's traces on one target: the `records` that it says something about,
    as they are now, the breaks, and what kept a trace from being run."""

    records: list[Record] = field(default_factory=list)
    breaks: list[Break] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)


def run(
    target: Target,
    lanes: Iterable[Lane],
    records: Iterable[Record],
    reference: ReferenceTarget | None,
    date: str,
    advance: Callable[[], None] = lambda: None,
) -> Corpus:
    """Run the traces whose lanes are among `lanes`; `date` is the day. A release that lacks a
    setting of a trace is asked without it, and then only a break says anything. A trace that it
    refuses says nothing."""
    corpus, names = Corpus(), {lane.name for lane in lanes}
    for record in records:
        advance()
        if record.lane not in names:
            continue
        try:
            _ask(target, record, reference, date, corpus)
        except HarnessError as error:
            corpus.errors.append(f"trace of {record.name}: {error}")
    return corpus


def _ask(
    target: Target,
    record: Record,
    reference: ReferenceTarget | None,
    date: str,
    corpus: Corpus,
) -> None:
    """Add what one trace says. Raises HarnessError when the target broke."""
    question = Question(record.trace, record.contract, record.kind)
    judged_by = reference if record.contract == LOCKSTEP else None
    for without, trace in tellings(record.trace):
        seen = examine(trace, target.run([trace])[0], target, judged_by)
        if seen.illegal is not None:
            continue
        if question.broken(seen):
            corpus.breaks.append(_break(question, seen, record, trace))
            corpus.records.append(broke(record, target.name, target.release, date))
        elif not without:
            corpus.records.append(held(record, target.name, target.release, date))
        return


def _break(question: Question, seen: Examination, record: Record, trace: Trace) -> Break:
    """What the search is told of a trace that breaks what its record says."""
    for contract, kind, event, sentence in seen.breaks():
        if question.asks(contract, kind):
            asked = seen.operation(contract, kind)
            return Break(contract, kind, record.lane, trace, event, sentence, 0.0, asked)
    raise AssertionError(f"{record.name} breaks nothing")
