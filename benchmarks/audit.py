"""How long an audit takes, on one core: of a record of a real engine's scheduler, made for it.

    .venv/bin/python benchmarks/audit.py [--turns 12] [--release 0.32.0] [--beside CHECKOUT]

Three kinds of traffic are recorded: short answers, long ones, and dense traffic of sixteen clients
that send pictures; each audit is timed five times. With --beside another checkout audits the same
records in turn, for times that a machine which others share can be asked for.
"""

import argparse
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from recorder import Engine

from cacheproof.differential.audit.audit import Audit
from cacheproof.differential.targets.host.session import calm_collector

ANSWERS = {
    "short answers, 8 to 120 tokens": "",
    "long answers, 200 to 400 tokens": "long",
    "dense, answers of 4 to 60 tokens": "dense",
}
ROUNDS = 5
HERE = Path(__file__).parents[1]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--turns", type=int, default=12)
    parser.add_argument("--release", default="0.32.0")
    parser.add_argument("--beside", type=Path, metavar="CHECKOUT", help="audit with that as well")
    parser.add_argument("--timed", metavar="DIR", help="only time the audit of that record, once")
    arguments = parser.parse_args()
    if arguments.timed:
        timed(arguments.timed)
        return
    checkouts = [HERE, *filter(None, [arguments.beside])]
    print("| traffic | checkout | steps | requests a step | seconds for 100,000 steps | MiB |")
    print("|---|---|--:|--:|--:|--:|")
    for words, kind in ANSWERS.items():
        with tempfile.TemporaryDirectory() as folder:
            engine = Engine(arguments.release, Path(folder), kind=kind)
            for seed in range(arguments.turns):
                engine.turn(seed)
            engine.close()
            told = [[once(one, folder) for one in checkouts] for _ in range(ROUNDS)]
        for checkout, turns in zip(checkouts, zip(*told, strict=True), strict=True):
            steps, requests, _, memory = turns[0]
            times = [1e5 * seconds / steps for _, _, seconds, _ in turns]
            middle, least, most = statistics.median(times), min(times), max(times)
            print(
                f"| {words} | {checkout.name} | {steps:,.0f} | {requests / steps:.2f} "
                f"| {middle:.1f} ({least:.1f} to {most:.1f}) | {memory:.0f} |",
                flush=True,
            )


def once(checkout: Path, folder: str) -> list[float]:
    """Steps, requests, seconds and MiB of an audit by the code of a checkout."""
    environment = {**os.environ, "PYTHONPATH": str(checkout)}
    command = [sys.executable, str(HERE / "benchmarks" / "audit.py"), "--timed", folder]
    told = subprocess.check_output(command, text=True, env=environment, cwd=checkout)
    return list(map(float, told.split()))


def timed(folder: str) -> None:
    """Print steps, requests, seconds of a processor, and MiB."""
    calm_collector()  # as the command does
    begin = time.process_time()
    audit = Audit(folder)
    audit.look(last=True)
    seconds = time.process_time() - begin
    (auditor,) = audit.auditors.values()
    account = auditor.account
    assert account.judged_steps == account.steps
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(account.steps, account.requests, seconds, memory)


if __name__ == "__main__":
    main()
