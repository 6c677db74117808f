"""Whether a step tells the workers of tokens and KV blocks alone, by one read of all else."""

from collections.abc import Callable
from dataclasses import fields, is_dataclass
from functools import cache
from operator import attrgetter
from typing import Any

from cacheproof.differential.targets.host.scheduler.told import UNASKED
from cacheproof.differential.targets.host.vllm_objects.scheduler import SchedulerOutput

_DRAFTS = "num_spec_tokens_to_schedule"
_PARTS = (
    "scheduled_new_reqs",
    "scheduled_encoder_inputs",
    "scheduled_spec_decode_tokens",
    "finished_req_ids",
    "encoder_input_updates",
    "free_encoder_mm_hashes",
    "free_encoder_input_ids",
    *UNASKED["SchedulerOutput"],
)
_COLLECTIONS = frozenset({list, dict, set, tuple})


def is_quiet(output: SchedulerOutput, drafts: int) -> bool:
    """Whether every other field of a step is empty; False where that takes a closer look. `drafts`
    is how many are to be proposed."""
    reader = _reader_of(type(output))
    if reader is None:
        return False
    read, has_drafts = reader
    for value in read(output):
        # An array may be of zeros, and one of several elements is neither true nor false.
        if value is None or value is False or (type(value) in _COLLECTIONS and not value):
            continue
        return False
    if has_drafts and getattr(output, _DRAFTS) != drafts:
        return False
    tokens = getattr(output.scheduled_cached_reqs, "new_token_ids", None)
    return not tokens or (type(tokens) is list and not any(tokens))


@cache
def _reader_of(kind: Any) -> tuple[Callable[[object], tuple[object, ...]], bool] | None:
    """Reads the fields that a class of outputs has, and says whether it has drafts; None where the
    class does not say what it has."""
    if is_dataclass(kind):
        own = {field.name for field in fields(kind)}
    elif issubclass(kind, tuple):  # the reference's
        own = set()
    else:
        return None
    names = [name for name in _PARTS if name in own or hasattr(kind, name)]
    return attrgetter(*names), _DRAFTS in own or hasattr(kind, _DRAFTS)
