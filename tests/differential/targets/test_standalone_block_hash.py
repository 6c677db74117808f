"""Standalone tests of block keys on real releases: red where found, green where mended."""

import json
import subprocess
from pathlib import Path

import pytest

from cacheproof.differential.campaign import LANES
from cacheproof.differential.examine import examine
from cacheproof.differential.finding import LOCKSTEP, Finding, found_in
from cacheproof.differential.standalone import standalone_test, why_none
from cacheproof.differential.targets import releases
from cacheproof.differential.targets.reference import ReferenceTarget
from cacheproof.reference.semantics import Semantics

FAULTY, MENDED = "0.28.0", "0.33.0"
CONTRACTS = ("BK-1", "BK-2", "BK-3", "BK-4")
LANES_OF_KEYS = ("block keys", "block keys while decoding", "block keys of continued requests")
CASES = [(contract, lane) for contract in CONTRACTS for lane in LANES_OF_KEYS]
RUN = """
import json, sys
verdicts = {}
for path in sys.argv[1:]:
    names = {}
    exec(compile(open(path).read(), path, "exec"), names)
    (test,) = [thing for name, thing in names.items() if name.startswith("test_")]
    try:
        test()
        verdicts[path] = "passes"
    except AssertionError:
        verdicts[path] = "fails"
print(json.dumps(verdicts))
"""


def target_of(release: str) -> ReferenceTarget:
    """The reference with that release's faults, and its very digests."""
    return ReferenceTarget(Semantics.of_vllm(release), name=f"reference@{release}", release=release)


def find(release: str, contract: str, lane: str) -> Finding:
    target = target_of(release)
    for seed in range(100):
        trace = LANES[lane].trace(seed, release)
        if contract in examine(trace, target.run([trace])[0], target).violations:
            found = found_in(target, trace, contract)
            assert found is not None
            return found
    raise AssertionError(f"{contract} does not break in {lane}")


@pytest.fixture(scope="module")
def sources(tmp_path_factory: pytest.TempPathFactory) -> dict[tuple[str, str], Path]:
    folder = tmp_path_factory.mktemp("standalone")
    written = {}
    for number, (contract, lane) in enumerate(CASES):
        source = standalone_test(find(FAULTY, contract, lane))
        assert source is not None
        assert "cacheproof" not in source
        assert all(len(line) <= 100 for line in source.splitlines())
        written[contract, lane] = folder / f"test_{number}.py"
        written[contract, lane].write_text(source)
    return written


@pytest.mark.parametrize(("release", "verdict"), [(FAULTY, "fails"), (MENDED, "passes")])
def test_a_standalone_test_fails_where_it_was_found_and_passes_where_it_is_mended(
    sources: dict[tuple[str, str], Path], release: str, verdict: str
) -> None:
    command, environment = releases.host_command(releases.install(release, report=print))
    interpreter = [word for word in command if not Path(word).is_dir()]
    ran = subprocess.run(
        [*interpreter, "-c", RUN, *sources.values()],
        env=environment,
        check=True,
        stdout=subprocess.PIPE,
        text=True,
    )
    verdicts = json.loads(ran.stdout.splitlines()[-1])
    assert {case: verdicts[str(path)] for case, path in sources.items()} == dict.fromkeys(
        CASES, verdict
    )


def test_a_difference_from_the_reference_has_none_and_says_so() -> None:
    trace = LANES["block keys of continued requests"].trace(0, FAULTY)
    found = found_in(target_of(FAULTY), trace, LOCKSTEP, ReferenceTarget())
    assert found is not None
    assert standalone_test(found) is None
    assert why_none(found) == "a difference from the reference is shown by its replay"
