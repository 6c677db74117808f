"""The folder docs/findings, which the package brings along: its traces, and what its pages say."""

import re
from collections.abc import Iterator
from importlib import resources
from pathlib import Path

from cacheproof.differential.findings.finding_file import load
from cacheproof.differential.traces.trace import Trace

FOLDER = resources.files("cacheproof") / "finding_pages"
WHERE = "docs/findings/"
_HEADING = re.compile(r"^(#+) (.*)$", re.MULTILINE)
_FENCE = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)
_CODE = re.compile(r"\n```(?:.*\n(?:(?!```).*\n)*```)?")
_NO_PROSE = re.compile(r"#|\* \*\*|\||    |  \S")
_SAID_LAST = re.compile(r"\*\*(?:Reach|Judgement|To be safe)\b")
"""Paragraphs that say who meets a fault, what we make of it, and how it is avoided."""


def file_of(path: Path) -> Path:
    """A file of docs/findings as it is named in commands: where there is none of that name, the one
    that the package brings along."""
    brought = Path(str(FOLDER / path.name))
    is_ours = str(path).startswith(WHERE) and brought.is_file()
    return brought if is_ours and not path.exists() else path


def is_brought(file: Path, trace: Trace) -> bool:
    """Whether a trace is the one of docs/findings that is called so: others may be called alike."""
    brought = Path(str(FOLDER / file.name))
    return brought.is_file() and load(brought) == trace


def paragraphs_of(place: str) -> list[str]:
    """How a fault comes about, in plain text: what its page says before the first lines that are to
    be run, or where it begins with them before the next ones. `place` is as the list of known
    faults has it, `findings/sessions.md#a-session-outgrows-the-model`; of pages that are not of
    docs/findings nothing."""
    name, _, anchor = place.removeprefix("findings/").partition("#")
    page = FOLDER / name
    if not place.startswith("findings/") or name == "README.md" or not page.is_file():
        return []
    told = list(_paragraphs(section_of(page.read_text(), anchor)))
    # what such a sentence announces is a list, a table or code, and is not told here
    return [f"{one[:-1]}: see the page." if one.endswith(":") else one for one in told]


def plain(markdown: str) -> str:
    """Words without the marks of Markdown, in one line."""
    words = re.sub(r"\[([^\]]+)\]\([^)]+\)", r"\1", markdown)
    return " ".join(re.sub(r"\*\*|`", "", words).split())


def section_of(text: str, anchor: str) -> str:
    """What stands under a heading; the first part of the page where none is named."""
    headings = list(_HEADING.finditer(_FENCE.sub(lambda one: " " * len(one[0]), text)))
    for number, heading in enumerate(headings):
        if not anchor or _anchor_of(heading[2]) == anchor:
            later = headings[number + 1 :]
            ends = (one.start() for one in later if not anchor or len(one[1]) <= len(heading[1]))
            return text[heading.start() : next(ends, len(text))]
    return ""


def _anchor_of(title: str) -> str:
    return re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-")


def _paragraphs(section: str) -> Iterator[str]:
    """Its prose without heading, header and tables, up to the first code after it."""
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
