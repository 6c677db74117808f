"""Processor seconds of a command and of all that it starts, beside another build's.

    .venv/bin/python benchmarks/command_cpu.py [--beside CHECKOUT] [--rounds 3] [--until found:]
        -- check

What stands behind -- is run as `cacheproof` of this checkout and of the other one in turn, each in
a folder of findings of its own. With --until it is ended with its first line on standard error that
begins so. A process is counted by what it had used when it was last seen, which is ten times a
second: so the last tenth of each is missing.
"""

import argparse
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

from search_parts import used
from worker_memory import below

LOOK_SECONDS = 0.1
ROOT = Path(__file__).resolve().parents[1]


class Measured:
    """A command that runs, and what each of its processes has used."""

    def __init__(self, command: list[str], until: str | None) -> None:
        began = time.monotonic()
        self._seconds: dict[int, float] = {}
        self._process = subprocess.Popen(
            command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
        )
        self._ended = threading.Event()
        looking = threading.Thread(target=self._look)
        looking.start()
        assert self._process.stderr is not None
        for line in self._process.stderr:
            if until is not None and line.startswith(until):
                break
        self.wall = time.monotonic() - began
        self._ended.set()
        looking.join()
        self._process.send_signal(signal.SIGTERM)
        self._process.stderr.read()
        self.code = self._process.wait()
        self.processor = sum(self._seconds.values())

    def _look(self) -> None:
        while True:
            for process in below(self._process.pid):
                self._seconds[process] = used(process) or self._seconds.get(process, 0.0)
            if self._ended.wait(LOOK_SECONDS):
                return


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--beside", type=Path)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--until")
    parser.add_argument("words", nargs="+")
    options = parser.parse_args()
    trees = [ROOT] if options.beside is None else [options.beside.resolve(), ROOT]
    seconds: dict[Path, list[float]] = {tree: [] for tree in trees}
    for number in range(options.rounds):
        for tree in trees:
            with tempfile.TemporaryDirectory() as folder:
                command = [str(tree / ".venv" / "bin" / "cacheproof"), *options.words]
                ran = Measured([*command, "--findings", folder], options.until)
            seconds[tree].append(ran.processor)
            print(
                f"round {number + 1}, {tree}: {ran.processor:.1f} s of processor time, "
                f"{ran.wall:.1f} s, exit code {ran.code}",
                file=sys.stderr,
                flush=True,
            )
    print("| build | processor seconds | paired with the first |\n|---|---|---|")
    for tree, own in seconds.items():
        ratios = [one / other for one, other in zip(own, seconds[trees[0]], strict=True)]
        print(f"| {tree.name} | {spread(own, 1)} | {spread(ratios, 2)} |")


def spread(values: list[float], digits: int) -> str:
    """Median (least to most)."""
    least, most = min(values), max(values)
    return f"{statistics.median(values):.{digits}f} ({least:.{digits}f} to {most:.{digits}f})"


if __name__ == "__main__":
    main()
