"""What the recorder costs a real engine: two engines with one workload, one of them recorded, take
turns; each turn is timed, by the clock and in processor time of all threads.

    .venv/bin/python benchmarks/recorder.py [--rounds 30] [--release 0.32.0] [--kv] [--blocks 256]

With --kv the calls of the KV cache manager are recorded as well, with --blocks its pool is another.
Prints the median of the paired ratios of time for a step, and how far they spread.
"""

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from cacheproof.differential.targets import releases
from cacheproof.differential.targets.cache import Cache
from cacheproof.differential.targets.releases import host_command

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
        blocks: int | None = None,
    ) -> None:
        found = releases.find(release, kind=releases.ENGINE)
        if found is None:
            raise SystemExit(f"engine@{release} is not there; run a test of it, or a replay on it")
        command, environment = host_command(found)
        environment["CACHEPROOF_MODELS"] = str(Cache.locate().models)
        environment["OMP_NUM_THREADS"] = "1"  # those that wait would count as work
        environment.pop("CACHEPROOF_RECORD", None)
        if record is not None:
            environment["CACHEPROOF_RECORD"] = str(record)
            environment["CACHEPROOF_RECORD_KV"] = str(int(with_kv))
        self._process = subprocess.Popen(
            [*command, str(ENGINE), str(PACKAGE), kind, *([] if blocks is None else [str(blocks)])],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            env=environment,
        )
        self._line()  # it is there

    def turn(self, seed: int) -> dict[str, float]:
        """Seconds by the clock and by the processor for a step of a turn."""
        assert self._process.stdin is not None
        self._process.stdin.write(f"{seed}\n")
        self._process.stdin.flush()
        told = json.loads(self._line())
        return {"clock": told["seconds"] / told["steps"], "processor": told["cpu"] / told["steps"]}

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
    parser.add_argument("--blocks", type=int)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        plain = Engine(arguments.release, None, blocks=arguments.blocks)
        recorded = Engine(
            arguments.release, Path(folder), with_kv=arguments.kv, blocks=arguments.blocks
        )
        each: dict[str, list[dict[str, float]]] = {"off": [], "on": []}
        for number in range(-2, arguments.rounds):
            pair = [("off", plain), ("on", recorded)]
            times = {name: engine.turn(number) for name, engine in pair[:: 1 if number % 2 else -1]}
            if number < 0:
                continue  # caches are cold
            for name, time in times.items():
                each[name].append(time)
        plain.close()
        recorded.close()
        size = sum(path.stat().st_size for path in Path(folder).iterdir())
    for by in ("clock", "processor"):
        off, on = ([one[by] for one in each[name]] for name in ("off", "on"))
        ratios = [one / other for one, other in zip(on, off, strict=True)]
        low, middle, high = statistics.quantiles(ratios, n=4)
        without, recorded_in = (1e6 * statistics.median(times) for times in (off, on))
        print(f"{by}: a step in {without:.0f} us without, {recorded_in:.0f} us with the recorder")
        print(f"  paired: {middle:.3f} times (quartiles {low:.3f} to {high:.3f}, {len(on)} pairs)")
    print(f"the record: {size / 1024:.0f} KiB", file=sys.stderr)


if __name__ == "__main__":
    main()
