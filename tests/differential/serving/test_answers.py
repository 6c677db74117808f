"""What is compared of a server's answer, and each way in which it can be wrong."""

from dataclasses import replace

import pytest

from cacheproof.differential.judges.outputs import BOUND, NEARLY
from cacheproof.differential.serving.answers import Tally, Truth
from cacheproof.differential.serving.clients import Answer
from cacheproof.differential.serving.traffic import Ask

TRUTH = Truth([3, 3, 11], [(20, -1.0, 0.5), (21, -2.0, 0.5), (2, -0.5, 0.5)], "stop")
WHOLE = Ask(0, 8, (), (), 0, None, leaves_after=None, at_once=True)
SHORT = replace(WHOLE, max_tokens=2)
LEAVES = replace(WHOLE, leaves_after=1, at_once=False)
TOKENS = [(20, -1.0, 0.5), (21, -2.0, 0.5), (2, -0.5, 0.5)]


def told(request: Ask, answer: Answer, truth: Truth = TRUTH) -> list[str]:
    """What is said to differ."""
    tally = Tally()
    tally.add(0, request, answer, truth)
    return tally.differences


@pytest.mark.parametrize(
    ("request_", "answer"),
    [
        (WHOLE, Answer(TOKENS, [3, 3, 11], "stop")),
        (SHORT, Answer(TOKENS[:2], [3, 3, 11], "length")),
        (LEAVES, Answer(TOKENS[:1], None, None)),
        (LEAVES, Answer([], None, None)),
        (WHOLE, Answer([(20, -1.0 + BOUND / 2, 0.5), *TOKENS[1:]], None, "stop")),
    ],
)
def test_right_answers(request_: Ask, answer: Answer) -> None:
    assert told(request_, answer) == []


@pytest.mark.parametrize(
    ("request_", "answer", "words"),
    [
        (WHOLE, Answer([(22, -1.0, 0.5), *TOKENS[1:]], None, "stop"), "token 0 is 22, expected 20"),
        (WHOLE, Answer([*TOKENS[:2], (9, -0.5, 0.5)], None, "stop"), "token 2 is 9"),
        (WHOLE, Answer([(20, -1.1, 0.5), *TOKENS[1:]], None, "stop"), "log probability of token 0"),
        (WHOLE, Answer([(20, -1.0, 0.6), *TOKENS[1:]], None, "stop"), "log probability of token 0"),
        (WHOLE, Answer(TOKENS, [3, 3, 12], "stop"), "the prompt is"),
        (WHOLE, Answer(TOKENS[:2], None, "length"), "2 tokens, length; expected 3, stop"),
        (SHORT, Answer(TOKENS, None, "stop"), "3 tokens, stop; expected 2, length"),
        (WHOLE, Answer(TOKENS, None, "length"), "3 tokens, length; expected 3, stop"),
        (WHOLE, Answer(TOKENS[:1], None, None), "no word of why it ended"),
        (WHOLE, Answer(failed="500: no"), "failed: 500: no"),
        (LEAVES, Answer([(22, -1.0, 0.5)], None, None), "token 0 is 22"),
    ],
)
def test_wrong_answers(request_: Ask, answer: Answer, words: str) -> None:
    (said,) = told(request_, answer)
    assert words in said


def test_what_rounding_may_have_decided_ends_the_comparison_of_that_answer() -> None:
    near = Truth(TRUTH.prompt, [(20, -1.0, NEARLY / 2), *TRUTH.tokens[1:]], "stop")
    assert (
        told(WHOLE, Answer([(29, -1.0, NEARLY / 2), (30, -9.0, 3.0)], None, "length"), near) == []
    )
    assert told(WHOLE, Answer([(29, -1.0, 0.5)], None, "length")) != []


def test_who_was_asked_again_is_counted_and_compared() -> None:
    tally = Tally()
    tally.add(0, WHOLE, Answer(TOKENS, None, "stop", asked_again=True), TRUTH)
    tally.add(1, WHOLE, Answer(TOKENS[:1], None, "length", asked_again=True), TRUTH)
    tally.add(2, WHOLE, Answer(failed="500: no", asked_again=True), TRUTH)
    assert tally.counts["failed once, answered when asked again"] == 2
    assert len(tally.differences) == 2
