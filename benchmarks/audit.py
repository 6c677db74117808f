"""How long an audit takes, on one core: of a record of a real engine's scheduler, made for it.

    .venv/bin/python benchmarks/audit.py [--turns 12] [--release 0.32.0]

Two kinds of traffic are recorded, short answers and long ones; each audit is timed five times.
"""

import argparse
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

ANSWERS = {"short answers, 8 to 120 tokens": "", "long answers, 200 to 400 tokens": "long"}
ROUNDS = 5


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--turns", type=int, default=12)
    parser.add_argument("--release", default="0.32.0")
    parser.add_argument("--timed", metavar="DIR", help="only time the audit of that record, once")
    arguments = parser.parse_args()
    if arguments.timed:
        timed(arguments.timed)
        return
    print("| traffic | steps | requests a step | seconds for 100,000 steps | memory, MiB |")
    print("|---|--:|--:|--:|--:|")
    for words, kind in ANSWERS.items():
        with tempfile.TemporaryDirectory() as folder:
            engine = Engine(arguments.release, Path(folder), kind=kind)
            for seed in range(arguments.turns):
                engine.turn(seed)
            engine.close()
            command = [sys.executable, __file__, "--timed", folder]
            told = [
                list(map(float, subprocess.check_output(command, text=True).split()))
                for _ in range(ROUNDS)
            ]
        steps, requests = told[0][:2]
        times = [1e5 * seconds / steps for _, _, seconds, _ in told]
        print(
            f"| {words} | {steps:,.0f} | {requests / steps:.2f} | {statistics.median(times):.1f} "
            f"({min(times):.1f} to {max(times):.1f}) | {told[0][3]:.0f} |"
        )


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
