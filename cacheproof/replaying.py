"""The command that runs a finding or a trace again."""

import re
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path

from cacheproof import page_code
from cacheproof.announcing import announce, has_text_of_its_own
from cacheproof.console import Output
from cacheproof.differential.errors import InputError
from cacheproof.differential.findings import finding as findings_of
from cacheproof.differential.findings import finding_file
from cacheproof.differential.findings.finding import LOCKSTEP, Finding, Replay
from cacheproof.differential.search import known as known_faults
from cacheproof.differential.search.known import NAME, KnownFault
from cacheproof.differential.search.verdict import FROM_MODEL, HOLDS, UNLISTED, VOID
from cacheproof.differential.targets.base import Target
from cacheproof.differential.targets.named import Named, named
from cacheproof.differential.targets.reference import ReferenceTarget
from cacheproof.differential.targets.resolve import reference_for, resolve
from cacheproof.differential.traces.trace import Trace
from cacheproof.drawing import Drawings
from cacheproof.fault_facts import newest_having
from cacheproof.fault_findings import finding_of
from cacheproof.fault_pages import file_of
from cacheproof.lane_choice import depths_of
from cacheproof.replay_story import print_story, story_of

OF_FAULT = re.compile(rf"(?P<fault>{NAME.strip('^$')})@(?P<release>\d[\w.]*)", re.ASCII)
"""The name of a listed fault, and a release."""


@contextmanager
def _reference_for(target: Target) -> Iterator[ReferenceTarget | None]:
    """The reference beside a target, where the release is modelled."""
    reference = reference_for(target)
    try:
        yield reference
    finally:
        if reference is not None:
            reference.close()


def replay(
    output: Output,
    what_text: str,
    target_text: str | None,
    times: int,
    folder: Path,
    drawings: Drawings,
    known: Sequence[KnownFault],
) -> int:
    """Run a finding or a trace again, by its file, or a listed fault's newest finding in `folder`,
    by NAME@RELEASE, and draw its first run where that is asked for; of a page run its Python. 0: it
    holds; 1: it breaks; 3: the runs differ; 4: it does not break, and parts from the model."""
    if what_text.endswith(page_code.SUFFIX):
        drawings.require_none(what_text)
        return page_code.replay_page(output, file_of(Path(what_text)), target_text)
    file, what = load_what(what_text, folder)
    if target_text is None:
        target_text = _target_of(file, what)
    trace = _trace_of(what)
    drawings.require_timeline(trace, str(file))
    _require_depth(named(target_text), trace, file)
    target = resolve(target_text, report=output.say)
    _require_runs(target, trace, file)
    with closing(target), _reference_for(target) as reference:
        told = announce(output, target, compared=reference is not None)
        runs = findings_of.replay(what, target, times, reference)
    if runs.examination.illegal is not None:
        raise InputError(f"{file}: {runs.sentence}; expected a trace that it takes")
    story = story_of(file, what, target, runs, known)
    drawings.write_replay(trace, runs, target, story.answer)
    print_story(output, story)
    output.verdict(story.verdict)
    output.write_json(
        "replay",
        {
            "target": target_text,
            "model": told,
            "sentence": runs.sentence,
            "same": runs.same,
            "broke": runs.broke,
            "times": runs.times,
            "digests": runs.digests,
            **story.to_json(),
        },
    )
    if runs.same < runs.times:
        return VOID
    if not runs.broke:
        return HOLDS
    return FROM_MODEL if has_text_of_its_own(target) and _only_parts(runs) else UNLISTED


def _target_of(file: Path, what: Finding | Trace) -> str:
    """A finding's own target; of a trace of docs/findings the newest that was seen to break on it.

    Raises:
        InputError: it is another trace.
    """
    if isinstance(what, Finding):
        return what.target
    newest = newest_having(known_faults.listed(), file.stem)
    if newest is None:
        raise InputError(f"{file} is a trace without a target; give one with --target")
    return newest


def load_what(text: str, folder: Path) -> tuple[Path, Finding | Trace]:
    """What is to be run again, and its file: a finding's or a trace's, or by NAME@RELEASE a listed
    fault's newest finding in `folder`.

    Raises:
        InputError: there is none, or it is neither.
    """
    file = file_of(Path(text))
    if (fault := OF_FAULT.fullmatch(text)) is not None and not file.exists():
        file = finding_of(fault["fault"], fault["release"], folder)
    return file, finding_file.load(file)


def _require_depth(target: Target | Named, trace: Trace, file: Path) -> None:
    """See whether a target runs traces of that depth. Raises InputError where it does not."""
    if not target.runs_depth(trace.depth):
        raise InputError(
            f"{file}: target {target.name} does not run this {trace.depth}-depth trace; expected a "
            f"trace of {depths_of(target)}, or another target"
        )


def _require_runs(target: Target, trace: Trace, file: Path) -> None:
    """See whether a target runs such traces at all.

    Raises:
        InputError: it does not.
    """
    _require_depth(target, trace, file)
    if isinstance(target, ReferenceTarget) and not target.runs(trace):
        raise InputError(
            f"{file}: the reference does not run this {trace.depth}-depth trace; expected a real "
            f"release as --target"
        )


def _only_parts(runs: Replay) -> bool:
    """Whether nothing was broken but the lockstep, of what was to be run again."""
    if runs.contract is not None:
        return runs.contract == LOCKSTEP
    return set().union(*runs.verdicts) == {LOCKSTEP}


def _trace_of(what: Finding | Trace) -> Trace:
    return what.trace if isinstance(what, Finding) else what
