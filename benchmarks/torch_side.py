"""Runs a benchmark in an interpreter that has torch and transformers: the provisioned one, or one
that is named, since the provisioned torch knows no GPU."""

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import beside

if TYPE_CHECKING:
    import torch


def arguments(description: str | None, *, device: str = "cpu") -> argparse.ArgumentParser:
    """What every such benchmark is asked; on which device, unless it is named."""
    parser = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--device", default=device, choices=["cpu", "cuda"])
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument(
        "--python",
        help="an interpreter with torch, transformers, blake3, cbor2, msgspec and xxhash "
        "(default: the provisioned one, which has no CUDA)",
    )
    return parser


def run(
    file: str,
    chosen: argparse.Namespace,
    given: tuple[list[str], dict[str, str]] | None = None,
    **job: Any,
) -> Iterator[Any]:
    """What `file` prints there, a line of JSON at a time. It gets the argument `inside` and, as
    JSON, what was chosen and the rest of its job. `given` is a command and an environment in the
    place of the provisioned ones."""
    if chosen.rounds < 1:
        raise SystemExit(f"--rounds {chosen.rounds}; expected 1 or more")
    command, environment = [chosen.python], dict(os.environ)
    if given is not None:
        command, environment = given
    elif chosen.python is None:
        from cacheproof.serving.generating import provisioned

        python, environment = provisioned(report=lambda said: print(said, file=sys.stderr))
        command = [python]
    with subprocess.Popen(
        [*command, file, "inside", json.dumps(vars(chosen) | job)],
        env=environment | {"TRANSFORMERS_VERBOSITY": "error"},
        stdout=subprocess.PIPE,
        text=True,
    ) as child:
        assert child.stdout is not None
        yield from map(json.loads, child.stdout)
    if child.returncode != 0:
        raise SystemExit(child.returncode)


def print_table(
    description: str | None,
    file: str,
    cases: Sequence[Any],
    figures: str,
    head: str,
    columns: Callable[[Any, Any], Iterable[str]],
) -> None:
    """The whole of a benchmark of cases: a row of Markdown for each, with what `columns` makes of
    the case and of what `file` prints of it. `figures` says what is measured, and in what unit."""
    chosen = arguments(description).parse_args()
    told = run(file, chosen, cases=cases)
    print(f"{figures}: median (least to most) of {chosen.rounds} rounds; {next(told)}\n")
    print(head)
    print("|" + "---|" * (head.count("|") - 1))
    for case, line in zip(cases, told, strict=True):
        print(f"| {' | '.join(columns(case, line))} |", flush=True)


def device(name: str) -> "torch.device":
    """Inside: the device of that name, with one line where there is none. A CPU is one core: others
    may be at work on the rest."""
    import torch

    torch.set_num_threads(1)

    if name == "cuda" and not torch.cuda.is_available():
        print(
            f"--device cuda: torch {torch.__version__} of {sys.executable} sees no GPU; "
            f"expected --device cpu, or --python with one that does",
            file=sys.stderr,
        )
        raise SystemExit(2)
    return torch.device(name)


def machine(name: str) -> str:
    """Inside: what the figures are of."""
    import torch

    where = torch.cuda.get_device_name() if name == "cuda" else "CPU time of one core"
    return f"{where}, torch {torch.__version__}"


def tell_each(job: Any, measured: Iterable[Callable[["torch.device"], Any]]) -> None:
    """Inside: a line of JSON for the machine, and for each of what is measured on its device."""
    beside.make_importable()
    where = device(job["device"])
    print(json.dumps(machine(job["device"])), flush=True)
    for measure in measured:
        print(json.dumps(measure(where)), flush=True)


def clock(where: "torch.device") -> float:
    """Inside: seconds, of CPU time where the CPU does it all, when all that was asked is done."""
    import torch

    if where.type != "cuda":
        return time.process_time()
    torch.cuda.synchronize()
    return time.perf_counter()


def wall(where: "torch.device") -> float:
    """Inside: seconds on the wall, when all that was asked of a GPU is done."""
    import torch

    if where.type == "cuda":
        torch.cuda.synchronize()
    return time.perf_counter()


def timed(side: Callable[[], Any], repeats: int, where: "torch.device") -> float:
    """Inside: seconds of one call of so many; between two events where there is a GPU."""
    import torch

    if where.type == "cpu":
        begun = clock(where)
        for _ in range(repeats):
            side()
        return (clock(where) - begun) / repeats
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    torch.cuda.synchronize()
    start.record()
    for _ in range(repeats):
        side()
    end.record()
    end.synchronize()
    return float(start.elapsed_time(end)) / 1e3 / repeats
