"""What runs by default and in slices: no test twice, none never, and nothing is no success."""

import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
NO_TESTS = pytest.ExitCode.NO_TESTS_COLLECTED
TESTS = """
import pytest

@pytest.mark.parametrize("number", range(11))
def test_always(number): pass

@pytest.mark.full
@pytest.mark.parametrize("number", range(5))
def test_full(number): pass

@pytest.mark.sample(4)
@pytest.mark.parametrize("number", range(10))
def test_sampled(number): pass
"""
DEFAULT = {
    *(f"test_always[{number}]" for number in range(11)),
    *(f"test_sampled[{number}]" for number in (0, 4, 8)),
}
ALL = {
    *DEFAULT,
    *(f"test_full[{number}]" for number in range(5)),
    *(f"test_sampled[{number}]" for number in range(10)),
}

pytest_plugins = ["pytester"]


@pytest.fixture(autouse=True)
def project(pytester: pytest.Pytester) -> None:
    """The settings of this project's tests, and few tests."""
    pytester.makepyprojecttoml((ROOT / "pyproject.toml").read_text())
    tests = pytester.mkdir("tests")
    (tests / "conftest.py").write_text((ROOT / "tests" / "conftest.py").read_text())
    (tests / "test_few.py").write_text(TESTS)


def passed(pytester: pytest.Pytester, *arguments: str) -> list[str]:
    ran = pytester.runpytest_inprocess("--verbose", *arguments)
    assert ran.ret == pytest.ExitCode.OK
    return [line.split()[0].partition("::")[2] for line in ran.outlines if " PASSED " in line]


def test_by_default_samples_run_and_what_is_full_does_not(pytester: pytest.Pytester) -> None:
    assert sorted(passed(pytester)) == sorted(DEFAULT)


@pytest.mark.parametrize("count", [1, 3])
def test_slices_have_every_test_once(pytester: pytest.Pytester, count: int) -> None:
    slices = [passed(pytester, "-m", "", "--slice", f"{k}/{count}") for k in range(1, count + 1)]
    assert sorted(one for each in slices for one in each) == sorted(ALL)
    assert all(slices)


def test_tests_of_a_file_with_the_same_parameters_are_in_one_slice(
    pytester: pytest.Pytester,
) -> None:
    of_number = [
        {one.partition("[")[2] for one in passed(pytester, "-m", "", "--slice", f"{k}/3")}
        for k in (1, 2, 3)
    ]
    assert sum(map(len, of_number)) == len(set().union(*of_number)) == 11


def test_slices_of_what_is_not_run_by_default(pytester: pytest.Pytester) -> None:
    slices = [passed(pytester, "-m", "full", "--slice", f"{k}/2") for k in (1, 2)]
    assert sorted(one for each in slices for one in each) == sorted(ALL - DEFAULT)


@pytest.mark.full
def test_a_slice_is_the_same_on_workers(pytester: pytest.Pytester) -> None:
    ran = pytester.runpytest_inprocess("-m", "", "--slice", "2/3", "--numprocesses", "2")
    ran.assert_outcomes(passed=len(passed(pytester, "-m", "", "--slice", "2/3")))


@pytest.mark.sample(2)
@pytest.mark.parametrize("workers", ["0", "2"])
def test_a_slice_without_tests_is_no_success(pytester: pytest.Pytester, workers: str) -> None:
    ran = pytester.runpytest_inprocess("--slice", "15/99", "--numprocesses", workers)
    assert ran.ret == NO_TESTS


@pytest.mark.sample(2)
@pytest.mark.parametrize("workers", ["0", "2"])
def test_no_test_begins_after_the_seconds(pytester: pytest.Pytester, workers: str) -> None:
    ran = pytester.runpytest_inprocess("--seconds", "0", "-rs", "--numprocesses", workers)
    ran.assert_outcomes(skipped=len(DEFAULT))
    ran.stdout.fnmatch_lines("*not begun: the 0 seconds of --seconds are up")
    assert ran.ret == NO_TESTS


def test_the_test_that_comes_first_is_counted_round(pytester: pytest.Pytester) -> None:
    in_order = passed(pytester)
    assert len(in_order) == 14
    for begin in (5, 14 + 5):
        assert passed(pytester, "--begin", str(begin)) == in_order[5:] + in_order[:5]


def test_every_test_begins_within_the_seconds(pytester: pytest.Pytester) -> None:
    assert sorted(passed(pytester, "--seconds", "3600")) == sorted(DEFAULT)


@pytest.mark.parametrize("text", ["0/7", "8/7", "7", "1/0", "a/7"])
def test_a_slice_that_is_none_costs_a_line(pytester: pytest.Pytester, text: str) -> None:
    ran = pytester.runpytest_inprocess(f"--slice={text}")
    assert ran.ret == pytest.ExitCode.USAGE_ERROR
    (line,) = [one for one in ran.errlines if one]
    assert line == f"ERROR: --slice {text!r}: expected K/N with K from 1 to N, such as 2/7"


def test_make_hands_a_slice_on() -> None:
    ran = subprocess.run(
        [
            "make",
            "--no-print-directory",
            "--dry-run",
            "test-all",
            "SLICE=2/7",
            "TEST_ARGS=tests/spec",
        ],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    words = ran.stdout.splitlines()[-1].split()
    assert words[-5:] == ["-m", "''", "--slice", "'2/7'", "tests/spec"]
