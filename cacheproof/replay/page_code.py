"""The Python of the page of a fault, run in the interpreter of a release.

A block stands between ```` ```python ```` and ```` ``` ````. It is run on the newest release, or on
the one that is named behind `python on`. It asserts what the page says, so a block that comes to
its end shows that the page is right.
"""

import json
import re
import subprocess
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from cacheproof.differential import files
from cacheproof.differential.errors import HarnessError, InputError
from cacheproof.differential.findings.finding_file import MAX_BYTES
from cacheproof.differential.provision import releases
from cacheproof.differential.search.verdict import HOLDS, UNLISTED
from cacheproof.differential.targets.named import TargetKind, named
from cacheproof.listed.explaining import print_parts, text_part
from cacheproof.listed.pages import called
from cacheproof.output.conclusion import Conclusion
from cacheproof.output.console import CommandOutput
from cacheproof.output.verdict_line import VerdictLine, counted, names
from cacheproof.reference.releases import NEWEST

SUFFIX = ".md"
_BLOCK = re.compile(r"^```python(?: on (\S+))?\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_PROGRAM = """\
import contextlib, io, json, sys
ran = []
for where, code in json.load(sys.stdin):
    said, error = io.StringIO(), ""
    with contextlib.redirect_stdout(said):
        try:
            exec(compile(code, where, "exec"), {})
        except Exception as raised:
            error = f"{type(raised).__name__}: {raised}".rstrip(": ")
    ran.append((said.getvalue(), error))
print()
print(json.dumps(ran))
"""
"""What runs blocks one after another, and says of each what it printed and what it raised."""


@dataclass(frozen=True)
class CodeBlock:
    """Lines of Python of a page: where they begin, counted from 1, and what they are to run on."""

    page: str
    line: int
    release: str
    code: str

    @property
    def where(self) -> str:
        """The place of the block, as reports name it."""
        return f"{self.page}, line {self.line}"


@dataclass(frozen=True)
class RanBlock:
    """What a block printed, and what it raised; empty where it came to its end."""

    block: CodeBlock
    said: str
    error: str


def blocks_of(page: str, text: str, release: str | None = None) -> list[CodeBlock]:
    """The blocks of Python of a page, in order; `release` replaces the one that a block names."""
    return [
        CodeBlock(page, text.count("\n", 0, one.start()) + 2, release or one[1] or NEWEST, one[2])
        for one in _BLOCK.finditer(text)
    ]


def run(blocks: Sequence[CodeBlock], release: releases.InstalledRelease) -> list[RanBlock]:
    """Run blocks in one process of a release's interpreter, each with names of its own.

    Raises:
        HarnessError: the process ended before the last of them.
    """
    command, environment = releases.host_command(release)
    done = subprocess.run(
        [*command, "-P", "-c", _PROGRAM],
        env=environment,
        input=json.dumps([(one.where, one.code) for one in blocks]),
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        last = (done.stderr.splitlines() or ["it said nothing"])[-1]
        raise HarnessError(f"Python of {blocks[0].page} ended the interpreter: {last}")
    ran = json.loads(done.stdout.splitlines()[-1])
    return [RanBlock(block, *told) for block, told in zip(blocks, ran, strict=True)]


def replay_page(output: CommandOutput, page: Path, target: str | None) -> int:
    """Run the Python of a page and print it with what it says. Returns the exit code: 0 where every
    block comes to its end, which is what the page says.

    Raises:
        InputError: the page cannot be read or has no Python, or the target is no release.
    """
    wanted = None if target is None else named(target)
    if wanted is not None and wanted.kind is not TargetKind.RELEASE:
        raise InputError(f"{page}: runs on a release, not on {target}; expected vllm@VERSION")
    name = called(page)
    blocks = blocks_of(name, _text_of(page), None if wanted is None else wanted.version)
    if not blocks:
        raise InputError(
            f"{page}: no block of Python; expected a page such as faults/discarded-token/page.md"
        )
    ran = list(_run_all(blocks, output))
    print_parts(output, *(text_part(_title(one), _told(one)) for one in ran))
    facts = {
        "page": name,
        "blocks": [
            {
                "line": one.block.line,
                "release": one.block.release,
                "printed": one.said,
                "raised": one.error or None,
            }
            for one in ran
        ],
    }
    code = UNLISTED if any(one.error for one in ran) else HOLDS
    return output.tell(Conclusion(code, _verdict(name, ran), facts))


def _text_of(page: Path) -> str:
    try:
        return files.read(page, MAX_BYTES).decode()
    except OSError as error:
        raise InputError(f"{page}: cannot be read: {error.strerror}; give a page") from None
    except UnicodeDecodeError:
        raise InputError(f"{page}: no UTF-8; expected a page in Markdown") from None


def _run_all(blocks: Sequence[CodeBlock], output: CommandOutput) -> Iterator[RanBlock]:
    """Run all blocks, those of one release together: a process of a release takes long to start."""
    for version in dict.fromkeys(one.release for one in blocks):
        release = releases.install(version, report=output.say)
        yield from run([one for one in blocks if one.release == version], release)


def _title(ran: RanBlock) -> str:
    outcome = f"raises {ran.error}" if ran.error else "runs to its end"
    return f"{ran.block.where}, on vllm@{ran.block.release}: {outcome}"


def _told(ran: RanBlock) -> str:
    said = "".join(f"prints: {line}\n" for line in ran.said.splitlines())
    return f"{ran.block.code}{said}".rstrip()


def _verdict(page: str, ran: Sequence[RanBlock]) -> VerdictLine:
    on = names([f"vllm@{one.block.release}" for one in ran])
    wrong = [one for one in ran if one.error]
    if not wrong:
        return VerdictLine(
            f"The Python of {page} does what the page says on {on}: "
            f"{counted(len(ran), 'block')} of it came to the end."
        )
    return VerdictLine(
        f"The Python of {page} does not do what the page says on {on}: {len(wrong)} of "
        f"{counted(len(ran), 'block')} raised, first at line {wrong[0].block.line}: "
        f"{wrong[0].error}."
    )
