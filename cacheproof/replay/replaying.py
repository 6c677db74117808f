"""The command that runs a finding or a trace again."""

import re
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import NamedTuple

from cacheproof.differential.errors import InputError
from cacheproof.differential.findings import finding as findings_of
from cacheproof.differential.findings import finding_file
from cacheproof.differential.findings.finding import LOCKSTEP, Finding, Replay
from cacheproof.differential.search import fault_folders
from cacheproof.differential.search.known import NAME, KnownFault
from cacheproof.differential.search.verdict import FROM_MODEL, HOLDS, UNLISTED, VOID
from cacheproof.differential.targets.base import Target
from cacheproof.differential.targets.named import NamedTarget, named
from cacheproof.differential.targets.reference import ReferenceTarget
from cacheproof.differential.targets.resolve import reference_for, resolve
from cacheproof.differential.traces.trace import Trace
from cacheproof.listed.facts import listed_by_name, newest_having
from cacheproof.listed.findings import finding_of
from cacheproof.listed.pages import file_of, name_of
from cacheproof.output.announcing import announce, has_text_of_its_own
from cacheproof.output.conclusion import Conclusion
from cacheproof.output.console import CommandOutput
from cacheproof.output.drawing import Drawings
from cacheproof.replay import page_code
from cacheproof.replay.story import print_story, story_of
from cacheproof.search.lane_choice import depths_of

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
    output: CommandOutput,
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
    file, what, its_own = load_what(what_text, folder)
    is_given = target_text is not None
    target_text = target_text or its_own or _newest_showing(file)
    trace = _trace_of(what)
    drawings.require_timeline(trace, str(file))
    try:
        target_named = named(target_text)
    except InputError as error:
        raise (
            error
            if is_given
            else InputError(f"{file}: its target is none here: {error}; give another with --target")
        ) from None
    _require_depth(target_named, trace, file)
    target = resolve(target_text, report=output.say)
    _require_runs(target, trace, file)
    with closing(target), _reference_for(target) as reference:
        told = announce(output, target, compared=reference is not None)
        with output.live(f"running {file.name} {times} times on {target.name}"):
            runs = findings_of.replay(what, target, times, reference)
        if runs.examination.illegal is not None:
            raise InputError(f"{file}: {runs.sentence}; {_instead(file, 'a trace that it takes')}")
        story = story_of(file, what, target, runs, known, reference)
    drawings.write_replay(trace, runs, target, story.answer)
    print_story(output, story)
    facts = {
        "target": target_text,
        "model": told,
        "sentence": runs.sentence,
        "same": runs.same,
        "broke": runs.broke,
        "times": runs.times,
        "digests": runs.digests,
        **story.to_json(),
    }
    return output.tell(Conclusion(_exit_code(runs, target), story.verdict, facts))


def _exit_code(runs: Replay, target: Target) -> int:
    if runs.same < runs.times:
        return VOID
    if not runs.broke:
        return HOLDS
    return FROM_MODEL if has_text_of_its_own(target) and _only_parts(runs) else UNLISTED


def _newest_showing(file: Path) -> str:
    """The newest target that was seen to break on a kept trace.

    Raises:
        InputError: it is another trace.
    """
    newest = newest_having(fault_folders.load(), name_of(file.absolute()))
    if newest is None:
        raise InputError(f"{file} is a trace without a target; give one with --target")
    return newest


class LoadedTrace(NamedTuple):
    """What is to be run again, its file, and on which target, where what was asked for says so."""

    file: Path
    what: Finding | Trace
    target: str | None


def load_what(text: str, folder: Path) -> LoadedTrace:
    """A finding or a trace by its file; or by NAME@RELEASE a listed fault's newest finding in
    `folder`, else a trace that shows it on that release.

    Raises:
        InputError: there is none, or it is neither.
    """
    file, target = file_of(Path(text)), None
    if text in listed_by_name() and not file.exists():
        raise InputError(
            f"{text} is a known fault; expected it with a release, FAULT@RELEASE, or a file: "
            f"cacheproof explain {text} has both"
        )
    if (fault := OF_FAULT.fullmatch(text)) is not None and not file.exists():
        file, target = finding_of(fault["fault"], fault["release"], folder)
    what = finding_file.load(file)
    return LoadedTrace(file, what, what.target if isinstance(what, Finding) else target)


def _require_depth(target: Target | NamedTarget, trace: Trace, file: Path) -> None:
    """See whether a target runs traces of that depth. Raises InputError where it does not."""
    if not target.runs_depth(trace.depth):
        raise InputError(
            f"{file}: target {target.name} does not run this {trace.depth}-depth trace; "
            f"{_instead(file, f'a trace of {depths_of(target)}, or another target')}"
        )


def _instead(file: Path, otherwise: str) -> str:
    """What was expected: of a kept trace the target that it shows a fault on."""
    newest = newest_having(fault_folders.load(), name_of(file.absolute()))
    return f"expected {otherwise if newest is None else f'--target {newest}, which takes it'}"


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
