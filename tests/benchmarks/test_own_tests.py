"""vLLM's own tests of its managers pass with the contracts attached, and find a planted fault."""

import pytest


@pytest.fixture(scope="module")
def tests(script, tmp_path_factory):
    return script.OwnTests(tmp_path_factory.mktemp("own-tests"))


@pytest.mark.full
def test_the_release_breaks_nothing_in_its_own_tests_of_managers(script, tests) -> None:
    ran = tests.run(script.OF_MANAGERS, *script.PLUG_IN)
    assert ran.count("PASSED") == len(ran.outcomes) > 20
    assert ran.summary[0] == "22 managers (20 encoder_cache, 2 encoder_decoder), 230 calls judged"
    assert "encoder_decoder: never spoke ED-2, ED-7" in ran.summary


@pytest.mark.full
def test_tests_that_pass_on_a_faulty_manager_fail_with_the_contracts(script, tests) -> None:
    fault = "evicts_one_more"
    assert tests.run(script.OF_MANAGERS, fault="encoder:nothing").failed == set()
    by_themselves = tests.run(script.OF_MANAGERS, fault=f"encoder:{fault}").failed
    ran = tests.run(script.OF_MANAGERS, *script.PLUG_IN, fault=f"encoder:{fault}")
    assert by_themselves < ran.failed
    assert any(line.startswith("BROKEN EC-8a ") for line in ran.summary)


def test_a_long_line_is_folded_at_its_blanks(script) -> None:
    words = " ".join(["EC-1 187,"] * 30)
    folded = script._folded(words)
    assert folded.replace("\n   ", "") == words
    assert max(map(len, folded.splitlines())) <= 120


def test_a_run_is_read(script) -> None:
    ran = script.Ran({"a": "PASSED", "b": "FAILED", "c": "ERROR"}, [], 1.0)
    assert (ran.count("PASSED"), ran.failed) == (1, {"b", "c"})


def test_the_page_has_every_planted_fault(script) -> None:
    page = (script.ROOT / "docs" / "evidence" / "own-tests.md").read_text()
    assert page.startswith(script.HEAD)
    assert script.EXPLAINED in page
    assert "| none | 0 | 0 |  |" in page
    faults = [fault for sown in script.SOWN for fault in sown.faults]
    rows = [fault.replace("_", " ") for fault in faults if fault != "nothing"]
    missing = [row for row in rows if f"\n| {row} | " not in page]
    assert missing == [], "make its rows: .venv/bin/python benchmarks/pages.py own-tests.md"
