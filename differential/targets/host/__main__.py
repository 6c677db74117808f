"""The host process: reads requests as JSON lines, runs traces on the release, writes results.

Started as `PYTHON <this folder>` with a vLLM tree on PYTHONPATH and PYTHONHASHSEED=0. What the
release prints goes to standard error; results alone travel over standard output. A module named
on the command line gives the `HOST` that is run in place of vLLM. With `--forks` and a
descriptor in front of it, every host is a fork of the process that imported it; with `--libraries`
and their names behind that, such processes are forks themselves, of one that imported libraries
alone: see forking.py.
"""

import atexit
import importlib
import importlib.util
import json
import os
import socket
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from .protocol import Json, Plain


class Host(Protocol):
    """What answers the requests of a pipe. Only that of releases explores, and only one of changed
    texts changes them."""

    def hello(self, plug_in: str | None) -> "dict[str, Json]": ...
    def run(self, request: "Plain") -> "Iterable[Json]": ...
    def explore(self, request: "Plain") -> "dict[str, Json]": ...
    def expand(self, states: list[int]) -> "Mapping[str, Json]": ...


def _load_own_package() -> None:
    """Make this folder importable as `host`, without its neighbours."""
    here = Path(__file__).parent
    spec = importlib.util.spec_from_file_location(
        "host", here / "__init__.py", submodule_search_locations=[str(here)]
    )
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["host"] = module
    spec.loader.exec_module(module)


def _claim_stdout() -> int:
    """Keep the pipe for results; everything else that is printed goes to standard error."""
    results = os.dup(1)
    os.dup2(2, 1)
    sys.stdout = sys.stderr
    return results


def main() -> None:
    descriptor = _claim_stdout()
    control, arguments = None, sys.argv[1:]
    if arguments[:1] == ["--forks"]:
        control = socket.socket(fileno=int(arguments[1]))
        arguments = arguments[2:]
    here = Path(__file__).resolve().parent
    sys.path[:] = [entry for entry in sys.path if Path(entry or ".").resolve() != here]
    _load_own_package()
    if control is not None:
        importlib.import_module("host.forking").wait_for_work(control)
    importlib.import_module("host.as_imported")
    importlib.import_module("host.session").calm_collector()
    importlib.import_module("host.torch_names").answer()
    if control is not None and arguments[:1] == ["--libraries"]:
        for library in arguments[1:]:
            importlib.import_module(library)
        control, arguments = importlib.import_module("host.forking").fork_servers(control)
    module = importlib.import_module(arguments[0] if arguments else "host.release")
    if control is not None:
        descriptor = importlib.import_module("host.forking").fork_hosts(control)
    results = os.fdopen(descriptor, "wb", buffering=1 << 20)
    release = module.HOST()
    encode = importlib.import_module("msgspec").json.Encoder().encode
    for line in sys.stdin:
        request = json.loads(line)
        results.writelines(_answer(release, request, encode))
        results.flush()
        if request["do"] == "restore":
            os._exit(0)  # a child of `change`; its parent goes on
    # An interpreter that ends walks all that was imported, which takes an engine's host seconds.
    atexit._run_exitfuncs()
    os._exit(0)


def _answer(
    release: "Host", request: "Plain", encode: Callable[[object], bytes]
) -> Iterator[bytes]:
    """A line of JSON in parts. Each result is encoded as soon as it is there: the records of a
    whole batch would have the cycle collector walk them again and again."""
    if request["do"] != "run":
        answer = _whole_answer(release, request)
        if answer is not None:
            yield encode({"id": request["id"], **answer}) + b"\n"
        return
    yield b'{"id":%d,"results":[' % request["id"]
    for number, result in enumerate(release.run(request)):
        yield (b"," if number else b"") + encode(result)
    yield b"]}\n"


def _whole_answer(release: "Host", request: "Plain") -> "dict[str, Json] | None":
    """An answer that is complete at once; None where a child of this process has answered."""
    answer: dict[str, Json] | None
    match request["do"]:
        case "hello":
            answer = release.hello(request.get("manager"))
        case "explore":
            answer = release.explore(request)
        case "built" | "change" | "trace" | "called" | "halves" | "modalities":
            answer = getattr(release, request["do"])(request)
        case "imported":
            otherwise = importlib.import_module("host.as_imported").otherwise(request)
            answer = {"otherwise": otherwise}
        case "restore":
            answer = {}
        case _:
            answer = {**release.expand(request["states"])}
    return answer


if __name__ == "__main__":
    main()
