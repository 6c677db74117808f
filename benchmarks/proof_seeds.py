"""Whether a seed of the solver matters: every text, the keys and the lemmas, proved under several.

A proof that hangs on a seed is luck. docs/evidence/proof-seeds.md has a row for each class and its
texts; rows of evidence are compared in contract, target, outcome, scope and text.
"""

import argparse
import json
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
PAGE = ROOT / "docs" / "evidence" / "proof-seeds.md"
COMMAND = ".venv/bin/python benchmarks/proof_seeds.py"
SEEDS = range(5)
OF_TEXTS = ("EncoderCacheManager", "EncoderDecoderCacheManager", "BlockPool", "EntryTable")
SAME = ("contract", "target", "subject", "method", "scope", "outcome", "digest")
Row = dict[str, Any]


def evidence(seed: int, targets: Sequence[str]) -> list[Row]:
    """What prove says under a seed.

    Raises:
        SystemExit: it does not end with 0.
    """
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "evidence.json"
        command = [sys.executable, "-m", "cacheproof", "prove", "--seed", str(seed)]
        chosen = [word for target in targets for word in ("--target", target)]
        done = subprocess.run([*command, *chosen, "--json", str(path)], stdout=subprocess.PIPE)
        if done.returncode != 0:
            sys.stdout.buffer.write(done.stdout)
            raise SystemExit(f"seed {seed}: exit code {done.returncode}")
        found: list[Row] = json.loads(path.read_text())["evidence"]
    return found


def differing(by_seed: Mapping[int, Sequence[Row]]) -> Iterator[str]:
    """Rows that not every seed has, in a line each."""
    having: dict[tuple[str, ...], list[int]] = {}
    for seed, rows in by_seed.items():
        for row in {tuple(row[name] for name in SAME) for row in rows}:
            having.setdefault(row, []).append(seed)
    for row, seeds in sorted(having.items()):
        if len(seeds) < len(by_seed):
            yield f"{' | '.join(row)}: under {', '.join(map(str, seeds))} alone"


def page(by_seed: Mapping[int, Sequence[Row]]) -> str:
    """docs/evidence/proof-seeds.md."""
    seeds = list(by_seed)
    lines = [
        "# The solver's seed",
        "",
        f"    {COMMAND}",
        "",
        "makes this page: all that `cacheproof prove` proves of the reference and of every",
        f"installed release, under {len(seeds)} seeds. A cell says how many rows hold and how many",
        "are refuted, and what the hardest condition took of the solver's limit, where that is",
        "measured. CrossHair has no seed of ours: its rows are the same run.",
        "",
        f"| of | {' | '.join(f'seed {seed}' for seed in seeds)} |",
        "|---" * (len(seeds) + 1) + "|",
    ]
    of_seed = {
        seed: {name: [row for row in rows if _group(row) == name] for name in _groups(rows)}
        for seed, rows in by_seed.items()
    }
    names = dict.fromkeys(name for groups in of_seed.values() for name in groups)
    for name in names:
        cells = (_cell(of_seed[seed].get(name, [])) for seed in seeds)
        lines.append(f"| {name} | {' | '.join(cells)} |")
    differences = list(differing(by_seed))
    lines += ["", f"Rows that a seed makes differ in {', '.join(SAME)}: {len(differences)}.", ""]
    return "\n".join([*lines, *(f"* {one}" for one in differences)]).rstrip() + "\n"


def _groups(rows: Sequence[Row]) -> list[str]:
    return list(dict.fromkeys(map(_group, rows)))


def _group(row: Row) -> str:
    """A class of the reference or of releases, the keys of either, or the lemmas."""
    of = "the reference" if row["target"] == "reference" else "releases"
    if row["contract"].startswith("lemma"):
        return "lemmas"
    if row["method"] == "crosshair":
        return f"{row['subject']} of {of}, CrossHair"
    if row["subject"] in OF_TEXTS:
        return f"{row['subject']} of {of}"
    return f"keys of {of}"


def _cell(rows: Sequence[Row]) -> str:
    outcomes = Counter(row["outcome"] for row in rows)
    works = [row["work_max"] for row in rows if row["work_max"] is not None]
    words = [f"{count} {outcome}" for outcome, count in sorted(outcomes.items())]
    if works:
        words.append(f"{max(works):.1%}")
    return ", ".join(words) or "none"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--target", action="append", default=[], help="as of prove; no page then")
    options = parser.parse_args()
    by_seed = {}
    for seed in SEEDS:
        by_seed[seed] = evidence(seed, options.target)
        print(f"seed {seed}: {len(by_seed[seed])} rows", flush=True)
    text = page(by_seed)
    if options.target:
        print(text)
    else:
        PAGE.write_text(text)
    if differences := list(differing(by_seed)):
        raise SystemExit("\n".join(differences))


if __name__ == "__main__":
    main()
