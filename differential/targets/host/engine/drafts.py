"""Drafts in a real engine: who proposes them, and which they replace."""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from ..protocol import Event, Illegal, Json
from ..vllm_objects.scheduler import SchedulerOutput
from ..vllm_objects.worker import GPUModelRunner, SamplerOutput, SecondBatch, SecondModelRunner
from .limits import LOOKUP_LONGEST, NUM_DRAFTS
from .recalled_drafts import RecalledDrafts

if TYPE_CHECKING:
    from torch import Tensor


def speculative_config(drafter: Path | None) -> dict[str, Json]:
    """An engine's speculative configuration: the drafter in that directory, or prompt lookup."""
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
    """Replaces the drafts of an engine's drafter, which runs as it is."""

    def __init__(self, vocab_size: int) -> None:
        self._vocab_size = vocab_size
        self.begin()

    def begin(self) -> None:
        """A trace begins."""
        self._recalled = RecalledDrafts(NUM_DRAFTS, self._vocab_size)
        self._prompts: dict[str, tuple[tuple[int, ...], tuple[str, ...]]] = {}
        """Request -> its prompt's tokens, and the identifiers of its items."""
        self._decoded: dict[str, list[int]] = {}

    def tell(self, output: SchedulerOutput) -> None:
        """Take from a step that is to be executed what its requests have decoded: the scheduler may
        have dropped the last token sampled before a preemption, or in a session's turn."""
        for new in output.scheduled_new_reqs:
            given = new.prompt_embeds
            prompt = new.prompt_token_ids or (0,) * (0 if given is None else len(given))
            self._prompts[new.req_id] = (
                tuple(prompt),
                tuple(one.identifier for one in new.mm_features),
            )
            # Told anew, what it has decoded stands behind its prompt, or has become part of it.
            known = getattr(new, "prefill_token_ids", None) or prompt
            self._decoded[new.req_id] = list(known)[len(prompt) :]
        for request_id, token_ids in output.scheduled_cached_reqs.all_token_ids.items():
            self._decoded[request_id] = list(token_ids)[len(self._prompts[request_id][0]) :]

    def _sampled(self, request_id: str, token_ids: Iterable[int]) -> None:
        decoded = self._decoded.setdefault(request_id, [])
        decoded += [token for token in token_ids if 0 <= token < self._vocab_size]

    def _replace(self, drafts: "Tensor", names: Sequence[str]) -> "Tensor":
        """Drafts of requests, [requests, drafts], with others in their place."""
        told = {name: (self._prompts[name], self._decoded.get(name, [])) for name in names}
        recalled = self._recalled.propose(told)
        for row, name in zip(drafts, names, strict=True):
            row.copy_(row.new_tensor(recalled[name][: len(row)]))
        return drafts


class DraftsOfFirstRunner(ReplacedDrafts):
    """Drafts in the first model runner."""

    def __init__(self, runner: GPUModelRunner) -> None:
        super().__init__(runner.input_batch.vocab_size)
        sample, propose = runner._sample, runner.propose_draft_token_ids

        def sampled(*arguments: object) -> SamplerOutput:
            output = sample(*arguments)
            batch = runner.input_batch
            discarded = runner.discard_request_mask.np[: batch.num_reqs]
            rows = output.sampled_token_ids.tolist()
            for name, row, is_discarded in zip(batch.req_ids, rows, discarded, strict=True):
                if not is_discarded:
                    self._sampled(name, row)
            return output

        runner._sample = sampled
        runner.propose_draft_token_ids = lambda *arguments: self._replace(
            propose(*arguments), runner.input_batch.req_ids
        )


class DraftsOfSecondRunner(ReplacedDrafts):
    """Drafts in the second model runner."""

    def __init__(self, runner: SecondModelRunner) -> None:
        super().__init__(runner.vocab_size)
        sample, propose = runner.sample, runner.speculator.propose

        def sampled(
            hidden_states: "Tensor", batch: SecondBatch, *others: object
        ) -> tuple[SamplerOutput, "Tensor", "Tensor"]:
            output = sample(hidden_states, batch, *others)
            sampler_output, counts, _ = output
            rows = sampler_output.sampled_token_ids.tolist()
            for name, row, count in zip(batch.req_ids, rows, counts.tolist(), strict=True):
                self._sampled(name, row[:count])
            return output

        runner.sample = sampled
        runner.speculator.propose = lambda batch, *arguments, **settings: self._replace(
            propose(batch, *arguments, **settings), batch.req_ids
        )


def drafts_of(config: Event) -> str | None:
    """How drafts are made. Raises Illegal where no engine makes them so."""
    count = config["num_speculative_tokens"]
    if count not in (0, NUM_DRAFTS):
        raise Illegal(f"the engine was made for {NUM_DRAFTS} drafts")
    drafts = None if count == 0 else "drafter" if config["drafter"] else "lookup"
    if drafts == "lookup" and config["async_scheduling"]:
        raise Illegal("prompt lookup needs the tokens on the host")
    return drafts
