"""One fault, or one contract, told to somebody who has read nothing else."""

import json

import pytest

from cacheproof.differential.judges import rules  # noqa: F401  (registers all contracts)
from cacheproof.differential.search.known import KnownFault
from cacheproof.listed.facts import listed_by_name
from cacheproof.spec.registry import contracts
from tests.front.conftest import Run

FAULTS = [*listed_by_name()]
RULES = [rule.id for rule in contracts()]


def told(run: Run, *words: str) -> str:
    """What a command prints, in one line."""
    ran = run(*words)
    assert ran.code == 0
    return " ".join(ran.out.split())


@pytest.mark.parametrize("name", FAULTS)
def test_every_listed_fault_is_explained(name: str, run: Run) -> None:
    fault = listed_by_name()[name]
    text = told(run, "explain", name)
    said = (fault.title, fault.harm, fault.needs, fault.avoid, fault.upstream)
    assert [one for one in said if one not in text] == []
    assert "what happens" in text


def test_a_fault_is_explained_by_its_page_and_shown_by_a_command(run: Run) -> None:
    ran = run("explain", "uncomputed-hit")
    text = " ".join(ran.out.split())
    assert "but the hashes stay. A block that the step was to fill can be found" in text
    assert "SC-15 A step reads of a KV block only what was computed" in text
    assert ran.out.startswith("uncomputed-hit was seen in vLLM 0.10.2 to 0.33.0; ")
    replayed = "  cacheproof replay faults/uncomputed-hit/trace.jsonl --target vllm@0.33.0"
    assert ran.out.splitlines()[-1] == replayed


def test_a_fault_without_a_trace_is_explained_by_its_page(run: Run) -> None:
    text = told(run, "explain", "repeated-item")
    assert "what happens A prompt may show one item twice" in text
    assert "mended in 0.29.0" in text


def test_without_a_name_all_faults_are_listed(run: Run) -> None:
    text = told(run, "explain")
    assert [name for name in FAULTS if name not in text] == []


def test_an_unknown_fault_is_refused_with_those_called_alike(run: Run) -> None:
    refusal = run("explain", "uncomputed-hits").refusal
    assert refusal.startswith("uncomputed-hits: no listed fault; did you mean uncomputed-hit")
    assert "did you mean" not in run("explain", "§").refusal


@pytest.mark.parametrize("rule", RULES)
def test_every_contract_is_told(rule: str, run: Run) -> None:
    (known,) = (one for one in contracts() if one.id == rule)
    text = told(run, "contracts", rule)
    parts = (known.title, known.source, known.expression.text, known.predicate.__name__)
    assert [one for one in parts if " ".join(one.split()) not in text] == []


def test_a_contract_is_told_with_its_lanes_and_the_faults_that_break_it(run: Run) -> None:
    text = told(run, "contracts", "ec-6")
    assert "EC-6: No entry that a request still needs is evicted" in text
    assert "asked of vLLM 0.10.2 and newer" in text
    assert "stands in spec/encoder_cache.py, line " in text
    assert "manager lanes encoder cache and reused media ids" in text
    assert "planted faults evicts_what_is_held" in text
    assert "EncoderCacheManager holds, unbounded; any caller" in text
    assert "repeated-item An item that a request shows twice" in text
    assert "phantom-entry" not in text


def test_a_contract_that_nobody_proves_does_not_say_that_it_is_proved(run: Run) -> None:
    assert "what is proved of it" not in told(run, "contracts", "SC-9")


def test_a_contract_that_no_known_fault_breaks_says_so(run: Run) -> None:
    unbroken = {rule for rule in RULES if not any(rule in f.contracts for f in _faults())}
    text = told(run, "contracts", min(unbroken))
    assert "no known fault breaks it" in text
    assert "known faults that break it" not in text


def _faults() -> list[KnownFault]:
    return [*listed_by_name().values()]


def test_an_unknown_contract_is_refused_with_those_called_alike(run: Run) -> None:
    assert run("contracts", "EC-66").refusal.startswith("EC-66: no contract; did you mean EC-6")


def test_both_are_told_as_json(run: Run) -> None:
    fault = json.loads(run("explain", "uncomputed-hit", "--json", "-").out)
    assert fault["contracts"].keys() == {"SC-15", "EQ-1"}
    assert fault["facts"]["avoid by"].startswith("--scheduling-policy fcfs")
    rule = json.loads(run("contracts", "EC-6", "--json", "-").out)
    assert rule["faults"].keys() == {"repeated-item", "same-step"}


@pytest.mark.parametrize("words", [("explain", "orphan-load"), ("contracts", "LV-1")])
def test_nothing_but_a_command_is_wider_than_80_columns_on_a_terminal(
    words: tuple[str, str], run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    verdict, *lines = run(*words).out.splitlines()
    wide = [line for line in lines if len(line) > 80 and line != verdict]
    assert [line for line in wide if not line.startswith("  cacheproof ")] == []
    assert not any("…" in line for line in lines)
