"""The block pool of the reference is proved by its text, and changes of it are not."""

import ast
from collections.abc import Callable, Mapping
from dataclasses import replace

import pytest
import z3

from cacheproof.proofs.symbolic.checking.mutants import ClassMutant
from cacheproof.proofs.symbolic.checking.twins import refuted_of
from cacheproof.proofs.symbolic.deciding.play import Play
from cacheproof.proofs.symbolic.deciding.prove import RuleOutcome
from cacheproof.proofs.symbolic.deciding.subject import Subject
from cacheproof.proofs.symbolic.rules.readings import RuleLanguage
from cacheproof.proofs.symbolic.subjects.block_pool import PROVED, of_reference
from cacheproof.proofs.symbolic.values.language import NotTranslated
from cacheproof.proofs.symbolic.values.values import Universe
from tests.proofs.symbolic.negated import is_refuted_negated

SUBJECT = of_reference()


@pytest.fixture(scope="module")
def outcomes(prove_alone: Callable[[str], Mapping[str, RuleOutcome]]) -> Mapping[str, RuleOutcome]:
    return prove_alone("block_pool")


@pytest.mark.full
def test_every_contract_is_proved(outcomes: Mapping[str, RuleOutcome]) -> None:
    assert {one: outcomes[one].word for one in PROVED} == dict.fromkeys(PROVED, "proved")


@pytest.mark.full
def test_nothing_that_is_only_for_the_proof_fails(outcomes: Mapping[str, RuleOutcome]) -> None:
    assert {one for one, outcome in outcomes.items() if outcome.word != "proved"} == set()


@pytest.mark.full
def test_the_hardest_condition_takes_less_than_a_tenth_of_what_it_may(
    outcomes: Mapping[str, RuleOutcome],
) -> None:
    assert max(one.work_max for one in outcomes.values()) < 0.1


@pytest.mark.sample(4)
@pytest.mark.parametrize("contract", [one for one in PROVED if one != SUBJECT.safety])
def test_a_negated_contract_is_refuted(contract: str) -> None:
    assert is_refuted_negated(SUBJECT, contract)


def changed(subject: Subject, owner: str, method: str, old: str, new: str) -> ClassMutant:
    """A class in whose method one piece of text is another."""
    source = subject.sources[owner]
    text = ast.unparse(source.methods[method])
    assert text.count(old) == 1, text
    (definition,) = ast.parse(text.replace(old, new)).body
    assert isinstance(definition, ast.FunctionDef)
    methods = {**source.methods, method: definition}
    return ClassMutant(f"{method}: {new}", method, replace(source, methods=methods))


(BEGIN,) = [one for one in SUBJECT.operations if one.begins]


def test_all_but_the_first_are_read_and_not_each_second_of_them() -> None:
    mutant = changed(SUBJECT, "m", "__init__", "self.blocks[1:]", "self.blocks[1::2]")
    skipping = replace(SUBJECT, sources={**SUBJECT.sources, "m": mutant.source})
    assert Play(SUBJECT, BEGIN, RuleLanguage(Universe())).ends
    with pytest.raises(NotTranslated, match=r"no reading of 1::2"):
        Play(skipping, BEGIN, RuleLanguage(Universe()))


def test_numbers_that_are_written_there_are_divided_as_python_does() -> None:
    play = Play(SUBJECT, BEGIN, RuleLanguage(Universe()))
    state = replace(play.ends[0].after, names={"": ("m", "__init__")})
    ((_, found),) = play.machine.evaluated(ast.parse("7 // 2", mode="eval").body, state)
    assert z3.simplify(found).eq(z3.IntVal(7 // 2))


@pytest.mark.sample(6)
@pytest.mark.parametrize(
    ("owner", "method", "old", "new", "contract"),
    [
        ("q", "popleft_n", "last=False", "last=True", "BP-7"),
        ("q", "prepend_n", "reversed(blocks)", "blocks", "BP-5"),
        ("q", "prepend_n", "last=False", "last=True", "BP-5"),
        ("q", "remove", "del self._blocks[block.block_id]", "pass", "BP-1"),
        ("q", "append_n", "self._blocks[block.block_id] = block", "pass", "BP-1"),
        ("m", "touch", "block.ref_cnt += 1", "pass", "BP-1"),
        ("m", "touch", "block.ref_cnt += 1", "block.ref_cnt = 1", "BP-3"),
        ("m", "touch", "block.is_null", "False", "KV-3"),
        ("m", "free_blocks", "if block.ref_cnt == 0:", "if True:", "BP-1"),
        ("m", "free_blocks", "block.ref_cnt -= 1", "block.ref_cnt = 0", "BP-3"),
        ("m", "free_blocks", "if not block.keys", "if block.keys", "BP-5"),
        ("m", "get_new_blocks", "block.ref_cnt = 1", "block.ref_cnt = 2", "BP-3"),
        ("m", "get_new_blocks", "self._evict(block)", "pass", "BP-9"),
        ("m", "reset_prefix_cache", "self.num_gpu_blocks - 1", "self.num_gpu_blocks", "BP-8"),
        ("m", "reset_prefix_cache", "block.keys.clear()", "pass", "BP-2"),
        ("m", "evict_blocks", "self._evict(self.blocks[block_id])", "pass", "BP-9"),
        ("m", "_forget", "block.keys.clear()", "pass", "BP-2"),
        ("m", "_forget", "if not blocks:", "if False:", "BP-2"),
        ("m", "_forget", "if not blocks:", "if True:", "BP-2"),
        ("m", "_remember", "block.keys[key] = num_tokens", "pass", "BP-2"),
        ("m", "_forget", "if self.enable_kv_cache_events:", "if False:", "BP-4"),
        ("m", "_tell_stored", "if self.enable_kv_cache_events and tells:", "if False:", "BP-4"),
        ("m", "reset_prefix_cache", "if self.enable_kv_cache_events:", "if False:", "BP-4"),
        (
            "m",
            "take_events",
            "(self.kv_event_queue, [])",
            "(self.kv_event_queue, self.kv_event_queue)",
            "BP-4",
        ),
        ("m", "cache_partial_block", "self._remember(block, key, num_tokens)", "pass", "BP-4"),
        ("m", "__init__", "self.blocks[1:]", "self.blocks", "BP-1"),
    ],
)
def test_a_change_of_the_text_breaks_a_contract(
    owner: str, method: str, old: str, new: str, contract: str
) -> None:
    mutant = changed(SUBJECT, owner, method, old, new)
    assert refuted_of(SUBJECT, mutant, [contract], owner=owner) == [contract]
