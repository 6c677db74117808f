"""A pytest plug-in: `pytest -p cacheproof.pytest --cacheproof` holds vLLM's managers of encoder
outputs, KV cache managers, block pools and schedulers to their contracts in whatever tests touch
them.

It changes no decision of theirs. A test under which one breaks a contract fails, with both sides.
What a test does that no engine would do is no fault: after it nothing more is said of that object,
and the summary says so. A run whose tests make no call that could be judged fails, unless that is
allowed. Without `--cacheproof` nothing is done at all.
"""

import sys
from collections import Counter
from collections.abc import Generator
from importlib import metadata
from importlib.util import find_spec
from typing import Any

import pytest

from cacheproof.differential.audit.scheduler_watch import SCHEDULERS, SchedulerWatch
from cacheproof.differential.judges.kv_cache_watch import KVCacheWatch
from cacheproof.differential.judges.live_contracts import SILENT, live_contracts
from cacheproof.differential.judges.watch import ManagerWatch
from cacheproof.differential.judges.watching import NOTES, Note, WatchedBreak, Watching
from cacheproof.differential.targets.attached import (
    BLOCK_POOLS,
    ENCODER_MANAGERS,
    KV_CACHE_MANAGERS,
    Attachment,
)
from cacheproof.spec.registry import by_id
from cacheproof.spec.versions import release_key

NAME = "cacheproof"
ALLOW_NOTHING = "cacheproof_allow_nothing"
OUTSIDE = "outside of tests"
NOTES_SHOWN = 20


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options of the plug-in."""
    group = parser.getgroup(NAME, "contracts of vLLM's caches")
    group.addoption(
        "--cacheproof",
        action="store_true",
        help="fail tests under which a manager, block pool or scheduler breaks a contract",
    )
    group.addoption(
        "--cacheproof-strict",
        action="store_true",
        help="fail also tests that call them as no engine would; implies --cacheproof",
    )
    group.addoption(
        "--cacheproof-release",
        metavar="X",
        help="the vLLM release whose contracts hold (default: the one that is installed)",
    )
    group.addoption(
        "--cacheproof-allow-nothing",
        action="store_true",
        help="let a run pass in which no call was judged",
    )
    parser.addini(ALLOW_NOTHING, "as --cacheproof-allow-nothing", type="bool", default=False)


def pytest_configure(config: pytest.Config) -> None:
    """Attach the contracts, if they are asked for."""
    strict = config.getoption("--cacheproof-strict")
    if strict or config.getoption("--cacheproof"):
        needs_calls = not (
            config.getoption("--cacheproof-allow-nothing") or config.getini(ALLOW_NOTHING)
        )
        contracts = Contracts(_release(config), strict=strict, needs_calls=needs_calls)
        config.pluginmanager.register(contracts, NAME)


def _release(config: pytest.Config) -> str | None:
    """The release whose contracts hold; None: the newest's.

    Raises:
        pytest.UsageError: `--cacheproof-release` names none.
    """
    asked: str | None = config.getoption("--cacheproof-release")
    if asked is None:
        return _installed()
    try:
        release_key(asked)
    except ValueError as error:
        raise pytest.UsageError(f"--cacheproof-release: {error}") from None
    return asked


def _installed() -> str | None:
    """The installed vLLM; None where that is a checkout without a version."""
    try:
        version = metadata.version("vllm")
        return version if release_key(version) >= (0, 8) else None
    except (metadata.PackageNotFoundError, ValueError):
        return None


class Contracts:
    """The watch over one process, and its findings; the process that xdist's workers report to adds
    theirs up. With `needs_calls` a run fails whose tests make no call that is judged."""

    def __init__(self, release: str | None, *, strict: bool, needs_calls: bool) -> None:
        self._release = release
        self._needs_calls = needs_calls
        self._has_tests = False
        managers, caches = ManagerWatch(release), KVCacheWatch(release)
        schedulers = SchedulerWatch(release, managers, caches)
        self._watches: tuple[Watching[Any], ...] = (managers, caches, schedulers)
        self._strict = strict
        self._alone = 0
        self._fails_outside = False
        self._attachments = (
            Attachment(managers, ENCODER_MANAGERS),
            Attachment(caches, KV_CACHE_MANAGERS),
            Attachment(caches, BLOCK_POOLS),
            Attachment(schedulers, SCHEDULERS),
        )
        self._broken: list[tuple[str, str]] = []
        self._notes: list[tuple[str, str, str, str]] = []
        for attachment in self._attachments:
            attachment.attach()

    def pytest_unconfigure(self) -> None:
        """Detach the contracts: leave vLLM as it was."""
        for attachment in self._attachments:
            attachment.detach()

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_makereport(
        self, item: pytest.Item
    ) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        """Let a test fail under which a contract was broken."""
        report = yield
        texts = self._taken(item.nodeid)
        if texts:
            text = "\n\n".join(texts)
            if report.outcome == "failed":
                report.sections.append((NAME, text))
            else:
                self._alone += 1
                report.outcome, report.longrepr = "failed", text
                vars(report).pop("wasxfail", None)
        return report

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """See whether there is a test that ran, or was skipped: in this process or a worker's."""
        self._has_tests |= report.when == "call" or report.skipped

    @property
    def _has_judged_nothing(self) -> bool:
        """Whether tests ran of which nothing can be said."""
        return self._has_tests and not any(watch.calls for watch in self._watches)

    def _taken(self, where: str) -> list[str]:
        """Keep what was found, and say what of it is a failure."""
        breaks: list[WatchedBreak] = []
        notes: list[Note] = []
        for watch in self._watches:
            of_one, left = watch.take()
            breaks += of_one
            notes += left
        self._broken += [(where, contract) for one in breaks for contract in one.contracts]
        self._notes += [(where, one.why, one.text, one.caller) for one in notes]
        return [one.text for one in breaks] + ([*map(_misuse, notes)] if self._strict else [])

    def pytest_collection_finish(self) -> None:
        """What modules of tests did as they were imported is no test's."""
        self._fails_outside |= bool(self._taken(OUTSIDE))

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Tell the process that the summary is made in; what was broken outside of tests counts,
        and so does it that all workers together have judged nothing."""
        self.pytest_collection_finish()
        output = getattr(session.config, "workeroutput", None)
        if output is not None:
            output[NAME] = self._counts()
        is_void = output is None and self._needs_calls and self._has_judged_nothing
        if (self._fails_outside or is_void) and session.exitstatus == pytest.ExitCode.OK:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def _counts(self) -> dict[str, object]:
        return {
            "watches": [
                {
                    "managers": dict(watch.managers),
                    "calls": watch.calls,
                    "spoke": {kind: dict(spoke) for kind, spoke in watch.spoke.items()},
                }
                for watch in self._watches
            ],
            "alone": self._alone,
            "broken": self._broken,
            "notes": self._notes,
        }

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any) -> None:
        """Add up what a worker of xdist has counted."""
        counts = getattr(node, "workeroutput", {}).get(NAME)
        if counts is not None:
            for watch, told in zip(self._watches, counts["watches"], strict=True):
                watch.managers.update(told["managers"])
                watch.calls += told["calls"]
                for kind, spoke in told["spoke"].items():
                    watch.spoke[kind].update(spoke)
            self._alone += counts["alone"]
            self._broken += [tuple(one) for one in counts["broken"]]
            self._notes += [tuple(one) for one in counts["notes"]]

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        """What was judged, which contracts spoke, and where nothing could be said."""
        terminalreporter.section(f"{NAME}: contracts of vLLM {self._release or 'newest'}")
        for line in self._summary():
            terminalreporter.line(line)
        if self._has_judged_nothing:
            line = f"nothing was judged: {_why_nothing()}"
            if self._needs_calls:
                line = f"FAILED: {line}; to let such a run pass, give --cacheproof-allow-nothing"
            terminalreporter.line(line, red=self._needs_calls)

    def _summary(self) -> Generator[str, None, None]:
        broken = Counter(contract for _, contract in self._broken)
        for watch in self._watches:
            followed = +watch.managers
            made = ", ".join(f"{count} {kind}" for kind, count in sorted(followed.items()))
            count = followed.total()
            yield f"{count} {watch.what} ({made or 'none'}), {watch.calls} calls judged"
            for kind, spoke in watch.spoke.items() if followed else ():
                yield from _spoken(kind, spoke, self._release)
        if self._alone:
            yield f"{self._alone} tests fail for what is broken alone"
        for contract, count in sorted(broken.items()):
            yield f"BROKEN {contract} {count} times: {by_id(contract).title}"
        yield from (f"  {contract} in {where}" for where, contract in self._broken)
        yield from self._noted()

    def _noted(self) -> Generator[str, None, None]:
        """The objects of which nothing more could be said."""
        if not self._notes:
            return
        yield f"{len(self._notes)} objects were left alone after what no engine does:"
        reasons = Counter(why for _, why, _, _ in self._notes)
        for why, count in sorted(reasons.items()):
            said = NOTES[why] if why in NOTES else f"promise of the caller: {by_id(why).title}"
            yield f"  {why}, {count} times: {said}"
        for where, why, text, caller in self._notes[:NOTES_SHOWN]:
            yield f"  {why} in {where} by {caller}: {text}"
        if len(self._notes) > NOTES_SHOWN:
            yield f"  and {len(self._notes) - NOTES_SHOWN} more"


def _spoken(kind: str, spoke: Counter[str], release: str | None) -> Generator[str, None, None]:
    """Which contracts spoke of a kind, which did not, and which cannot."""
    ids = live_contracts(kind, release)
    said = [f"{one} {spoke[one]}" for one in ids if spoke[one]]
    yield f"{kind}: spoke " + (", ".join(said) or "none")
    never = [one for one in ids if not spoke[one]]
    if never:
        yield f"{kind}: never spoke {', '.join(never)}"
    if SILENT[kind]:
        yield f"{kind}: cannot speak of calls alone {', '.join(SILENT[kind])}"


def _why_nothing() -> str:
    """What tests lack that none of their calls was judged."""
    if find_spec("vllm") is None:
        return f"{sys.executable} has no vllm to import"
    return "no test called a manager, block pool or scheduler of vLLM"


def _misuse(note: Note) -> str:
    said = NOTES[note.why] if note.why in NOTES else by_id(note.why).title
    return f"{note.why} broken by {note.caller}\n  {said}\n  {note.text}"
