"""What a server answered, held against what the model says to each prompt alone."""

import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from cacheproof.differential.judges.outputs import BOUND, is_tie
from cacheproof.differential.serving.traffic import UNITS, AskedPrompt, ServedTask
from cacheproof.gpu_runner.whisper_words import FIRST_TIME_ID


class RunnerAnswer(NamedTuple):
    """What a model says to a prompt: its tokens, and those of the answer, each as [id, log
    probability, lead of the best over the second]; why that ends where it does; and the numbers
    that are asked for instead: the embedding of the prompt, of length 1, the probability of each
    class, or its score."""

    prompt: Sequence[int]
    tokens: Sequence[tuple[int, float, float]]
    ended: str
    vector: Sequence[float] = ()


class Segment(NamedTuple):
    """What a transcript says of its tokens from `begin` to before `end`: the sum of their log
    probabilities, divided by `divisor`."""

    begin: int
    end: int
    divisor: int
    mean: float


class Failure(NamedTuple):
    """When a request was asked that then failed, and when it did, in seconds since the epoch."""

    asked_at: float
    at: float


@dataclass
class ServerAnswer:
    """What came back.

    Attributes:
        tokens: each as [id, log probability, lead of the best over the second]; a transcript has
            no such numbers.
        prompt: the tokens of the prompt, as the server says they are.
        ended: why it ended, in the server's word; None where the client left before, or it failed.
        failed: what kept the client from an answer; empty for nothing.
        refused_alone: whether names alone were refused, and the media sent after them.
        times_asked_again: how often the server failed, and was asked once more.
        failures: each time that the server failed.
        asked_at, ended_at: when it was asked for, and when the client had all of it, in seconds
            since the epoch.
        shows: which tokens there are: all; all but the end; or those before the last cut between
            two times.
        segments: of a transcript that is cut at its times.
        lengths: tokens of the prompt, and of the answer with its end, as a stream of a transcript
            says in the end.
        tells_end: whether such an answer says why it ended.
        vector: the numbers that are asked for instead of an answer.
    """

    tokens: list[tuple[int, float | None, float | None]] = field(default_factory=list)
    prompt: list[int] | None = None
    ended: str | None = None
    failed: str = ""
    refused_alone: bool = False
    times_asked_again: int = 0
    failures: list[Failure] = field(default_factory=list)
    asked_at: float = field(default=0.0, compare=False)
    ended_at: float = field(default=0.0, compare=False)
    shows: Literal["all", "words", "cut"] = "all"
    segments: list[Segment] = field(default_factory=list)
    lengths: tuple[int, int] | None = None
    tells_end: bool = True
    vector: Sequence[float] | None = None


FAILED = "50"
"""What a server's failure begins with: 500 of a chat that lacks a medium, 503 of a score."""
ENDED_BY_OPERATOR = "abort"
"""Why an answer ended that an operator's pause or sleep has cut short, in the server's word. Of a
stream that had no token yet, releases up to 0.32.0 say nothing: it is done, and that is all."""


@dataclass
class AnswerTally:
    """What was compared, and what differs, in the order of the requests. Where an operator ends
    requests between two moments (`is_ended`), answers may be cut short: what came of them is
    compared. What is compared is what the `task` asks for. What differs of a listed fault has that
    fault's name for its `cause` between two moments, and stands in `known`.

    `failures` are requests that were asked again and failed each time, in words; `failed_at` says
    when a server failed, each time, in seconds since the epoch."""

    is_ended: Callable[[float, float], bool] = lambda begun, ended: False
    cause: Callable[[float, float], str] = lambda begun, ended: ""
    task: ServedTask = "generate"
    counts: Counter[str] = field(default_factory=Counter)
    apart: float = 0.0
    differences: list[str] = field(default_factory=list)
    known: dict[str, list[str]] = field(default_factory=dict)
    failures: list[str] = field(default_factory=list)
    failed_at: list[float] = field(default_factory=list)

    @property
    def compared(self) -> int:
        """How many tokens, or of what else is asked for, were compared."""
        return self.counts[f"{UNITS[self.task]}s"]

    def add(
        self,
        number: int,
        request: AskedPrompt,
        answer: ServerAnswer,
        truths: Sequence[RunnerAnswer],
    ) -> None:
        """Compare one answer, which is right where it is one of the `truths`: of all weights that
        the server had while it answered, one after the other. Else it is told by the last."""
        self.counts["requests"] += 1
        self.counts["names alone refused"] += answer.refused_alone
        is_failure = answer.failed.startswith(FAILED)
        for failure in answer.failures:
            # Releases fail to cut what has no token yet at its times.
            if answer.shows == "cut" and self.is_ended(*failure):
                self.counts["ended by an operator, with an error"] += 1
            else:
                self.failed_at.append(failure.at)
        if not answer.failed:
            self.counts["failed once, answered when asked again"] += answer.times_asked_again
        self.counts["media named alone"] += 0 if answer.refused_alone else sum(request.alone)
        for truth in truths:
            compared = AnswerTally(self.is_ended, task=self.task)
            said = compared._difference(request, answer, truth)
            if said is None:
                break
        self.counts += compared.counts
        self.apart = max(self.apart, compared.apart)
        if said is None:
            return
        cause = "" if answer.failed else self.cause(answer.asked_at, answer.ended_at)
        listed = self.known.setdefault(cause, []) if cause else self.differences
        differs = self.failures if is_failure else listed
        differs.append(f"request {number}, question {request.question}: {said}")

    def _difference(
        self, request: AskedPrompt, answer: ServerAnswer, truth: RunnerAnswer
    ) -> str | None:
        if answer.failed:
            return f"failed: {answer.failed}"
        if self.task != "generate":
            return self._vector_difference(request, answer, truth)
        if answer.prompt is not None and list(answer.prompt) != list(truth.prompt):
            return f"the prompt is {list(answer.prompt)}, expected {list(truth.prompt)}"
        expected = truth.tokens[: request.max_tokens]
        left = answer.ended is None and request.leaves_after is not None
        says_nothing = answer.ended is None and not (answer.tells_end and answer.tokens)
        cut_short = (
            not left
            and (answer.ended == ENDED_BY_OPERATOR or says_nothing)
            and self.is_ended(answer.asked_at, answer.ended_at)
        )
        if answer.ended is None and answer.tells_end and not left and not cut_short:
            return "no word of why it ended"
        ended = truth.ended if request.max_tokens >= len(truth.tokens) else "length"
        shown = expected[: _num_shown([token[0] for token in expected], ended, answer.shows)]
        for place, (mine, their) in enumerate(zip(shown, answer.tokens, strict=False)):
            self.counts["tokens"] += 1
            is_close = is_tie(mine) or is_tie(their)
            self.counts["that rounding may have decided"] += is_close
            if mine[0] != their[0]:
                if is_close:
                    self.counts["answers cut at such a token"] += 1
                    return None
                return (
                    f"token {place} is {their[0]}, expected {mine[0]}, which leads by {mine[2]:.2g}"
                )
            self.counts["of which equal"] += 1
            if their[1] is None or their[2] is None:
                continue
            apart = self._apart([mine[1] - their[1], mine[2] - their[2]])
            if not apart <= BOUND:
                return f"the log probability of token {place} is {apart:.2g} apart"
        if left:
            self.counts["clients that left"] += 1
            return None
        if cut_short and len(answer.tokens) < len(shown) + answer.tells_end:
            word = "" if answer.ended else ", without a word"
            self.counts[f"ended by an operator{word}"] += 1
            return None
        if len(answer.tokens) != len(shown) and answer.shows != "all":
            # What is not shown may have been decided by rounding, and decides how much is shown.
            hidden = expected[min(len(answer.tokens), len(shown)) :]
            if any(map(is_tie, hidden if answer.shows == "cut" else hidden[:1])):
                self.counts["answers cut at such a token"] += 1
                return None
        self.counts["whole answers"] += 1
        right = len(shown), ended if answer.tells_end else None
        if (len(answer.tokens), answer.ended) != right:
            return f"{len(answer.tokens)} tokens, {answer.ended}; expected {right[0]}, {right[1]}"
        lengths = len(truth.prompt), len(expected)
        if answer.lengths not in (None, lengths):
            return f"prompt and answer have {answer.lengths} tokens, expected {lengths}"
        return self._segments_difference(answer, expected)

    def _vector_difference(
        self, request: AskedPrompt, answer: ServerAnswer, truth: RunnerAnswer
    ) -> str | None:
        unit = UNITS[self.task]
        if answer.vector is None:
            if request.leaves_after is not None:
                self.counts["clients that left"] += 1
                return None
            return f"no {unit}"
        if answer.lengths not in (None, (len(truth.prompt), 0)):
            return f"prompt and answer have {answer.lengths} tokens, expected {len(truth.prompt)}"
        if len(answer.vector) != len(truth.vector):
            return f"{unit} of {len(answer.vector)} numbers, expected {len(truth.vector)}"
        self.counts[f"{unit}s"] += 1
        pairs = zip(answer.vector, truth.vector, strict=True)
        apart = self._apart([mine - their for mine, their in pairs])
        if not apart <= BOUND:
            return f"the {unit} is {apart:.2g} apart"
        self.counts["of which equal"] += 1
        return None

    def _apart(self, differences: Sequence[float]) -> float:
        """The largest of these, which counts among all; no number where one of them is none."""
        apart = [abs(one) for one in differences]
        if any(map(math.isnan, apart)):
            return math.nan
        self.apart = max(self.apart, *apart)
        return max(apart)

    def _segments_difference(
        self, answer: ServerAnswer, expected: Sequence[tuple[int, float, float]]
    ) -> str | None:
        for begin, end, divisor, mean in answer.segments:
            mine = sum(token[1] for token in expected[begin:end]) / divisor
            apart = self._apart([mean - mine])
            self.counts["segments"] += 1
            if not apart <= BOUND:
                return f"the log probability of tokens {begin} to {end} is {apart:.2g} apart"
        return None


def _num_shown(token_ids: Sequence[int], ended: str, shows: str) -> int:
    """How many of an answer's tokens it shows."""
    without_end = len(token_ids) - (ended == "stop")
    if shows != "cut":
        return len(token_ids) if shows == "all" else without_end
    # A server cuts between two times, and before the last token where that alone is a time; what
    # comes after the last cut it does not show. Before the answer stands a time of the prompt.
    is_time = [True, *(token_id >= FIRST_TIME_ID for token_id in token_ids[:without_end])]
    if is_time[-2:] == [False, True]:
        return without_end
    cuts = [place for place in range(1, len(is_time)) if is_time[place - 1] and is_time[place]]
    return max(cuts, default=1) - 1
