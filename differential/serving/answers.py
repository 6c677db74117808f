"""What a server answered, held against what the model says to each prompt alone."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from cacheproof.differential.judges.outputs import BOUND, is_tie
from cacheproof.differential.serving.clients import Answer
from cacheproof.differential.serving.traffic import Ask


class Truth(NamedTuple):
    """What a model says to a prompt: its tokens, and those of the answer, each as [id, log
    probability, lead of the best over the second]; why that ends where it does."""

    prompt: Sequence[int]
    tokens: Sequence[tuple[int, float, float]]
    ended: str


@dataclass
class Tally:
    """What was compared, and what differs, in the order of the requests."""

    counts: Counter[str] = field(default_factory=Counter)
    apart: float = 0.0
    differences: list[str] = field(default_factory=list)

    def add(self, number: int, request: Ask, answer: Answer, truth: Truth) -> None:
        """Compare one answer."""
        self.counts["requests"] += 1
        self.counts["names alone refused"] += answer.refused_alone
        self.counts["failed once, answered when asked again"] += (
            answer.asked_again and not answer.failed
        )
        self.counts["media named alone"] += 0 if answer.refused_alone else sum(request.alone)
        said = self._difference(request, answer, truth)
        if said is not None:
            self.differences.append(f"request {number}, question {request.question}: {said}")

    def _difference(self, request: Ask, answer: Answer, truth: Truth) -> str | None:
        if answer.failed:
            return f"failed: {answer.failed}"
        if answer.prompt is not None and list(answer.prompt) != list(truth.prompt):
            return f"the prompt is {list(answer.prompt)}, expected {list(truth.prompt)}"
        expected = truth.tokens[: request.max_tokens]
        left = answer.ended is None
        if left and request.leaves_after is None:
            return "no word of why it ended"
        for place, (mine, their) in enumerate(zip(expected, answer.tokens, strict=False)):
            self.counts["tokens"] += 1
            self.counts["that rounding may have decided"] += is_tie(mine) or is_tie(their)
            if mine[0] != their[0]:
                if is_tie(mine) or is_tie(their):
                    self.counts["answers cut at such a token"] += 1
                    return None
                return (
                    f"token {place} is {their[0]}, expected {mine[0]}, which leads by {mine[2]:.2g}"
                )
            self.counts["of which equal"] += 1
            apart = max(abs(mine[1] - their[1]), abs(mine[2] - their[2]))
            self.apart = max(self.apart, apart)
            if apart > BOUND:
                return f"the log probability of token {place} is {apart:.2g} apart"
        if left:
            self.counts["clients that left"] += 1
            return None
        self.counts["whole answers"] += 1
        ended = truth.ended if request.max_tokens >= len(truth.tokens) else "length"
        if (len(answer.tokens), answer.ended) != (len(expected), ended):
            return f"{len(answer.tokens)} tokens, {answer.ended}; expected {len(expected)}, {ended}"
        return None
