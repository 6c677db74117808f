"""The folders of known faults, which the package brings along: their traces, and what pages say.

A trace is called as its fault, with what its file's name has behind `trace`: `lost-budget` is
faults/lost-budget/trace.jsonl, `phantom-entry-before` faults/phantom-entry/trace-before.jsonl.
"""

import re
from collections.abc import Iterator
from functools import cache
from importlib import resources
from pathlib import Path

from cacheproof.differential.findings.finding_file import load
from cacheproof.differential.traces.trace import Trace

FOLDER = Path(str(resources.files("cacheproof") / "faults"))
WHERE = "faults"
_FENCE = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)
_HEADING = re.compile(r"^#", re.MULTILINE)
_CODE = re.compile(r"\n```(?:.*\n(?:(?!```).*\n)*```)?")
_NO_PROSE = re.compile(r"#|\* \*\*|\||    |  \S")
_SAID_LAST = re.compile(r"\*\*(?:Reach|Judgement|To be safe)\b")
"""Paragraphs that say who meets a fault, what we make of it, and how it is avoided."""


@cache
def kept_traces() -> dict[str, Path]:
    """The traces of all folders, by their names."""
    return {name_of(file): file for file in sorted(FOLDER.glob("*/trace*.jsonl"))}


def name_of(file: Path) -> str:
    """The name of a trace in the folder of a fault."""
    return file.parent.name + file.stem.removeprefix("trace")


def told(trace: str) -> str:
    """The file of a trace, as commands name it."""
    file = kept_traces()[trace]
    return f"{WHERE}/{file.parent.name}/{file.name}"


def called(file: Path) -> str:
    """The name of a file in a sentence; of a fault's file with its folder."""
    folder = file.absolute().parent.name
    return f"{folder}/{file.name}" if (FOLDER / folder / file.name).is_file() else file.name


def file_of(path: Path) -> Path:
    """A file of faults/ as it is named in commands: where there is none of that name, the one that
    the package brings along."""
    brought = FOLDER.joinpath(*path.parts[1:])
    is_ours = path.parts[:1] == (WHERE,) and ".." not in path.parts and brought.is_file()
    return brought if is_ours and not path.exists() else path


def is_brought(file: Path, trace: Trace) -> bool:
    """Whether a trace is the one of faults/ with its name: others may have the same name."""
    brought = kept_traces().get(name_of(file.absolute()))
    return brought is not None and load(brought) == trace


def paragraphs_of(fault: str) -> list[str]:
    """How a fault comes about, in plain text: what its page says before the first lines that are to
    be run, or where it begins with them before the next ones."""
    page = FOLDER / fault / "page.md"
    paragraphs = list(_paragraphs(first_part(page.read_text()))) if page.is_file() else []
    # what such a sentence announces is a list, a table or code, and is not told here
    return [f"{one[:-1]}: see the page." if one.endswith(":") else one for one in paragraphs]


def plain(markdown: str) -> str:
    """Words without the marks of Markdown, in one line."""
    words = re.sub(r"\[([^\]]+)\]\([^)]+\)", r"\1", markdown)
    return " ".join(re.sub(r"\*\*|`", "", words).split())


def first_part(page: str) -> str:
    """The text under the first heading of a page, before the second."""
    headings = _HEADING.finditer(_FENCE.sub(lambda one: " " * len(one[0]), page))
    starts = [one.start() for one in headings]
    return page[: starts[1]] if len(starts) > 1 else page


def _paragraphs(section: str) -> Iterator[str]:
    """The prose of a section, without heading, header and tables, up to the first code after it."""
    is_begun = False
    for part in _CODE.split(section):
        for block in re.split(r"\n\s*\n", part):
            if _SAID_LAST.match(block.lstrip()):
                return
            if block.strip() and not _NO_PROSE.match(block.lstrip("\n")):
                is_begun = True
                yield plain(block)
        if is_begun:
            return
