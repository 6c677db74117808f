"""Random methods: what is proved of one CPython does not break."""

from collections import Counter

import pytest
import z3

from cacheproof.proofs.symbolic.reading import containers
from cacheproof.proofs.symbolic.reading.execution import Run
from cacheproof.proofs.symbolic.values.state import Ref, State
from tests.proofs.symbolic.generator import Judge, generated, text_of

SEEDS = 6
FIRSTS = range(0, 420, SEEDS)


@pytest.fixture(scope="module")
def judge() -> Judge:
    return Judge()


def _misread(judge: Judge, seeds: range) -> list[str]:
    """The smallest text that is proved though CPython breaks it, of the first seed with one."""
    for seed in seeds:
        claim = generated(seed)
        if judge.misread(claim):
            return [text_of(judge.smaller(claim))]
    return []


@pytest.mark.sample(len(FIRSTS))
@pytest.mark.parametrize("first", FIRSTS)
def test_none_is_misread(judge: Judge, first: int) -> None:
    assert _misread(judge, range(first, first + SEEDS)) == []


def test_a_seed_makes_the_same_text_again() -> None:
    assert text_of(generated(7)) == text_of(generated(7)) != text_of(generated(8))


@pytest.mark.full
def test_texts_are_read_and_break_and_keep(judge: Judge) -> None:
    found = [one for seed in range(8) for one in judge.judged(generated(seed))]
    words = Counter(one.said.word for one in found)
    assert words.keys() <= {"proved", "refuted", "unknown"}
    assert words["proved"] >= 3
    assert sum(one.fails for one in found) >= 6


@pytest.mark.full
def test_a_wrong_reading_is_found_and_made_small(
    judge: Judge, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As the translator once read what leads into a container that goes."""

    def not_detached(run: Run, ref: Ref, key: z3.ExprRef | None, state: State) -> State:
        return state

    monkeypatch.setattr(containers, "detach", not_detached)
    (found,) = _misread(Judge(), range(30, 60))
    assert len(found.splitlines()) <= 6
