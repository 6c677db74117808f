"""Drafts in a real engine: who proposes them, and in the place of what."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from .engine_limits import LOOKUP_LONGEST, NUM_DRAFTS
from .protocol import Event, Illegal
from .recalled_drafts import RecalledDrafts


def speculative_config(drafter: Path | None) -> dict[str, Any]:
    """What an engine is asked for: the drafter in that directory, or prompt lookup."""
    if drafter is not None:
        return {
            "method": "eagle",
            "model": str(drafter),
            "num_speculative_tokens": NUM_DRAFTS,
        }
    return {
        "method": "ngram",
        "num_speculative_tokens": NUM_DRAFTS,
        "prompt_lookup_max": LOOKUP_LONGEST,
        "prompt_lookup_min": 1,
    }


class ReplacedDrafts:
    """Stands behind an engine's drafter: that runs as it is, and other drafts take the place of
    those that it proposes."""

    def __init__(self, runner: Any, identifiers: Callable[[str], tuple[str, ...]]) -> None:
        self._runner = runner
        self._identifiers = identifiers
        self._sample, self._propose = runner._sample, runner.propose_draft_token_ids
        runner._sample = self._sampled
        runner.propose_draft_token_ids = self._proposed
        self.begin()

    def begin(self) -> None:
        """A trace begins."""
        self._recalled = RecalledDrafts(NUM_DRAFTS, self._runner.input_batch.vocab_size)
        self._decoded: dict[str, list[int]] = {}

    def tell(self, output: Any) -> None:
        """A step is to be executed: of what was sampled before a preemption, the scheduler may have
        dropped the last."""
        cached = output.scheduled_cached_reqs
        for request_id, token_ids in cached.all_token_ids.items():
            prompt = self._runner.requests[request_id].num_prompt_tokens
            self._decoded[request_id] = list(token_ids)[prompt:]

    def _sampled(self, *arguments: Any) -> Any:
        sampled = self._sample(*arguments)
        batch = self._runner.input_batch
        discarded = self._runner.discard_request_mask.np[: batch.num_reqs]
        for request_id, row, is_discarded in zip(
            batch.req_ids, sampled.sampled_token_ids.tolist(), discarded, strict=True
        ):
            if not is_discarded:
                decoded = self._decoded.setdefault(request_id, [])
                decoded += [token for token in row if 0 <= token < batch.vocab_size]
        return sampled

    def _proposed(self, *arguments: Any) -> Any:
        drafts = self._propose(*arguments)
        names = self._runner.input_batch.req_ids
        recalled = self._recalled.propose({name: self._told(name) for name in names})
        for row, name in zip(drafts, names, strict=True):
            row.copy_(row.new_tensor(recalled[name]))
        return drafts

    def _told(self, name: str) -> tuple[Any, list[int]]:
        """A request's prompt with its items, and what it has decoded."""
        request = self._runner.requests[name]
        prompt = tuple(request.prompt_token_ids or (0,) * request.num_prompt_tokens)
        return (prompt, self._identifiers(name)), self._decoded.get(name, [])


def drafts_of(config: Event) -> str | None:
    """How drafts are made. Raises Illegal where no engine makes them so."""
    count = config["num_speculative_tokens"]
    if count not in (0, NUM_DRAFTS):
        raise Illegal(f"the engine was made for {NUM_DRAFTS} drafts")
    drafts = None if count == 0 else "drafter" if config["drafter"] else "lookup"
    if drafts == "lookup" and config["async_scheduling"]:
        raise Illegal("prompt lookup needs the tokens on the host")
    return drafts
