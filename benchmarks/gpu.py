"""The runner on a GPU: its tests, its answers, and what is timed there. Writes
docs/evidence/gpu.md.

    .venv/bin/python benchmarks/gpu.py --python PYTHON

PYTHON is an interpreter whose torch sees the GPU, with transformers, pytest and what cacheproof
needs. The page is written when all has passed; whatever is said on the way is printed.
"""

import argparse
import datetime
import json
import os
import shlex
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

BENCHMARKS = Path(__file__).parent
ROOT = BENCHMARKS.parent
PAGE = ROOT / "docs" / "evidence" / "gpu.md"
DEVICE = ("--device", "cuda")
FACTS = """
import json, platform, torch, transformers
if not torch.cuda.is_available():
    raise SystemExit(f"torch {torch.__version__} sees no GPU")
print(json.dumps({
    "device": torch.cuda.get_device_name(),
    "memory": torch.cuda.get_device_properties(0).total_memory,
    "Python": platform.python_version(),
    "torch": torch.__version__,
    "transformers": transformers.__version__,
}))
"""
FAULT = "reads_the_next_rows"


class Failed(Exception):
    """A part did not do what it must."""


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--python", default=sys.executable)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--workloads", type=int, default=100)
    chosen = parser.parse_args()
    facts = subprocess.run([chosen.python, "-c", FACTS], capture_output=True, text=True)
    if facts.returncode:
        said = facts.stderr.strip().splitlines()[-1]
        print(f"--python {chosen.python}: {said}; expected one whose torch sees a GPU, "
              f"with transformers. {PAGE.name} stays as it is", file=sys.stderr)  # fmt: skip
        raise SystemExit(2)
    try:
        page = write(chosen, json.loads(facts.stdout))
    except Failed as reason:
        print(f"{reason}; {PAGE.name} stays as it is", file=sys.stderr)
        raise SystemExit(1) from None
    PAGE.write_text(page)


def write(chosen: argparse.Namespace, facts: dict[str, object]) -> str:
    """The page, after everything in it has run.

    Raises:
        Failed: a part failed, or a planted fault was not seen.
    """
    python = chosen.python

    def benchmark(name: str, *arguments: object) -> list[str]:
        script = str(BENCHMARKS / f"{name}.py")
        of_all = ("--python", python, "--rounds", str(chosen.rounds))
        return [python, script, *DEVICE, *of_all, *map(str, arguments)]

    tests = [python, "-m", "pytest", "-q", "-m", "", "-p", "no:xdist", "-p", "no:cacheprovider"]
    devices = benchmark("devices", "--workloads", chosen.workloads)
    passed = run([*tests, *DEVICE, str(ROOT / "tests" / "gpu_runner")])[-1]
    answers = table(run(devices))
    run([*benchmark("devices", "--workloads", 10), "--fault", FAULT], expected=1)
    first_token = table(run(benchmark("time_to_first_token", "--size", "full")))
    waits = run(benchmark("time_to_first_token", "--size", "full", "--synchronisations"))
    splice = table(run(benchmark("splice")))
    attention = table(run(benchmark("decode_attention")))
    memory = int(str(facts.pop("memory"))) / 2**30
    device = facts.pop("device")
    versions = ", ".join(f"{name} {version}" for name, version in facts.items())
    return f"""# The runner on a GPU

`benchmarks/gpu.py --python PYTHON` wrote this page on {datetime.date.today()}:
{device} ({memory:.0f} GiB), {versions}.
Medians (least to most) of {chosen.rounds} rounds; what is compared takes turns.

## Is it right there?

Its tests, with every model and store on the GPU, those with planted faults among them:
{passed.strip("= ")}.

Workloads of tiny models in float32, {chosen.workloads} of each, on the GPU and on the CPU.
Both must answer the same tokens, but after a step whose best two tokens nearly tie, and break the
same contracts.
With the fault `{FAULT}` planted in the runner on the GPU this fails, as it must.

{answers}

Nothing waits for the GPU between the start of a step and the choice of its tokens; torch refuses
whatever would:

{bullets(waits)}

## Time to the first token

A model of the size of Qwen2.5-VL-7B in bfloat16 with random weights, and a video that is encoded
(cold), found in the encoder cache (warm), or taken from
[a store that engines share](../explain/encoder-connector.md); milliseconds. Where no Redis server
was at hand, no column says "from server".
[What is claimed, and what differs here](../explain/runner.md#time-to-the-first-token).

{first_token}

## Gather and splice

Beside a plain copy of as many bytes on the GPU: GB/s of rows that are moved, and microseconds that
the host takes to find their places.

{splice}

## Requests that decode

Microseconds of a layer in bfloat16, as a step of each request and as one step of all.

{attention}
"""


def run(command: Sequence[str], *, expected: int = 0) -> list[str]:
    """The lines that a command prints; they are passed on.

    Raises:
        Failed: it ends otherwise than expected.
    """
    print(f"$ {shlex.join(command)}", flush=True)
    begun = time.monotonic()
    environment = os.environ | {
        "PYTHONPATH": os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH")))),
        "HF_HUB_OFFLINE": "1",
        "HF_HUB_DISABLE_PROGRESS_BARS": "1",
    }
    lines = []
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        for line in child.stdout:
            print(line, end="", flush=True)
            lines.append(line.rstrip("\n"))
    print(f"{time.monotonic() - begun:.0f} s", flush=True)
    if child.returncode != expected:
        raise Failed(f"{command[1]} ended with {child.returncode}, expected {expected}")
    return lines


def table(lines: Sequence[str]) -> str:
    """The rows of the table among them."""
    return "\n".join(line for line in lines if line.startswith("|"))


def bullets(lines: Sequence[str]) -> str:
    """Each as an entry of a list."""
    return "\n".join(f"- {line}" for line in lines)


if __name__ == "__main__":
    main()
