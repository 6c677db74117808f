"""Drafts that are often right: what a request of the same prompt has decoded before.

The weights of tiny models are random, so what a tiny drafter proposes is never right, and nothing
would ever be accepted. An engine's drafter runs as it is, and its proposals are replaced by these;
the runner proposes the same. They follow from the tokens that were decoded alone.
"""

import zlib
from collections.abc import Hashable, Mapping, Sequence

ONE_WRONG_IN = 4


class RecalledDrafts:
    """The answers of one trace, by prompt."""

    def __init__(self, num_drafts: int, vocabulary_size: int) -> None:
        self._num_drafts = num_drafts
        self._vocabulary_size = vocabulary_size
        self._answers: dict[Hashable, list[int]] = {}

    def propose(
        self, decoded: Mapping[str, tuple[Hashable, Sequence[int]]]
    ) -> dict[str, list[int]]:
        """Drafts for requests, given by prompt and decoded tokens: the wanted number for each, some
        of them wrong. The order of the requests does not matter."""
        for prompt, tokens in decoded.values():
            if len(tokens) > len(self._answers.get(prompt, ())):
                self._answers[prompt] = list(tokens)
        return {name: self._behind(*one) for name, one in decoded.items()}

    def _behind(self, prompt: Hashable, decoded: Sequence[int]) -> list[int]:
        known = self._answers.get(prompt, [])
        recalled = known[len(decoded) :] if known[: len(decoded)] == list(decoded) else []
        drafts = []
        for number in range(self._num_drafts):
            position = len(decoded) + number
            if number < len(recalled) and zlib.crc32(b"%d" % position) % ONE_WRONG_IN:
                drafts.append(recalled[number])
            else:
                guess = recalled[number] if number < len(recalled) else position
                drafts.append((guess + 1) % self._vocabulary_size)
        return drafts
