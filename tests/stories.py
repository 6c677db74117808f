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
event that has the first of them; one alone in turn, if all events of a kind have it. A line has
room for all that comes of a short story. Beside fields are shown:

    outcome               what has no fields; None of an event that does nothing
    entries, free_slots   of the encoder cache as they change, with who holds an entry
    why                   a contract breaks
    met                   rare states, how often
"""

import ast
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import msgspec
from msgspec.structs import replace

from cacheproof.differential.depths import DEPTHS
from cacheproof.differential.errors import InputError
from cacheproof.differential.lanes.all_lanes import LANES
from cacheproof.differential.targets.reference import ReferenceTarget
from cacheproof.differential.traces.base import SCHEMA, Adapter, Group, Item
from cacheproof.differential.traces.trace import Trace
from cacheproof.differential.traces.trace_file import dump, parse
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
    def target(self) -> str:
        return self.line.partition(":")[0]

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
                config |= _config(rest)
            elif word in ("trace", "seed"):
                kept, config = _kept(block.text), {}
            elif BASE.fullmatch(word.rstrip(":")):
                runs.append(_run(block))
            else:
                value = _value(ast.parse(block.text, mode="eval").body)
                events = value if isinstance(value, tuple) else (value,)
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


def _config(text: str) -> dict[str, object]:
    call = ast.parse(f"config({text})", mode="eval").body
    if not isinstance(call, ast.Call) or call.args:
        raise ValueError("expected: config NAME=VALUE, ...")
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


def _run(block: Block) -> Run:
    if ":" not in block.line:
        raise ValueError("expected ':' after a target")
    base, *words = block.target.replace(",", " ").split()
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
