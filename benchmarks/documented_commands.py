"""Runs the commands of README.md and of pages, and writes what they print beneath them.

In a block of the kind `console` a line that begins with `$ ` is a command, and the lines below it
are all that it prints on standard output. The commands of a page run one after the other in one
empty folder. Blocks of other kinds are not run: what they hold takes minutes, or a network.
"""

import argparse
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PAGES = (
    ROOT / "README.md",
    ROOT / "docs" / "tutorial.md",
    ROOT / "docs" / "how-to" / "simulate.md",
)
_BLOCK = re.compile(r"^```console\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_VARIES = (
    (re.compile(r"\bin \d+ s\b"), "in some s"),
    (re.compile(r"\bafter \d+\.\d s\b"), "after some s"),
)
"""Times, which are other ones on every run."""


def commands(text: str) -> Iterator[tuple[str, str]]:
    """Each command of a page with what the page says that it prints."""
    for block in _BLOCK.finditer(text):
        for part in re.split(r"^\$ ", block[1], flags=re.MULTILINE)[1:]:
            command, _, output = part.partition("\n")
            yield command, output


def rewritten(text: str, run: Callable[[str], str]) -> str:
    """A page with what its commands print now."""

    def block_with(match: re.Match[str]) -> str:
        told = commands(match[0])
        return "```console\n" + "".join(f"$ {one}\n{run(one)}" for one, _ in told) + "```"

    return _BLOCK.sub(block_with, text)


def runner(folder: Path) -> Callable[[str], str]:
    """What runs a command in a folder, as a user would who has the environment on PATH."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    environment = {**os.environ, "PATH": path, "COLUMNS": "80"}

    def run(command: str) -> str:
        ended = subprocess.run(
            ["bash", "-c", command],
            cwd=folder,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )
        if ended.returncode == 2 or "Traceback" in ended.stderr:
            raise RuntimeError(f"{command}: exit status {ended.returncode}: {ended.stderr}")
        return "".join(f"{line.rstrip()}\n" for line in ended.stdout.splitlines())

    return run


def settled(text: str) -> str:
    """A text without what is another on every run."""
    for varies, instead in _VARIES:
        text = varies.sub(instead, text)
    return text


def main() -> None:
    argparse.ArgumentParser(description=__doc__.splitlines()[0]).parse_args()
    for page in PAGES:
        with tempfile.TemporaryDirectory() as folder:
            page.write_text(rewritten(page.read_text(), runner(Path(folder))))


if __name__ == "__main__":
    main()
