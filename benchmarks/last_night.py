"""An engine that dies of a listed fault, recorded, audited, and its record minimised.

    .venv/bin/python benchmarks/last_night.py [--folder DIR] [--release 0.32.0]

A tiny LLaVA with little memory answers twelve prompts with pictures again and again, some of them
urgent, until its worker raises `Encoder cache miss`. What `cacheproof audit` and `cacheproof
minimise` then say is printed.
"""

import argparse
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from recorder import Engine

CACHEPROOF = Path(sys.executable).with_name("cacheproof")
TURNS_MAX = 40


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--folder", type=Path)
    parser.add_argument("--release", default="0.32.0")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        folder = arguments.folder or Path(scratch) / "records"
        folder.mkdir(parents=True, exist_ok=True)
        begin = time.perf_counter()
        requests = dies(arguments.release, folder)
        print(f"ended after {requests} requests, {time.perf_counter() - begin:.0f} s", flush=True)
        subprocess.run([CACHEPROOF, "audit", folder], check=False)
        begin = time.perf_counter()
        findings = ["--findings", Path(scratch) / "findings"]
        subprocess.run(
            [CACHEPROOF, "minimise", folder, "--contract", "SC-9", *findings], check=False
        )
        print(f"minimised in {time.perf_counter() - begin:.0f} s")


def dies(release: str, folder: Path) -> int:
    """Have an engine work until it dies; how many requests that took at most."""
    engine = Engine(release, folder, kind="scarce")
    for seed in range(TURNS_MAX):
        try:
            engine.turn(seed)
        except SystemExit:  # it ended without a word
            return 48 * (seed + 1)
    raise SystemExit(f"the engine is still there after {TURNS_MAX} turns")


if __name__ == "__main__":
    main()
