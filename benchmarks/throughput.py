"""Operations per second: checked, in lockstep, and what the real manager alone does.

An operation is one call of a manager, or an event of a front end. Rounds of all measurements
alternate, so that a busy moment of the machine meets them alike, and the median of the rounds
counts.
"""

import argparse
import os
import platform
import statistics
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import msgspec
from all_cores import LockstepOnAllCores
from beside import ratios, spread

from cacheproof.differential.generators.manager import TraceShape, manager_trace
from cacheproof.differential.judges.examination import examine
from cacheproof.differential.lanes.all_lanes import LANES
from cacheproof.differential.lanes.lane import Lane
from cacheproof.differential.provision import releases
from cacheproof.differential.targets.host.session import calm_collector
from cacheproof.differential.targets.reference import ReferenceTarget
from cacheproof.differential.targets.resolve import resolve
from cacheproof.differential.traces.records import TraceResult
from cacheproof.reference.releases import SEARCHED

ROUNDS = 5
RELEASES = ("0.18.1", *reversed(SEARCHED))
CHECKED_TRACES = 40
LOCKSTEP_SEEDS = range(400)
RESIDENTS_MIN = 7.0
RESIDENT = TraceShape("resident", (20, 34), (16, 24), 4, (4, 8), (120, 240))
LANE = LANES["encoder cache"]
COMPARED = [LANES[name] for name in (LANE.name, "front end") if name in LANES]
"""Another build may not have the second."""
BARE_HOST = Path(__file__).parent / "bare_host.py"


class Checked:
    """The reference runs a trace and every contract is judged at every call, on one core."""

    name = "reference, every contract checked"

    def __init__(self) -> None:
        self._traces = [manager_trace(seed, shape=RESIDENT) for seed in range(CHECKED_TRACES)]
        self._reference = ReferenceTarget()
        self.residents = 0.0

    def round(self) -> float:
        """Operations per CPU second."""
        calls = resident_sum = 0
        started = time.process_time()
        for trace in self._traces:
            result = TraceResult(self._reference.records(trace))
            seen = examine(trace, result, self._reference)
            assert not seen.violations, seen.violations
            calls += seen.calls
            resident_sum += seen.resident_sum
        seconds = time.process_time() - started
        self.residents = resident_sum / calls
        return calls / seconds


class Lockstep:
    """A release and the reference beside it, on all cores: generated, run, judged and compared."""

    def __init__(self, version: str, lane: Lane) -> None:
        self.name = f"lockstep with vllm@{version}, {lane.name}"
        target = resolve(f"vllm@{version}", report=print)
        self._lockstep = LockstepOnAllCores(target, [lane], LOCKSTEP_SEEDS)
        self.calls = 0

    def round(self) -> float:
        """Operations per second of wall time."""
        outcome = self._lockstep.round()
        self.calls = outcome.calls
        return outcome.calls / outcome.seconds

    def close(self) -> None:
        self._lockstep.close()


class Bare:
    """The release's own objects and the driver, on the traces of the lockstep, on one core."""

    def __init__(self, version: str, lane: Lane, lockstep: Lockstep) -> None:
        self.name = f"vllm@{version} alone, {lane.name}"
        self._lockstep = lockstep
        command, environment = releases.host_command(releases.install(version, report=print))
        self._process = subprocess.Popen(
            [*command, str(BARE_HOST)],
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )
        self._send(msgspec.json.encode([lane.make(seed) for seed in LOCKSTEP_SEEDS]))

    def round(self) -> float:
        """Operations per CPU second; the lockstep's round has counted them."""
        assert self._process.stdout is not None
        self._send(b"again")
        return self._lockstep.calls / float(self._process.stdout.readline())

    def close(self) -> None:
        self._process.kill()
        self._process.communicate()

    def _send(self, line: bytes) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(line + b"\n")
        self._process.stdin.flush()


def generated() -> float:
    """Events per CPU second that the generator makes."""
    started = time.process_time()
    events = sum(len(LANE.make(seed).events) for seed in LOCKSTEP_SEEDS)
    return events / (time.process_time() - started)


def on_one_core(measure: Callable[[], float]) -> float:
    """The measurement with this process bound to one core."""
    cores = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(cores)})
    try:
        return measure()
    finally:
        os.sched_setaffinity(0, cores)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--release", action="append", help=f"default: {', '.join(RELEASES)}")
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    options = parser.parse_args()
    calm_collector()
    checked = Checked()
    pairs = []
    for version in options.release or RELEASES:
        for lane in COMPARED:
            lockstep = Lockstep(version, lane)
            pairs.append((lockstep, Bare(version, lane, lockstep)))
    seen: dict[str, list[float]] = {}
    for _ in range(options.rounds):
        seen.setdefault(checked.name, []).append(on_one_core(checked.round))
        seen.setdefault("generator", []).append(on_one_core(generated))
        for lockstep, bare in pairs:
            seen.setdefault(lockstep.name, []).append(lockstep.round())
            seen.setdefault(bare.name, []).append(bare.round())
    for lockstep, bare in pairs:
        lockstep.close()
        bare.close()
    print(f"{len(os.sched_getaffinity(0))} cores, Python {platform.python_version()}, "
          f"median (least to most) of {options.rounds} rounds\n")  # fmt: skip
    alone = {lockstep.name: seen[bare.name] for lockstep, bare in pairs}
    print("| what | a second | of the release alone |\n|---|---|---|")
    for name, rates in seen.items():
        unit = "events" if name == "generator" else "operations"
        shares = spread(ratios(rates, alone[name])) if name in alone else ""
        print(f"| {name} | {spread(rates, digits=0)} {unit} | {shares} |")
    print(f"\nResident entries while the reference was checked: {checked.residents:.1f} on average")
    print(f"Events generated a minute: {60 * statistics.median(seen['generator']):,.0f}")
    if checked.residents < RESIDENTS_MIN:
        raise SystemExit(f"VOID: fewer than {RESIDENTS_MIN:.0f} resident entries on average")


if __name__ == "__main__":
    main()
