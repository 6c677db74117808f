"""What is compared of a server's answer, and each way in which it can be wrong."""

from dataclasses import replace

import pytest

from cacheproof.differential.judges.outputs import BOUND, NEARLY
from cacheproof.differential.serving.answers import (
    AnswerTally,
    Failure,
    RunnerAnswer,
    Segment,
    ServerAnswer,
)
from cacheproof.differential.serving.traffic import AskedPrompt, ServedTask

Told = tuple[int, float | None, float | None]
TRUTH = RunnerAnswer([3, 3, 11], [(20, -1.0, 0.5), (21, -2.0, 0.5), (2, -0.5, 0.5)], "stop")
WHOLE = AskedPrompt(0, 8, (), (), 0, None, leaves_after=None, at_once=True)
SHORT = replace(WHOLE, max_tokens=2)
LEAVES = replace(WHOLE, leaves_after=1, at_once=False)
TOKENS: list[Told] = [(20, -1.0, 0.5), (21, -2.0, 0.5), (2, -0.5, 0.5)]


TIMES = RunnerAnswer([10, 512], [(20, -1.0, 0.5), (530, -2.0, 0.5), (531, -4.0, 0.5), (21, -0.5,
0.5),
                          (2, -0.5, 0.5)], "stop")  # fmt: skip
WORDS: list[Told] = [(token_id, None, None) for token_id, *_ in TIMES.tokens[:4]]
STREAM = replace(WHOLE, at_once=False)


def text(tokens: list[Told] = WORDS) -> ServerAnswer:
    """A transcript at once."""
    return ServerAnswer(tokens, shows="words", tells_end=False)


def stream(
    tokens: list[Told] = WORDS, ended: str = "stop", lengths: tuple[int, int] = (2, 5)
) -> ServerAnswer:
    """A transcript, word by word."""
    return ServerAnswer(tokens, shows="words", lengths=lengths, ended=ended)


def cut(tokens: list[Told] = WORDS[:2], mean: float = -1.0) -> ServerAnswer:
    """A transcript that is cut at its times: the prompt's, a word and a time."""
    return ServerAnswer(tokens, shows="cut", segments=[Segment(0, 2, 3, mean)], tells_end=False)


def told(
    request: AskedPrompt,
    answer: ServerAnswer,
    truth: RunnerAnswer = TRUTH,
    task: ServedTask = "generate",
) -> list[str]:
    """What is said to differ."""
    tally = AnswerTally(task=task)
    tally.add(0, request, answer, [truth])
    return tally.differences


@pytest.mark.parametrize(
    ("request_", "answer"),
    [
        (WHOLE, ServerAnswer(TOKENS, [3, 3, 11], "stop")),
        (SHORT, ServerAnswer(TOKENS[:2], [3, 3, 11], "length")),
        (LEAVES, ServerAnswer(TOKENS[:1], None, None)),
        (LEAVES, ServerAnswer([], None, None)),
        (WHOLE, ServerAnswer([(20, -1.0 + BOUND / 2, 0.5), *TOKENS[1:]], None, "stop")),
    ],
)
def test_right_answers(request_: AskedPrompt, answer: ServerAnswer) -> None:
    assert told(request_, answer) == []


@pytest.mark.parametrize(
    ("request_", "answer", "words"),
    [
        (
            WHOLE,
            ServerAnswer([(22, -1.0, 0.5), *TOKENS[1:]], None, "stop"),
            "token 0 is 22, expected 20",
        ),
        (WHOLE, ServerAnswer([*TOKENS[:2], (9, -0.5, 0.5)], None, "stop"), "token 2 is 9"),
        (
            WHOLE,
            ServerAnswer([(20, -1.1, 0.5), *TOKENS[1:]], None, "stop"),
            "log probability of token 0",
        ),
        (
            WHOLE,
            ServerAnswer([(20, -1.0, 0.6), *TOKENS[1:]], None, "stop"),
            "log probability of token 0",
        ),
        (WHOLE, ServerAnswer(TOKENS, [3, 3, 12], "stop"), "the prompt is"),
        (WHOLE, ServerAnswer(TOKENS[:2], None, "length"), "2 tokens, length; expected 3, stop"),
        (SHORT, ServerAnswer(TOKENS, None, "stop"), "3 tokens, stop; expected 2, length"),
        (WHOLE, ServerAnswer(TOKENS, None, "length"), "3 tokens, length; expected 3, stop"),
        (WHOLE, ServerAnswer(TOKENS[:1], None, None), "no word of why it ended"),
        (WHOLE, ServerAnswer(failed="400: no"), "failed: 400: no"),
        (WHOLE, ServerAnswer([(20, float("nan"), 0.5), *TOKENS[1:]], None, "stop"), "nan apart"),
        (LEAVES, ServerAnswer([(22, -1.0, 0.5)], None, None), "token 0 is 22"),
    ],
)
def test_wrong_answers(request_: AskedPrompt, answer: ServerAnswer, words: str) -> None:
    (said,) = told(request_, answer)
    assert words in said


@pytest.mark.parametrize(
    ("request_", "answer"),
    [
        (WHOLE, text()),
        (SHORT, text(WORDS[:2])),
        (STREAM, stream()),
        (replace(STREAM, max_tokens=3), stream(WORDS[:3], "length", (2, 3))),
        (LEAVES, ServerAnswer(WORDS[:1], shows="words")),
        (WHOLE, cut()),
        (SHORT, cut()),  # a time at the end is one of two
        (replace(WHOLE, max_tokens=1), ServerAnswer([], shows="cut", tells_end=False)),
    ],
)
def test_right_transcripts(request_: AskedPrompt, answer: ServerAnswer) -> None:
    assert told(request_, answer, TIMES) == []


@pytest.mark.parametrize(
    ("request_", "answer", "words"),
    [
        (WHOLE, text([*WORDS[:3], (22, None, None)]), "token 3 is 22, expected 21"),
        (WHOLE, text(WORDS[:3]), "3 tokens, None; expected 4, None"),
        (SHORT, text(), "4 tokens, None; expected 2, None"),
        (STREAM, stream(ended="length"), "4 tokens, length; expected 4, stop"),
        (STREAM, stream(lengths=(3, 5)), "have (3, 5) tokens, expected (2, 5)"),
        (STREAM, stream(lengths=(2, 4)), "have (2, 4) tokens, expected (2, 5)"),
        (STREAM, ServerAnswer(WORDS, shows="words"), "no word of why it ended"),
        (LEAVES, ServerAnswer([(22, None, None)], shows="words"), "token 0 is 22"),
        (WHOLE, cut([(20, None, None), (532, None, None)]), "token 1 is 532, expected 530"),
        (WHOLE, cut(WORDS[:3]), "3 tokens, None; expected 2, None"),
        (WHOLE, cut([]), "0 tokens, None; expected 2, None"),
        (WHOLE, cut(mean=-1.1), "the log probability of tokens 0 to 2 is 0.1 apart"),
    ],
)
def test_wrong_transcripts(request_: AskedPrompt, answer: ServerAnswer, words: str) -> None:
    (said,) = told(request_, answer, TIMES)
    assert words in said


def test_what_rounding_hides_from_a_transcript_is_not_compared() -> None:
    *shown, last, end = TIMES.tokens
    near = RunnerAnswer(TIMES.prompt, [*shown, last, (end[0], end[1], NEARLY / 2)], "stop")
    assert told(WHOLE, text([*WORDS, (30, None, None)]), near) == []
    assert told(WHOLE, cut(WORDS[:3]), near) == []
    assert told(WHOLE, text(WORDS[:3]), near) != []


def test_what_rounding_may_have_decided_ends_the_comparison_of_that_answer() -> None:
    near = RunnerAnswer(TRUTH.prompt, [(20, -1.0, NEARLY / 2), *TRUTH.tokens[1:]], "stop")
    assert (
        told(WHOLE, ServerAnswer([(29, -1.0, NEARLY / 2), (30, -9.0, 3.0)], None, "length"), near)
        == []
    )
    assert told(WHOLE, ServerAnswer([(29, -1.0, 0.5)], None, "length")) != []


def test_who_was_asked_again_is_counted_and_compared() -> None:
    tally = AnswerTally()
    once = ServerAnswer(TOKENS, None, "stop", times_asked_again=1, failures=[Failure(4.0, 5.0)])
    tally.add(0, WHOLE, once, [TRUTH])
    tally.add(1, WHOLE, ServerAnswer(TOKENS[:1], None, "length", times_asked_again=1), [TRUTH])
    twice = ServerAnswer(
        failed="500: no", times_asked_again=1, failures=[Failure(5.0, 6.0), Failure(6.5, 7.0)]
    )
    tally.add(2, WHOLE, twice, [TRUTH])
    assert tally.counts["failed once, answered when asked again"] == 2
    assert (len(tally.differences), len(tally.failures)) == (1, 1)
    assert tally.failed_at == [5.0, 6.0, 7.0]


def ended_then(begun: float, ended: float) -> bool:
    """Whether an operator has ended what was under way."""
    return (begun, ended) == (3.0, 4.0)


@pytest.mark.parametrize(
    ("tokens", "ended", "counted"),
    [
        (TOKENS[:1], "abort", "ended by an operator"),
        ([], None, "ended by an operator, without a word"),
    ],
)
def test_what_an_operator_cuts_short_is_compared_as_far_as_it_came(
    tokens: list[Told], ended: str | None, counted: str
) -> None:
    answer = ServerAnswer(tokens, None, ended, asked_at=3.0, ended_at=4.0)
    tally = AnswerTally(is_ended=ended_then)
    tally.add(0, WHOLE, answer, [TRUTH])
    assert (tally.differences, tally.counts[counted]) == ([], 1)
    assert told(WHOLE, answer) != []
    wrong = replace(answer, tokens=[(99, -1.0, 0.5)])
    later = replace(answer, ended_at=4.5)
    for number, one in enumerate((wrong, later), start=1):
        tally.add(number, WHOLE, one, [TRUTH])
        assert len(tally.differences) == number


def test_a_transcript_that_an_operator_cuts_short_says_no_word_of_it() -> None:
    tally = AnswerTally(is_ended=ended_then)
    times = {"asked_at": 3.0, "ended_at": 4.0}
    for tokens in (WORDS, WORDS[:2], []):
        tally.add(0, WHOLE, replace(text(tokens), **times), [TIMES])
    assert (tally.counts["whole answers"], tally.differences) == (1, [])
    assert tally.counts["ended by an operator, without a word"] == 2
    tally.add(0, WHOLE, text(WORDS[:2]), [TIMES])
    assert len(tally.differences) == 1


def test_only_what_is_cut_at_times_fails_of_an_operator() -> None:
    tally = AnswerTally(is_ended=ended_then)
    failures = [Failure(3.0, 4.0), Failure(5.0, 6.0)]
    tally.add(0, WHOLE, replace(cut(WORDS[:4]), failures=failures), [TIMES])
    assert (tally.failed_at, tally.counts["ended by an operator, with an error"]) == ([6.0], 1)
    tally.add(1, WHOLE, replace(text(), failures=failures), [TIMES])
    assert tally.failed_at == [6.0, 4.0, 6.0]


EMBEDDED = RunnerAnswer([3, 3, 11], (), "length", (0.6, -0.8))


def embedding(*values: float, tokens: int = 3) -> ServerAnswer:
    return ServerAnswer(vector=values, lengths=(tokens, 0))


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (embedding(0.6, -0.8), ""),
        (embedding(0.6, -0.8 + BOUND / 2), ""),
        (embedding(0.6, -0.8 + 2 * BOUND), "the embedding is 0.002 apart"),
        (embedding(0.6, float("nan")), "the embedding is nan apart"),
        (embedding(0.6), "embedding of 1 numbers, expected 2"),
        (embedding(0.6, -0.8, tokens=2), "expected 3"),
        (ServerAnswer(), "no embedding"),
    ],
)
def test_the_embedding_of_a_prompt_is_compared(answer: ServerAnswer, said: str) -> None:
    differences = told(WHOLE, answer, EMBEDDED, "embed")
    assert len(differences) == bool(said)
    assert all(said in one for one in differences)


def test_of_a_score_the_lengths_are_not_told() -> None:
    tally = AnswerTally(task="score")
    tally.add(0, WHOLE, ServerAnswer(vector=[0.5]), [EMBEDDED._replace(vector=(0.5,))])
    tally.add(1, WHOLE, ServerAnswer(vector=[0.4]), [EMBEDDED._replace(vector=(0.5,))])
    assert (tally.compared, tally.counts["of which equal"]) == (2, 1)
    assert "the score is 0.1 apart" in tally.differences[0]


def test_who_leaves_before_an_embedding_comes_is_counted() -> None:
    tally = AnswerTally(task="embed")
    tally.add(0, LEAVES, ServerAnswer(), [EMBEDDED])
    assert (tally.counts["clients that left"], tally.compared) == (1, 0)


OTHER = RunnerAnswer([3, 3, 11], [(20, -1.5, 0.5), (23, -2.0, 0.5), (2, -0.5, 0.5)], "stop")
"""By other weights, with the same first token."""


@pytest.mark.parametrize("truths", [[TRUTH, OTHER], [OTHER, TRUTH]])
def test_while_weights_are_loaded_an_answer_is_one_or_the_other(truths: list[RunnerAnswer]) -> None:
    tally = AnswerTally()
    for number, one in enumerate((TRUTH, OTHER)):
        tally.add(number, WHOLE, ServerAnswer([*one.tokens], None, "stop"), truths)
        tally.add(number, LEAVES, ServerAnswer([*one.tokens[:1]], None, None), truths)
    assert tally.differences == []
    assert tally.counts["tokens"] == tally.counts["of which equal"] == 8
    assert tally.apart == 0
    mixed = ServerAnswer([TOKENS[0], *OTHER.tokens[1:]], None, "stop")
    tally.add(4, WHOLE, mixed, truths)
    (said,) = tally.differences
    assert said.startswith("request 4, question 0: ")


def test_what_differs_while_a_listed_fault_shows_is_told_by_it() -> None:
    tally = AnswerTally(cause=lambda begun, ended: "another-sound" if begun < 3 else "")
    wrong = ServerAnswer([(99, -1.0, 0.5)], None, "stop")
    for number, (answer, begun) in enumerate([(wrong, 2.0), (wrong, 4.0)]):
        tally.add(number, WHOLE, replace(answer, asked_at=begun), [TRUTH])
    tally.add(2, WHOLE, ServerAnswer(TOKENS, None, "stop", asked_at=2.0), [TRUTH])
    tally.add(3, WHOLE, ServerAnswer(failed="400: no", asked_at=2.0), [TRUTH])
    said = "token 0 is 99, expected 20, which leads by 0.5"
    assert tally.known == {"another-sound": [f"request 0, question 0: {said}"]}
    assert tally.differences == [
        f"request 1, question 0: {said}",
        "request 3, question 0: failed: 400: no",
    ]
