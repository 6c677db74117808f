"""Every call of cacheproof that a page shows is one that the command line takes. Nothing is run."""

import re
import shlex
from pathlib import Path
from typing import Any

import pytest
import typer

from cacheproof.cli import app
from cacheproof.differential.depths import DEPTHS

ROOT = Path(__file__).resolve().parent.parent
FOLDERS = "docs", "faults"
PAGES = sorted(
    [
        *ROOT.glob("*.md"),
        *(p for f in FOLDERS for p in ROOT.glob(f"{f}/**/*.md")),
        ROOT / "action.yml",
    ]
)
GROUP: Any = typer.main.get_command(app)
BLOCK = re.compile(r"^( *)```.*?^\1```$|^ {4}[^\n]*$", re.MULTILINE | re.DOTALL)
CALL = re.compile(r"(?:(?<![\w/.`-])(?<!-C )(?<!with )|bin/)cacheproof ([a-z].*)")
"""In a block, but for folders and sentences."""
SPAN = re.compile(r"`(?:\S*bin/)?cacheproof ([^`]+)`")
ENDS = re.compile(r"\s{2,}|\s(?:#|\d?>+|&&|\|\|)\s|;\s")
"""Where a call ends: before a column of text, a comment, a redirection or another command."""


def calls(page: str) -> list[str]:
    """What follows `cacheproof` in the blocks and the sentences of a page, a call each. Where a
    line has alternatives of one group of commands, as `vllm install X | list`, each is a call."""
    page = re.sub(r"\s*\\\n\s*", " ", page)
    page = re.sub(r"\$\(.*\)", "VALUE", page)
    blocks = "\n".join(match[0] for match in BLOCK.finditer(page))
    spans = [" ".join(one.split()) for one in SPAN.findall(page)]
    found = []
    for line in [*CALL.findall(blocks), *spans]:
        first, *others = ENDS.split(line)[0].split(" | ")
        found.append(first)
        name = first.split()[0]
        if hasattr(GROUP.commands.get(name), "commands"):
            found += [f"{name} {one}" for one in others]
    return found


def complaint(call: str) -> str | None:
    """What the command line has against a call; a placeholder (FILE, A:B) stands for any value."""
    command, words = GROUP, shlex.split(re.sub(r"[\[\]]", "", call))
    while hasattr(command, "commands") and words and not words[0].startswith("-"):
        name = words.pop(0)
        if name.isupper() or name.startswith("$"):
            return None
        if name not in command.commands:
            return f"no command {name}"
        command = command.commands[name]
    context = typer.Context(command, **command.context_settings)
    options = {name: param for param in command.get_params(context) for name in param.opts}
    if words and not getattr(options.get(words[-1]), "is_flag", True):
        words.append("VALUE")  # a sentence may name an option alone
    try:
        values, too_many, _ = command.make_parser(context).parse_args([*words])
    except Exception as error:
        return str(error)
    if too_many:
        return f"{too_many[0]} is one too many"
    depth = values.get("depth") or "DEPTH"
    if depth not in DEPTHS and not depth.isupper():
        return f"no depth {depth}"
    kept = [one for one in words if one.startswith(("docs/", "faults/"))]
    files = [one for one in kept if not any(part.isupper() for part in Path(one).parts)]
    gone = [one for one in files if not (ROOT / one).exists()]
    return f"no file {gone[0]}" if gone else None


@pytest.mark.parametrize("page", PAGES, ids=lambda one: one.relative_to(ROOT).as_posix())
def test_the_command_line_takes_every_call_of_a_page(page: Path) -> None:
    refused = {call: complaint(call) for call in calls(page.read_text())}
    assert {call: why for call, why in refused.items() if why} == {}


PAGE = """
Run `cacheproof fuzz
--target T`, or `x/bin/cacheproof check`; `git clone URL cacheproof`.

    A=1 cacheproof record DIR -- vllm serve --port 1 # any
    git -C cacheproof checkout --detach B

```console
$ cacheproof replay FILE --times 4 | head -29
cacheproof audit DIR [--html PAGE]   judge it
cacheproof vllm install X... | list  releases
.venv/bin/cacheproof review --base A \\
    --head B > page.md || code=$?
```
"""


def test_calls_of_blocks_and_sentences_are_found_whole() -> None:
    assert calls(PAGE) == [
        "record DIR -- vllm serve --port 1",
        "replay FILE --times 4",
        "audit DIR [--html PAGE]",
        "vllm install X...",
        "vllm list",
        "review --base A --head B",
        "fuzz --target T",
        "check",
    ]
    assert [complaint(one) for one in calls(PAGE)] == [None] * 8


@pytest.mark.parametrize(
    ("call", "why"),
    [
        ("fzz --target T", "no command fzz"),
        ("vllm instal X", "no command instal"),
        ("fuzz --target T --minutes 2", "No such option: --minutes"),
        ("--versoin", "No such option: --versoin"),
        ("bisect FINDING OTHER", "OTHER is one too many"),
        ("fuzz --target T --depth worker", "no depth worker"),
        ("replay faults/gone/trace.jsonl", "no file faults/gone/trace.jsonl"),
    ],
)
def test_a_call_that_would_be_refused_is_noticed(call: str, why: str) -> None:
    assert (complaint(call) or "").startswith(why)
