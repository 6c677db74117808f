"""How the code is cut: its longest pieces, and how much of it is copied.

    .venv/bin/python benchmarks/structure.py

Tests do not count, except among copies: runs of lines that stand in two files, as pylint's symilar
finds them. Rooms and what they import are in tests/test_import_direction.py.
"""

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
FOLDERS = ("spec", "reference", "gpu_runner", "differential", "proofs", "cacheproof")
COPY_LINES_MIN = 7
IGNORED = ("comments", "docstrings", "imports", "signatures")
"""Of copies; who calls a method of vLLM's calls it so, and so its signature stands in many."""


def modules(root: Path) -> Iterator[tuple[Path, ast.Module]]:
    """The product's modules; the links in cacheproof/ lead to the same ones again."""
    for folder in FOLDERS:
        for path in sorted((root / folder).rglob("*.py")):
            if path.resolve() == path:
                yield path, ast.parse(path.read_text())


def longest(root: Path, *kinds: type[ast.AST]) -> tuple[int, str, str]:
    """Lines, name and module of the longest definition of these kinds."""
    return max(
        (node.end_lineno - node.lineno + 1, node.name, path.relative_to(root).as_posix())
        for path, tree in modules(root)
        for node in ast.walk(tree)
        if isinstance(node, kinds)
    )


def longest_file(root: Path) -> tuple[int, str]:
    """Lines and name of the longest module."""
    return max(
        (len(path.read_text().splitlines()), path.relative_to(root).as_posix())
        for path, _ in modules(root)
    )


def copied(root: Path) -> tuple[int, str]:
    """How many lines are copied, tests and benchmarks among them; and a report of where."""
    folders = [root / folder for folder in (*FOLDERS, "benchmarks", "tests")]
    files = sorted(path for folder in folders for path in folder.rglob("*.py"))
    own = [str(path) for path in files if path.resolve() == path]
    command = [
        str(Path(sys.executable).with_name("symilar")),
        f"--duplicates={COPY_LINES_MIN - 1}",  # copies are longer than that
        *(f"--ignore-{what}" for what in IGNORED),
    ]
    ran = subprocess.run([*command, *own], check=True, stdout=subprocess.PIPE, text=True)
    total = re.search(r"^TOTAL lines=\d+ duplicates=(\d+) ", ran.stdout, re.MULTILINE)
    assert total is not None, ran.stdout
    return int(total[1]), ran.stdout


def main() -> None:
    print("longest file:", *longest_file(ROOT))
    print("longest function:", *longest(ROOT, ast.FunctionDef, ast.AsyncFunctionDef))
    print("longest class:", *longest(ROOT, ast.ClassDef))
    number, report = copied(ROOT)
    print(f"copied lines: {number}")
    if number:
        print(report)


if __name__ == "__main__":
    main()
