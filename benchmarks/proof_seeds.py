"""Whether a seed of the solver matters: every text, the keys and the lemmas, proved under several.

    .venv/bin/python benchmarks/proof_seeds.py

A proof that hangs on a seed is luck. Rows of evidence are compared in contract, target, outcome,
scope and text; those that a seed makes differ are printed, and there are none, or it exits with 1.
"""

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

SEEDS = range(5)
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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--target", action="append", default=[], help="as of prove")
    options = parser.parse_args()
    by_seed = {}
    for seed in SEEDS:
        by_seed[seed] = evidence(seed, options.target)
        print(f"seed {seed}: {len(by_seed[seed])} rows", flush=True)
    if differences := list(differing(by_seed)):
        raise SystemExit("\n".join(differences))
    print(f"the same rows under {len(by_seed)} seeds")


if __name__ == "__main__":
    main()
