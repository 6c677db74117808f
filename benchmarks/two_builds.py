"""One benchmark in two checkouts by turns, and what each number of its table is in both.

    .venv/bin/python benchmarks/two_builds.py --beside CHECKOUT [--rounds 9]
        -- benchmarks/scheduler_lockstep.py --rounds 1

Each runs its own copy of the script where it has one, else this checkout's. Of a number with a
range the number counts. A row is known by its words, and a number by its column; what is the same
in each round is left out.
"""

import argparse
import re
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path

from beside import ratios, spread

ROOT = Path(__file__).resolve().parent.parent
NUMBER = re.compile(r"[\d,]*\.?\d+")
Place = tuple[str, str]
"""The words of a row, and the column."""


def cells(line: str) -> list[str]:
    return [cell.strip() for cell in line.strip().strip("|").split("|")]


def numbers(lines: Iterable[str]) -> Iterator[tuple[Place, float]]:
    """The numbers of the tables that were printed."""
    header: list[str] = []
    for line in lines:
        if not line.startswith("|"):
            header = []
        elif not header:
            header = cells(line)
        elif not set(line) <= set("|-: "):
            row = cells(line)
            found = [NUMBER.match(cell) for cell in row]
            words = ", ".join(cell for cell, one in zip(row, found, strict=True) if one is None)
            for column, one in zip(header, found, strict=True):
                if one is not None:
                    yield (words, column), float(one[0].replace(",", ""))


def run(tree: Path, script: str, arguments: list[str]) -> dict[Place, float]:
    """The numbers that the script prints in a checkout."""
    own = tree / script
    file = own if own.exists() else ROOT / script
    command = [str(tree / ".venv" / "bin" / "python"), str(file), *arguments]
    done = subprocess.run(command, cwd=tree, stdout=subprocess.PIPE, text=True, check=True)
    return dict(numbers(done.stdout.splitlines()))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--beside", type=Path, required=True, metavar="CHECKOUT")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("script")
    parser.add_argument("arguments", nargs="*")
    options = parser.parse_args()
    trees = options.beside.resolve(), ROOT
    found: dict[Place, tuple[list[float], list[float]]] = defaultdict(lambda: ([], []))
    for number in range(options.rounds):
        both = [run(tree, options.script, options.arguments) for tree in trees]
        for place in both[0].keys() & both[1].keys():
            if all(one[place] for one in both):
                for mine, one in zip(found[place], both, strict=True):
                    mine.append(one[place])
        print(f"round {number + 1} of {options.rounds}", file=sys.stderr, flush=True)
    print(f"| what | {trees[0].name} | {trees[1].name} | paired |\n|---|--:|--:|---|")
    for (words, column), (before, now) in sorted(found.items()):
        if before == now:
            continue
        digits = 0 if min(before + now) >= 100 else 2
        told = " | ".join(spread(some, digits=digits) for some in (before, now))
        print(f"| {words}: {column} | {told} | {spread(ratios(now, before))} |")


if __name__ == "__main__":
    main()
