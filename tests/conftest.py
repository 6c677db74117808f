"""Which tests run: by default those that are not `full`; with `--slice K/N` one part in N, with
`--seconds S` no further one after so long, and with `--begin K` the K-th first. And hosts of
releases for all tests."""

import re
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, closing, nullcontext
from pathlib import Path

import pytest

from cacheproof.differential.targets.process import HostTarget
from cacheproof.differential.targets.resolve import resolve
from cacheproof.output import progress
from cacheproof.reference.releases import NEWEST


@pytest.fixture(autouse=True)
def _untold_progress(monkeypatch: pytest.MonkeyPatch) -> None:
    """A command in this process says the same on a slow machine as on a fast one."""
    monkeypatch.setattr(progress, "LOOK_SECONDS", threading.TIMEOUT_MAX)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--slice",
        metavar="K/N",
        help="the K-th of N parts; tests of a file with the same parameters are in one",
    )
    parser.addoption(
        "--seconds",
        metavar="S",
        type=float,
        help="begin no test after S seconds; each one that is left is skipped, and says so",
    )
    parser.addoption(
        "--begin",
        metavar="K",
        type=int,
        default=0,
        help="the K-th test comes first, counted round; those before it come last",
    )
    parser.addoption(
        "--accept",
        action="store_true",
        help="write what comes of stories into their files, in one process",
    )


def pytest_collect_file(file_path: Path, parent: pytest.Collector) -> pytest.Collector | None:
    """The stories of a file of such a folder, which `tests/stories.py` describes."""
    if file_path.suffix != ".txt" or file_path.parent.name != "stories":
        return None
    from tests.telling import StoryFile  # here: test_slices.py has this file in another project

    return StoryFile.from_parent(parent, path=file_path)


BEGAN = pytest.StashKey[float]()


def pytest_configure(config: pytest.Config) -> None:
    which_slice(config)
    config.stash[BEGAN] = time.monotonic()
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        # a shell's background jobs are started so, and no test of Ctrl-C could be right there
        signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skip before a fixture is made: making it may take longer than the test."""
    seconds = item.config.getoption("--seconds")
    if seconds is not None and time.monotonic() - item.config.stash[BEGAN] > seconds:
        pytest.skip(f"not begun: the {seconds:g} seconds of --seconds are up")


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    """Tests of which the clock let none end are no success. Where there are workers, they do not
    know, and the session that reports does."""
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    if session.config.getoption("--seconds") is None or reporter is None:
        return
    reports = not hasattr(session.config, "workerinput")
    nothing_ended = not any(map(reporter.stats.get, ("passed", "xfailed")))
    if reports and nothing_ended and session.exitstatus == pytest.ExitCode.OK:
        session.exitstatus = pytest.ExitCode.NO_TESTS_COLLECTED


def which_slice(config: pytest.Config) -> tuple[int, int]:
    """K and N.

    Raises:
        pytest.UsageError: what `--slice` says is no slice.
    """
    text = config.getoption("--slice") or "1/1"
    found = re.fullmatch(r"([0-9]+)/([0-9]+)", text)
    which, count = map(int, found.groups()) if found else (0, 0)
    if not 1 <= which <= count:
        raise pytest.UsageError(f"--slice {text!r}: expected K/N with K from 1 to N, such as 2/7")
    return which, count


@pytest.hookimpl(wrapper=True)
def pytest_collection_modifyitems(
    config: pytest.Config, items: list[pytest.Item]
) -> Iterator[None]:
    """Make what a `sample` leaves out `full` before pytest selects by marks; slice what is left."""
    seen: Counter[str] = Counter()
    for item in items:
        if sample := item.get_closest_marker("sample"):
            test, _, _ = item.nodeid.partition("[")
            if seen[test] % sample.args[0]:
                item.add_marker("full")
            seen[test] += 1
    yield
    which, count = which_slice(config)
    groups: dict[tuple[str, str], int] = {}
    kept, dropped = [], []
    for item in items:
        file, _, test = item.nodeid.partition("::")
        group = groups.setdefault((file, test.partition("[")[2]), len(groups))
        (kept if group % count == which - 1 else dropped).append(item)
    if dropped:
        config.hook.pytest_deselected(items=dropped)
    first = config.getoption("--begin") % len(kept) if kept else 0
    items[:] = kept[first:] + kept[:first]


@pytest.fixture(scope="session")
def newest() -> Iterator[HostTarget]:
    """A host of the newest release, one for all tests of a process."""
    with closing(_host(NEWEST)) as target:
        yield target


@pytest.fixture(scope="session")
def hosted(newest: HostTarget) -> Callable[[str], AbstractContextManager[HostTarget]]:
    """A host of a release, which ends with its block unless it is that of the newest."""

    def host(release: str) -> AbstractContextManager[HostTarget]:
        return nullcontext(newest) if release == NEWEST else closing(_host(release))

    return host


def _host(release: str) -> HostTarget:
    target = resolve(f"vllm@{release}", report=print)
    assert isinstance(target, HostTarget)
    return target
