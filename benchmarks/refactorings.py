"""What prove says of a release's manager after changes that leave what it does as it is.

    .venv/bin/python benchmarks/refactorings.py

prints a row for each change in benchmarks/refactorings.toml: whether all that was proved of the
release is proved of the changed text, with all witnesses, or why not, and in how many seconds of
processor time where what is known of the release is kept. With `--paired` each is proved without
that as well. Exits with 1 where less than PROVED_MIN are proved, or what is kept makes another row.
"""

import argparse
import ast
import os
import platform
import re
import tempfile
import time
import tomllib
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import msgspec

from cacheproof.differential.provision import releases
from cacheproof.differential.texts.edits import Edit, edited
from cacheproof.proofs.symbolic.evidence import prove_texts
from cacheproof.proofs.symbolic.reading.source import source_in
from cacheproof.proofs.symbolic.texts import ClassText
from cacheproof.proving.kept import KeptProofs
from cacheproof.proving.targets import MANAGERS
from cacheproof.reference.releases import NEWEST
from cacheproof.spec.evidence import Evidence, Outcome

CLASS = "EncoderCacheManager"
TABLE = Path(__file__).with_suffix(".toml")
PROVED_MIN = 0.9


class OneEdit(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """An edit of a method of the class, as `differential.texts.edits` has it."""

    function: str
    expression: str
    instead: str | None = None
    before: str | None = None
    after: str | None = None

    @property
    def whole(self) -> Edit:
        function = f"{CLASS}.{self.function}"
        return Edit(MANAGERS, function, self.expression, self.instead, self.before, self.after)


class Refactoring(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A change that changes nothing. `renamed` are (method, old, new), where "" is the whole class;
    `added` methods that it has besides, `added_parameters` (method, what is put behind its
    others)."""

    kind: str
    name: str
    edits: tuple[OneEdit, ...] = ()
    renamed: tuple[tuple[str, str, str], ...] = ()
    added: str = ""
    added_parameters: tuple[tuple[str, str], ...] = ()

    def __str__(self) -> str:
        return f"{self.kind}: {self.name}"

    def of(self, module: str) -> str:
        """The text of a module after it.

        Raises:
            ValueError: an edit is of something that is not there.
        """
        for one in self.edits:
            module = edited(module, one.whole)
        for method, old, new in self.renamed:
            module = _in_lines(module, method, rf"\b{old}\b", new)
        for method, parameter in self.added_parameters:
            module = _in_lines(
                module, method, r"(?<=,)\n    \) ->", f"\n        {parameter},\n    ) ->"
            )
        if not self.added:
            return module
        end = _class(module).end_lineno
        assert end is not None
        lines = module.splitlines(keepends=True)
        added = [f"    {line}\n" if line else "\n" for line in self.added.strip("\n").splitlines()]
        return "".join([*lines[:end], "\n", *added, *lines[end:]])


def _class(module: str) -> ast.ClassDef:
    tree = ast.parse(module)
    return next(one for one in tree.body if isinstance(one, ast.ClassDef) and one.name == CLASS)


def _in_lines(module: str, method: str, pattern: str, new: str) -> str:
    """A module with what a pattern finds in a method replaced; in the class, if none is named."""
    found = _class(module)
    functions = [one for one in found.body if isinstance(one, ast.FunctionDef)]
    node = next((one for one in functions if one.name == method), found)
    lines = module.splitlines(keepends=True)
    own = "".join(lines[node.lineno - 1 : node.end_lineno])
    changed = re.sub(pattern, new, own)
    if changed == own:
        raise ValueError(f"{method or CLASS}: nothing to change")
    return "".join([*lines[: node.lineno - 1], changed, *lines[node.end_lineno :]])


def refactorings() -> list[Refactoring]:
    """Those of the table."""
    rows = tomllib.loads(TABLE.read_text())["refactoring"]
    return [msgspec.convert(row, Refactoring) for row in rows]


@dataclass(frozen=True)
class Proving:
    """What is proved of a text: its rows, and the processor time that they took, in seconds."""

    rows: list[Evidence]
    seconds: float

    def is_alike(self, other: "Proving") -> bool:
        """Whether two say the same, whatever time and work they took."""
        mine, its = (
            [replace(row, seconds=0, work_max=0) for row in one.rows] for one in (self, other)
        )
        return mine == its


def proved(name: str, module: str, version: str, folder: Path | None = None) -> Proving:
    """What is proved of the manager in a module, with what is kept in a folder."""
    begun = spent()
    source = source_in(module, CLASS, Path(MANAGERS).name)
    answers = None if folder is None else KeptProofs(folder, print).answers()
    rows = prove_texts([ClassText(CLASS, (name,), source, version)], store=answers)
    return Proving(rows, spent() - begun)


def spent() -> float:
    """Seconds of processor time that this process has taken, and those that it has started."""
    return sum(os.times()[:4])


def proved_in_both_ways(
    one: Refactoring, module: str, version: str, folder: Path, *, is_paired: bool
) -> tuple[Proving, Proving | None]:
    """With what is kept of the release; and, if they are to be `paired`, afresh."""
    changed = one.of(module)
    kept = proved(str(one), changed, version, folder)
    return kept, proved(str(one), changed, version) if is_paired else None


def failing(rows: Sequence[Evidence]) -> list[Evidence]:
    """The rows that do not hold beside a change that breaks them."""
    return [one for one in rows if one.outcome is not Outcome.HOLDS or not one.counts]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--target", default=NEWEST, help="the release")
    parser.add_argument("--jobs", type=int, help="processes; as many as processors by default")
    parser.add_argument("--only", default="", help="those whose name has this text")
    parser.add_argument("--paired", action="store_true", help="prove each afresh as well")
    options = parser.parse_args()
    several = [one for one in refactorings() if options.only in str(one)]
    module = (releases.install(options.target, report=print).tree / MANAGERS).read_text()
    begun = time.monotonic()
    whole, unlike = 0, 0
    with tempfile.TemporaryDirectory() as name, ProcessPoolExecutor(options.jobs) as pool:
        first = proved(options.target, module, options.target, Path(name))
        print(f"vllm@{options.target} itself, with nothing kept: {first.seconds:.0f} s\n")
        print("| change | proved | seconds | afresh | what is said else |\n|---|--:|--:|--:|---|")
        prove = partial(
            proved_in_both_ways,
            module=module,
            version=options.target,
            folder=Path(name),
            is_paired=options.paired,
        )
        for one, (kept, afresh) in zip(several, pool.map(prove, several), strict=True):
            left = failing(kept.rows)
            whole += not left
            said = f"{left[0].contract} {left[0].outcome}: {left[0].note}" if left else ""
            if afresh is not None and not kept.is_alike(afresh):
                unlike += 1
                said = f"afresh it is said otherwise; {said}"
            cells = (
                str(one),
                f"{len(kept.rows) - len(left)} of {len(kept.rows)}",
                f"{kept.seconds:.0f}",
                "" if afresh is None else f"{afresh.seconds:.0f}",
                said,
            )
            print(f"| {' | '.join(cells)} |", flush=True)
    seconds, python = time.monotonic() - begun, platform.python_version()
    print(f"\n{whole} of {len(several)} are proved whole, in {seconds:.0f} s (Python {python})")
    if whole < PROVED_MIN * len(several) or unlike:
        raise SystemExit(1)


if __name__ == "__main__":
    main()
