"""Runs traces under an engine's second model runner, and prints what each launch of a kernel left.

    PYTHON interpreted_launches.py FOLDER_OF_THE_HOST MODULE [--plain] < TRACES

In the interpreter and the environment of that runner; MODULE takes the place of the host's
engine_interpreted.py. With `--plain` Triton's interpreter stays as it is, but for what it cannot
do. A line for each launch: the kernel, its grid, and a digest of all
tensors that it was given.
"""

import hashlib
import importlib
import json
import sys
import types
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import torch
from triton.runtime import interpreter


def host_module(name: str) -> Any:
    """A module of the host, without what stands around it."""
    if "host" not in sys.modules:
        package = types.ModuleType("host")
        package.__path__ = [sys.argv[1]]
        sys.modules["host"] = package
    return importlib.import_module(f"host.{name}")


def tensors_of(arguments: Iterable[Any]) -> Iterator[torch.Tensor]:
    """Those that hold numbers: addresses are another process's own."""
    for one in arguments:
        if isinstance(one, tuple):
            yield from tensors_of(one)
        elif isinstance(one, torch.Tensor) and one.dtype != torch.uint64:
            yield one


def main() -> None:
    results, sys.stdout = sys.stdout, sys.stderr
    # What is made without a value has one all the same, so that processes can be compared.
    torch.use_deterministic_algorithms(True, warn_only=True)
    torch.utils.deterministic.fill_uninitialized_memory = True
    interpreted = host_module("engine.interpreted")
    exec(Path(sys.argv[2]).read_text(), vars(interpreted))
    if "--plain" in sys.argv:
        interpreted.hasten = lambda: None
    host_module("torch_names").answer()
    release = host_module("engine.second").HOST()
    run = interpreter.InterpretedFunction.run

    def told(self: Any, *given: Any, grid: Any, warmup: bool, **named: Any) -> None:
        run(self, *given, grid=grid, warmup=warmup, **named)
        digest = hashlib.sha256()
        for one in tensors_of((*given, *named.values())):
            digest.update(one.contiguous().view(torch.uint8).numpy().tobytes())
        name = self.fn.__name__
        print(json.dumps([name, list(grid), digest.hexdigest()[:16]]), file=results, flush=True)

    interpreter.InterpretedFunction.run = told
    for result in release.run({"traces": json.load(sys.stdin)}):
        if "illegal" in result:
            raise SystemExit(result["illegal"])


if __name__ == "__main__":
    main()
