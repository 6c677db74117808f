"""Stories: traces in plain text, and beneath each what comes of it. pytest collects every
`stories/*.txt`, each story a test; `--accept` writes what comes of them anew.

    config depth="scheduler", capacity=8           of every story of the file
    == what is to be seen                          a story begins
    config num_speculative_tokens=1                what differs in this one
    Add("a", 20, (Item("x", 4, 5),))               events, in the words of differential/traces/
    (Schedule(), Update()) * 6
    ideal: breaks nothing
    ideal without scheduler.pads_drafts shows scheduled:
        event 2, schedule: scheduled={"a": 8}
        event 4, schedule: breaks LV-1 (drafter)

What is indented belongs to the line above, and `#` begins a comment. Other events are those of
`trace FILE`, a path in the repository, or of `seed NUMBER of LANE`, which may go on `for RELEASE`;
`config` lines below change those. A target is `ideal` or a release of vLLM, as the reference models
it; `without` and `with` turn flags of its semantics off and on, and a fault may be `planted`. It
tells which contracts break, each kind the first time, and `shows` fields of outcomes, for each
event that has the first of them; one alone in turn, if all events of a kind have it. Beside those:

    outcome               what has no fields; None of an event that does nothing
    entries, free_slots   of the encoder cache as they change, with who holds an entry
    why                   a contract breaks
    met                   rare states, how often
"""

import ast
import difflib
import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import msgspec
import pytest
from _pytest._code.code import TerminalRepr, TracebackStyle
from msgspec.structs import replace

from cacheproof.differential.depths import DEPTHS
from cacheproof.differential.errors import InputError
from cacheproof.differential.judges.examination import examine
from cacheproof.differential.judges.rare_states import Reachability
from cacheproof.differential.lanes.all_lanes import LANES
from cacheproof.differential.targets.base import Target
from cacheproof.differential.targets.reference import ReferenceTarget
from cacheproof.differential.traces.base import SCHEMA, Adapter, Group, Item, tag_of
from cacheproof.differential.traces.records import StepRecord
from cacheproof.differential.traces.trace import AnyEvent, Trace
from cacheproof.differential.traces.trace_file import dump, parse
from cacheproof.differential.traces.wording import literal
from cacheproof.reference.releases import is_modelled
from cacheproof.reference.semantics import Semantics

ROOT = Path(__file__).resolve().parent.parent
WORDS: dict[str, type[msgspec.Struct]] = {
    one.__name__: one
    for one in (*(one for depth in DEPTHS.values() for one in depth.events), Adapter, Group, Item)
}
BASE = re.compile(r"ideal|\d+(\.\d+)+")
SEED = re.compile(r"seed (\d+) of (.+?)(?: for (\d\S+))?")
CLAUSES = ("without", "with", "planted", "shows")
INDENT = "    "
WIDTH = 100
NOTHING = "breaks nothing"
Outcome = dict[str, object]


@dataclass
class Block:
    """A line by its number from 1, and the lines that belong to it by theirs."""

    path: Path
    number: int
    line: str
    more: dict[int, str] = field(default_factory=dict)

    @property
    def text(self) -> str:
        return " ".join((self.line, *self.more.values()))

    @property
    def lines(self) -> list[str]:
        return [self.line, *(INDENT + line for line in self.more.values())]

    @contextmanager
    def named(self) -> Iterator[None]:
        """Have what is wrong here say where it is."""
        try:
            yield
        except (InputError, LookupError, OSError, SyntaxError, TypeError, ValueError) as error:
            where = f"{self.path}:{self.number}: {self.line!r}"
            raise InputError(f"{where}: {type(error).__name__}: {error}") from error


@dataclass(frozen=True)
class Run:
    """A target, the fault that is planted in it, and what is shown of its outcomes."""

    block: Block
    target: ReferenceTarget
    fault: str | None
    shown: Sequence[str]


@dataclass(frozen=True)
class Story:
    """A trace, and who runs it."""

    title: str
    trace: Trace
    runs: Sequence[Run]


def stories_of(path: Path) -> list[Story]:
    """The stories of a file. Raises InputError, which names file and line."""
    shared, *each = _parts(path)
    stories = [_story([*shared, *blocks]) for blocks in each]
    titles = [story.title for story in stories]
    for title, (head, *_) in zip(titles, each, strict=True):
        with head.named():
            if titles.count(title) > 1:
                raise ValueError("two stories of one title; expected another")
    return stories


def _parts(path: Path) -> list[list[Block]]:
    """The lines before the first story, and those of each."""
    parts: list[list[Block]] = [[]]
    for number, line in enumerate(path.read_text().splitlines(), start=1):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        block = Block(path, number, line)
        if line.startswith(" "):
            with block.named():
                parts[-1][-1].more[number] = line.strip()
            continue
        if line.startswith("== "):
            parts.append([])
        parts[-1].append(block)
    return parts


def _story(blocks: Sequence[Block]) -> Story:
    config: dict[str, object] = {}
    kept: Trace | None = None
    title, runs = "", []
    lines, places = [b""], [blocks[0]]
    for block in blocks:
        word, _, rest = block.text.partition(" ")
        with block.named():
            if word == "==":
                title, places[0] = rest, block
            elif word == "config":
                config |= _keywords(rest)
            elif word in ("trace", "seed"):
                kept, config = _kept(block.text), {}
            elif BASE.fullmatch(word.rstrip(":")):
                runs.append(_run(block))
            else:
                events = _events(block.text)
                lines += map(msgspec.json.encode, events)
                places += [block] * len(events)
    with places[0].named():
        if not runs:
            raise ValueError("a story that asks no target; expected one at least")
        if kept is None:
            depth, manager = config.pop("depth"), config.pop("manager", "encoder_cache")
            header = {"depth": depth, "schema": SCHEMA, "manager": manager, "config": config}
            lines[0] = msgspec.json.encode(header)
        else:
            changed = replace(kept.header, config=replace(kept.header.config, **config))
            lines[:1] = dump(Trace(changed, kept.events)).encode().splitlines()
            places = [places[0]] * len(kept.events) + places
    try:
        return Story(title, parse(lines, "trace"), runs)
    except InputError as error:
        number = int(str(error).split()[2].rstrip(":"))
        with places[number - 1].named():
            raise


def _value(node: ast.expr) -> object:
    """What an expression of literals, and of the words of traces, stands for."""
    match node:
        case ast.Call(ast.Name(word), arguments, keywords):
            named = {str(one.arg): _value(one.value) for one in keywords}
            return WORDS[word](*map(_value, arguments), **named)
        case ast.Tuple(elements):
            return tuple(map(_value, elements))
        case ast.BinOp(ast.Tuple(elements), ast.Mult(), ast.Constant(int(times))):
            return tuple(map(_value, elements)) * times
        case _:
            return ast.literal_eval(node)


def _events(text: str) -> tuple[object, ...]:
    value = _value(ast.parse(text, mode="eval").body)
    return value if isinstance(value, tuple) else (value,)


def _keywords(text: str) -> dict[str, object]:
    call = ast.parse(f"config({text})", mode="eval").body
    assert isinstance(call, ast.Call)
    return {str(one.arg): _value(one.value) for one in call.keywords}


def _kept(text: str) -> Trace:
    """A trace of a file, or of a lane."""
    if text.startswith("trace "):
        name = text.removeprefix("trace ")
        return parse((ROOT / name).read_bytes().splitlines(), name)
    asked = SEED.fullmatch(text)
    if asked is None:
        raise ValueError("expected: seed NUMBER of LANE, or ... for RELEASE")
    return LANES[asked[2]].trace(int(asked[1]), asked[3])


def _target(block: Block) -> str:
    return block.line.partition(":")[0]


def _run(block: Block) -> Run:
    if ":" not in block.line:
        raise ValueError("expected ':' after a target")
    base, *words = _target(block).replace(",", " ").split()
    clauses: dict[str, list[str]] = {}
    clause = ""
    for word in words:
        if word in CLAUSES:
            clause = word
        elif clause:
            clauses.setdefault(clause, []).append(word)
        else:
            raise ValueError(f"{word!r}; expected one of {', '.join(CLAUSES)}")
    release = None if base == "ideal" else base
    if release is not None and not is_modelled(release):
        raise ValueError(f"the reference does not model {release}")
    semantics = Semantics.ideal() if release is None else Semantics.of_vllm(release)
    flags = dict.fromkeys(clauses.get("without", ()), False)
    flags |= dict.fromkeys(clauses.get("with", ()), True)
    target = ReferenceTarget(semantics.changed(flags), release=release)
    fault = " ".join(clauses.get("planted", ())) or None
    return Run(block, target, fault, clauses.get("shows", ()))


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
    return lines if broken else [NOTHING, *lines]


def _shown(
    names: Sequence[str], events: Sequence[AnyEvent], outcomes: Sequence[Outcome]
) -> tuple[list[str], list[tuple[int, str]]]:
    """Lines about all events, and what is shown of single ones, by their numbers from 0."""
    having = {number: one for number, one in enumerate(outcomes) if {*names[:1]} & one.keys()}
    kinds = {type(events[number]) for number in having}
    like = [number for number in range(len(outcomes)) if type(events[number]) in kinds]
    if len(names) == 1 and having and like == [*having]:
        in_turn = f"{names[0]}: {', '.join(literal(one[names[0]]) for one in having.values())}"
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
    head, lines = f"{_target(run.block)}:", told(story, run, target)
    if lines[0] == NOTHING or (len(lines) == 1 and len(f"{head} {lines[0]}") <= WIDTH):
        head += f" {lines.pop(0)}"
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

    def repr_failure(
        self, excinfo: pytest.ExceptionInfo[BaseException], style: TracebackStyle | None = None
    ) -> str | TerminalRepr:
        if isinstance(excinfo.value, InputError):
            return str(excinfo.value)
        return super().repr_failure(excinfo, style)

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
