"""Whether a step tells the workers of tokens and KV blocks alone, by one read of all else."""

from collections.abc import Callable
from copy import copy
from dataclasses import fields, is_dataclass
from functools import cache
from operator import attrgetter
from typing import Any

from cacheproof.differential.targets.host.scheduler.told import UNASKED
from cacheproof.differential.targets.host.vllm_objects.scheduler import SchedulerOutput

_DRAFTS = "num_spec_tokens_to_schedule"
_FIELDS = {
    **UNASKED,
    "all": (
        "scheduled_new_reqs",
        "scheduled_encoder_inputs",
        "scheduled_spec_decode_tokens",
        "finished_req_ids",
        "encoder_input_updates",
        "free_encoder_mm_hashes",
        "free_encoder_input_ids",
        *UNASKED["SchedulerOutput"],
    ),
}
_COLLECTIONS = frozenset({list, dict, set, tuple})


def is_quiet(output: SchedulerOutput, drafts: int) -> bool:
    """Whether every field of a step but its tokens and blocks is empty; False where that takes a
    closer look. `drafts` is how many are to be proposed."""
    return _are_empty(output, "all") and _asks_no_tokens(output, drafts)


def asks_nothing(output: SchedulerOutput, drafts: int) -> bool:
    """Whether every field is empty that no trace can ask for; False where that takes a closer
    look."""
    return (
        _are_empty(output, "SchedulerOutput")
        and all(_are_empty(new, "NewRequestData") for new in output.scheduled_new_reqs)
        and _asks_no_tokens(output, drafts)
    )


class _Fields:
    """Those of the fields that a class has. `empty`: their values where all were empty."""

    def __init__(self, names: list[str]) -> None:
        # A reader of one name would give no tuple, and one of none would read nothing.
        self.read: Callable[[object], tuple[object, ...]] = attrgetter(
            "__class__", *names, "__class__"
        )
        self.empty: tuple[object, ...] | None = None


def _are_empty(one: object, which: str) -> bool:
    kind: Any = type(one)
    own = _fields_of(kind, which)
    if own is None:
        return False
    values = own.read(one)
    try:
        # What equals nothing is nothing.
        if values == own.empty:
            return True
    except (RuntimeError, TypeError, ValueError):  # an array is neither like it nor not
        return False
    _, *further, _ = values
    for value in further:
        # An array may be of zeros.
        if value is None or value is False or (type(value) in _COLLECTIONS and not value):
            continue
        return False
    # Copies, since whoever made the step may fill what it is made of.
    own.empty = (kind, *map(copy, further), kind)
    return True


def _asks_no_tokens(output: SchedulerOutput, drafts: int) -> bool:
    if getattr(output, _DRAFTS, drafts) != drafts:
        return False
    tokens = getattr(output.scheduled_cached_reqs, "new_token_ids", None)
    return not tokens or (type(tokens) is list and not any(tokens))


@cache
def _fields_of(kind: Any, which: str) -> _Fields | None:
    """None where the class does not say what it has."""
    if is_dataclass(kind):
        own = {field.name for field in fields(kind)}
    elif issubclass(kind, tuple):  # the reference's
        own = set()
    else:
        return None
    return _Fields([name for name in _FIELDS[which] if name in own or hasattr(kind, name)])
