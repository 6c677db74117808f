"""How much code and prose there is, how it is cut, and how much of it is copied.

    .venv/bin/python benchmarks/structure.py

Lines, words and uses of Any are counted in all files that git knows; the longest pieces, the names
of classes and comments in the product alone. Copies are runs of lines that stand in two files, as
pylint's symilar finds them. Rooms and what they import are in tests/test_import_direction.py.
"""

import ast
import re
import subprocess
import sys
import tokenize
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path

from pages import PAGES

ROOT = Path(__file__).resolve().parent.parent
FOLDERS = ("spec", "reference", "gpu_runner", "differential", "proofs", "cacheproof")
COPY_LINES_MIN = 7
GENERATED = {page.path for page in PAGES} - {"README.md"}
DIRECTIVE = re.compile(r"#!|# (noqa|type:|fmt:|pragma)")
"""Comments that a tool reads."""
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


def known_files(root: Path) -> list[Path]:
    """The files that git knows, without links."""
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=root, check=True, stdout=subprocess.PIPE)
    paths = (root / name for name in listed.stdout.decode().split("\0") if name)
    return [path for path in paths if path.is_file() and not path.is_symlink()]


def lines(root: Path) -> Counter[str]:
    """How many lines each folder of the top level has; files beside them count as `.`."""
    counted: Counter[str] = Counter()
    for path in known_files(root):
        folder, *rest = path.relative_to(root).parts
        counted[folder if rest else "."] += path.read_bytes().count(b"\n")
    return counted


def untyped(root: Path) -> int:
    """Lines of Python that say Any."""
    return sum(
        len(re.findall(r"^.*\bAny\b", path.read_text(), re.MULTILINE))
        for path in known_files(root)
        if path.suffix == ".py"
    )


def named_twice(root: Path) -> dict[str, list[str]]:
    """Public classes of which two have one name, with their modules. What the host touches of a
    class of vLLM's bears that name, as the reference's class does."""
    where = defaultdict(list)
    for path, tree in modules(root):
        if path.parent.name == "vllm_objects":
            continue
        for node in tree.body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                where[node.name].append(path.relative_to(root).as_posix())
    return {name: places for name, places in sorted(where.items()) if len(places) > 1}


def comments(root: Path) -> int:
    """Comments of the product, each of one line or more, without those that a tool reads."""
    number = 0
    for path, _ in modules(root):
        last = -1
        with path.open("rb") as file:
            for token in tokenize.tokenize(file.readline):
                if token.type == tokenize.COMMENT and not DIRECTIVE.match(token.string):
                    number += token.start[0] != last + 1
                    last = token.start[0]
    return number


def words(root: Path) -> tuple[int, int]:
    """Words of pages written by hand, and of generated ones."""
    pages = {
        path.relative_to(root).as_posix(): len(path.read_text().split())
        for path in known_files(root)
        if path.suffix == ".md" and path.relative_to(root).parts[0] in ("docs", "README.md")
    }
    generated = sum(number for name, number in pages.items() if name in GENERATED)
    return sum(pages.values()) - generated, generated


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
    counted = lines(ROOT)
    print(f"lines: {counted.total():,}")
    print("\n".join(f"    {folder}: {number:,}" for folder, number in counted.most_common()))
    print("words of pages by hand and generated: {:,}, {:,}".format(*words(ROOT)))
    print(f"comments: {comments(ROOT):,}")
    print(f"lines that say Any: {untyped(ROOT):,}")
    twice = named_twice(ROOT)
    print(f"names of two classes: {len(twice)}")
    print("".join(f"    {name}: {', '.join(places)}\n" for name, places in twice.items()), end="")
    print("longest file:", *longest_file(ROOT))
    print("longest function:", *longest(ROOT, ast.FunctionDef, ast.AsyncFunctionDef))
    print("longest class:", *longest(ROOT, ast.ClassDef))
    number, report = copied(ROOT)
    print(f"copied lines: {number}")
    if number:
        print(report)


if __name__ == "__main__":
    main()
