"""No input brings a command to a traceback, to two lines where it says one, to hang, to send
control characters to a terminal, or to leave something behind."""

import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable
from pathlib import Path

import pytest

from cacheproof import cli
from cacheproof.differential.errors import InputError
from cacheproof.differential.targets import releases
from cacheproof.differential.targets.cache import Cache
from tests.hostile.cases import QUICK, SLOW, Case, cases
from tests.hostile.checker import Ran, complaints, memory_complaints, run_apart, run_here

COUNT = 2_000
AT_ONCE = 50
FIRST = 10
"""So many at once of the first hundred, which every run takes."""
APART_EVERY = 40
SHARED = ("releases", "environments", "engines", "models")


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A cache folder of our own, with the releases and the libraries of the user's."""
    releases.install("0.33.0", report=print)
    folder = tmp_path_factory.mktemp("home")
    for name in SHARED:
        (folder / name).symlink_to(Cache.locate().root / name)
    return folder


def wrong_with(some: Iterable[Case], home: Path, folder: Path) -> list[str]:
    """What is wrong with what becomes of cases, each in a folder of its own."""
    found = []
    for case in some:
        where = Path(tempfile.mkdtemp(dir=folder))
        words = case.prepare(where)
        run = run_apart if case.number % APART_EVERY == APART_EVERY - 1 else run_here
        ran = run(words, where, home)
        found += [f"{case}: {words}: {one}" for one in [*complaints(ran), *memory_complaints()]]
    return found


@pytest.mark.parametrize("start", range(0, 100, FIRST))
def test_the_first_quick_cases(start: int, home: Path, tmp_path: Path) -> None:
    quick = [case for case in cases(FIRST, start) if not case.is_slow]
    assert wrong_with(quick, home, tmp_path) == []


@pytest.mark.slow
@pytest.mark.parametrize("start", range(0, COUNT, AT_ONCE))
def test_all_cases(start: int, home: Path, tmp_path: Path) -> None:
    assert wrong_with(cases(AT_ONCE, start), home, tmp_path) == []
