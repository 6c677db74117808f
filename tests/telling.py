"""What comes of stories: told in lines, compared with what they say, and accepted."""

import difflib
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import pytest

from cacheproof.differential.errors import InputError
from cacheproof.differential.judges.examination import examine
from cacheproof.differential.judges.rare_states import Reachability
from cacheproof.differential.targets.base import Target
from cacheproof.differential.traces.base import tag_of
from cacheproof.differential.traces.records import StepRecord
from cacheproof.differential.traces.trace import AnyEvent
from cacheproof.differential.traces.wording import literal
from tests.stories import INDENT, Run, Story, stories_of

WIDTH = 100
NOTHING = "breaks nothing"
Outcome = dict[str, object]


def told(story: Story, run: Run, target: Target | None = None) -> list[str]:
    """What comes of a story's trace on a run's target, or on another one, in lines."""
    target = target or run.target
    reach = Reachability()
    with run.block.named():
        (result,) = target.run([story.trace], run.fault)
        examined = examine(story.trace, result, target, reach=reach)
    if examined.illegal is not None:
        return [f"refused: {examined.illegal}"]
    fields = [name for name in run.shown if name not in ("met", "why")]
    lines, at_events = _shown(fields, story.trace.events, _outcomes(result.records))
    broken: dict[int, list[str]] = {}
    for contract, kind, number, sentence in examined.breaks():
        name = f"{contract} ({kind})" if kind else contract
        why = f": {sentence.partition(': ')[2]}" if "why" in run.shown else ""
        broken.setdefault(number, []).append(name + why)
    at_events += [(number, f"breaks {', '.join(several)}") for number, several in broken.items()]
    for number, what in sorted(at_events, key=lambda one: one[0]):
        lines.append(f"event {number + 1}, {tag_of(type(story.trace.events[number]))}: {what}")
    if "met" in run.shown:
        lines.append(f"met: {literal(dict(sorted(reach.met.items())))}")
    return lines if broken else [*lines, NOTHING]


def _shown(
    names: Sequence[str], events: Sequence[AnyEvent], outcomes: Sequence[Outcome]
) -> tuple[list[str], list[tuple[int, str]]]:
    """Lines about all events, and what is shown of single ones, by their numbers from 0."""
    having = {number: one for number, one in enumerate(outcomes) if {*names[:1]} & one.keys()}
    kinds = {type(events[number]) for number in having}
    like = [number for number in range(len(outcomes)) if type(events[number]) in kinds]
    if len(names) == 1 and having and like == [*having]:
        in_turn = ", ".join(literal(one[names[0]]) for one in having.values())
        if len(INDENT + in_turn) <= WIDTH:
            return [in_turn], []
    unseen = [name for name in names if not any(name in one for one in having.values())]
    return [f"no event has {name}" for name in unseen], [
        (number, ", ".join(f"{name}={literal(one[name])}" for name in names if name in one))
        for number, one in having.items()
    ]


def _outcomes(records: Iterable[StepRecord]) -> list[Outcome]:
    """What can be shown of each event."""
    holders: dict[str, list[str]] = {}
    outcomes = []
    for record in records:
        has_fields = isinstance(record.outcome, dict)
        outcome = dict(record.outcome) if has_fields else {"outcome": record.outcome}
        for delta in (call.delta for call in record.calls if call.delta is not None):
            outcome["free_slots"] = delta.free_slots
            for identifier, entry in delta.entries.items():
                holders.pop(identifier, None)
                if entry is not None:
                    holders[identifier] = entry.holders
                outcome["entries"] = dict(holders)
        outcomes.append(outcome)
    return outcomes


def written(story: Story, run: Run, target: Target | None = None) -> list[str]:
    """A target and what comes of it, or of another in its place, as they stand in a file."""
    head, lines = f"{run.block.target}:", told(story, run, target)
    whole = f"{head} {'; '.join(lines)}"
    if len(whole) <= WIDTH:
        return [whole]
    if lines[-1] == NOTHING:
        head += f" {lines.pop()}"
    return [head, *(INDENT + line for line in lines)]


def difference(story: Story, target: Target | None = None) -> list[str]:
    """How what comes of a story, or of it on another target, differs from what it says; empty where
    it does not."""
    said = [line for run in story.runs for line in run.block.lines]
    found = [line for run in story.runs for line in written(story, run, target)]
    first = story.runs[0].block
    names = f"{first.path}:{first.number}", "what comes of it"
    return list(difflib.unified_diff(said, found, *names, lineterm="", n=len(found)))


def accept(path: Path, title: str) -> None:
    """Write anew what comes of a story."""
    lines = path.read_text().splitlines()
    (story,) = (one for one in stories_of(path) if one.title == title)
    for run in reversed(story.runs):
        for number in (*reversed(run.block.more), run.block.number):
            del lines[number - 1]
        lines[run.block.number - 1 : run.block.number - 1] = written(story, run)
    path.write_text("\n".join(lines) + "\n")


class StoryItem(pytest.Item):
    """A story as a test."""

    story: Story

    def runtest(self) -> None:
        if self.config.getoption("--accept"):
            accept(self.path, self.story.title)
        elif found := difference(self.story):
            pytest.fail("\n".join(found), pytrace=False)

    def reportinfo(self) -> tuple[Path, int, str]:
        return self.path, self.story.runs[0].block.number - 1, self.name


class StoryFile(pytest.File):
    """A file of stories."""

    def collect(self) -> Iterator[StoryItem]:
        try:
            stories = stories_of(self.path)
        except InputError as error:
            raise self.CollectError(str(error)) from error
        for story in stories:
            item = StoryItem.from_parent(self, name=story.title)
            item.story = story
            yield item
