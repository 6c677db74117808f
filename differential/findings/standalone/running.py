"""Runs standalone tests where their readers would: beside a release alone, in its interpreter."""

import json
import subprocess
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from cacheproof.differential.errors import HarnessError
from cacheproof.differential.provision.releases import InstalledRelease, host_command

SECONDS_MAX = 300
"""Seconds that all files of a run may take together."""
_PROGRAM = """
import importlib.util, inspect, json, linecache, os, pathlib, sys, tempfile, traceback, types
settings = dict(os.environ)
outcomes = []
for path in sys.argv[1:]:
    name = pathlib.Path(path).stem
    spec = importlib.util.spec_from_file_location(name, path)
    sys.modules[name] = module = importlib.util.module_from_spec(spec)
    error = line = ""
    try:
        spec.loader.exec_module(module)
        (test,) = [thing for name, thing in vars(module).items() if name.startswith("test_")]
        fixtures = {
            "tmp_path": pathlib.Path(tempfile.mkdtemp()),
            "monkeypatch": types.SimpleNamespace(setenv=os.environ.__setitem__),
        }
        test(**{name: fixtures[name] for name in inspect.signature(test).parameters})
    except Exception as raised:
        error = f"{type(raised).__name__}: {raised}".rstrip(": ")
        frames = traceback.extract_tb(raised.__traceback__)
        line = next((one.line for one in reversed(frames) if one.filename == path), "")
    os.environ.clear()
    os.environ.update(settings)
    outcomes.append((error, line))
print()
print(json.dumps(outcomes))
"""
"""What runs the test of each file with the fixtures that it takes, and says what it raised, and
where. A release's interpreter has no pytest."""


@dataclass(frozen=True)
class TestOutcome:
    """What a test came to. `error` is what it raised, empty where it passes, and `line` the line of
    its file that did; `seconds` are those of the whole run, with the start of the interpreter."""

    error: str
    line: str
    seconds: float

    @property
    def passes(self) -> bool:
        return not self.error


def outcomes(files: Sequence[Path], release: InstalledRelease) -> list[TestOutcome]:
    """What the one test of each file comes to on a release, all in one process.

    Raises:
        HarnessError: the process ended before the last of them, or did not end.
    """
    command, environment = host_command(release)
    begun = time.monotonic()
    try:
        ran = subprocess.run(
            [*command, "-c", _PROGRAM, *map(str, files)],
            env=environment,
            capture_output=True,
            text=True,
            check=False,
            timeout=SECONDS_MAX,
        )
    except subprocess.TimeoutExpired:
        raise HarnessError(
            f"{files[0].name} was still running on vLLM {release.version} after {SECONDS_MAX} s"
        ) from None
    if ran.returncode:
        last = (ran.stderr.splitlines() or ["it said nothing"])[-1]
        raise HarnessError(
            f"{files[0].name} ended the interpreter of vLLM {release.version} with exit status "
            f"{ran.returncode}: {last}"
        )
    seconds = time.monotonic() - begun
    told = json.loads(ran.stdout.splitlines()[-1])
    return [TestOutcome(error, line, seconds) for error, line in told]
