"""What a step tells the workers, in words that all releases and the reference share.

A field that a release lacks, or that is empty, is left out. So a field that only a refused feature
fills shows as soon as it is filled.
"""

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import fields, is_dataclass
from functools import cache
from itertools import chain
from operator import attrgetter
from typing import Any

from ..protocol import Json
from ..vllm_objects.requests import Request
from ..vllm_objects.scheduler import CachedRequestData, NewRequestData, SchedulerOutput

UNASKED: Mapping[str, tuple[str, ...]] = {
    "NewRequestData": (
        "pooling_params",
        "replay_start",
    ),
    "CachedRequestData": ("new_token_ids",),
    "SchedulerOutput": (
        "aux_output_connector_metadata",
        "block_table_updates",
        "ec_manager_metadata",
        "grammar_bitmask",
        "has_structured_output_requests",
        "kv_cache_block_copies",
        "new_block_ids_to_zero",
        "num_invalid_spec_tokens",
        "partial_tail_offloads",
        "pending_structured_output_tokens",
        "structured_output_request_ids",
    ),
}
"""Class -> fields that are filled only by features for which no trace can ask."""


def told(
    output: SchedulerOutput, requests: Mapping[str, Request], num_drafts: int
) -> dict[str, Json]:
    """All that a step tells the workers but tokens, progress and what connectors say; `requests`
    are the scheduler's, `num_drafts` is how many drafts the drafter is to propose."""
    new, cached = output.scheduled_new_reqs, output.scheduled_cached_reqs
    updates = getattr(output, "encoder_input_updates", {})
    return {
        "blocks": blocks_of(output),
        "encode": {
            request_id: list(inputs)
            for request_id, inputs in output.scheduled_encoder_inputs.items()
        },
        "notices": notices_of(output),
        "finished": sorted(output.finished_req_ids),
        "told_new": [one.req_id for one in new],
        "total": output.total_num_scheduled_tokens,
        **_said(
            common_prefix=list(getattr(output, "num_common_prefix_blocks", None) or ()),
            withheld=withheld_of(output, requests),
            told_resumed=sorted(resumed(cached)),
            told_preempted=sorted(getattr(output, "preempted_req_ids", None) or ()),
            prompts={one.req_id: _prompt_of(one) for one in new},
            embedded={one.req_id: places for one in new if (places := _embedded(one))},
            prefills={
                one.req_id: list(known)
                for one in new
                if (known := getattr(one, "prefill_token_ids", None)) is not None
            },
            all_tokens={
                request_id: list(token_ids)
                for request_id, token_ids in getattr(cached, "all_token_ids", {}).items()
            },
            decoded=_decoded(cached),
            sent_again=inputs_of(updates, is_sent=True),
            dropped=inputs_of(updates, is_sent=False),
            loads_within_step=getattr(output, "has_sync_kv_loads", False),
            skips_drafts=getattr(output, "skip_drafts", False),
            unasked=sorted(set(unasked(output, num_drafts))),
        ),
    }


def resumed(cached: CachedRequestData) -> Iterable[str]:
    """The requests known to the workers that come back after they lost their blocks."""
    if hasattr(cached, "resumed_req_ids"):
        return cached.resumed_req_ids
    pairs = zip(cached.req_ids, cached.resumed_from_preemption, strict=True)
    return [request_id for request_id, is_resumed in pairs if is_resumed]


def carrier_of(new: NewRequestData) -> str:
    """Name of the attribute in which a release gives its workers a request's items."""
    return next(name for name in ("mm_features", "mm_kwargs", "mm_inputs") if hasattr(new, name))


def _said(**fields: Json) -> dict[str, Json]:
    return {name: value for name, value in fields.items() if value}


def _embedded(new: NewRequestData) -> list[int]:
    """The places in a prompt that are embeddings."""
    embeds = getattr(new, "prompt_embeds", None)
    if embeds is None:
        return []
    if hasattr(embeds, "given"):  # the reference's
        return [at for at, is_given in enumerate(embeds.given) if is_given]
    are_tokens = getattr(new, "prompt_is_token_ids", None) or [False] * len(embeds)
    return [at for at, is_token in enumerate(are_tokens) if not is_token]


def _prompt_of(new: NewRequestData) -> list[int]:
    """The tokens of a prompt; 0 for each where all are embeddings."""
    return list(new.prompt_token_ids or [0] * len(_embedded(new)))


def _decoded(cached: CachedRequestData) -> dict[str, int]:
    """How many tokens each request has decoded by what workers are told, those in flight too."""
    if not getattr(cached, "num_output_tokens", ()):
        return {}
    return dict(zip(cached.req_ids, cached.num_output_tokens, strict=True))


def blocks_of(output: SchedulerOutput) -> dict[str, list[list[int]]]:
    """The KV blocks of which the workers are told, for each request that gets some."""
    cached = output.scheduled_cached_reqs
    new = ((one.req_id, one.block_ids) for one in output.scheduled_new_reqs)
    return {
        request_id: [list(group) for group in ids]
        for request_id, ids in chain(new, zip(cached.req_ids, cached.new_block_ids, strict=True))
        if ids is not None and any(ids)
    }


def withheld_of(output: SchedulerOutput, requests: Mapping[str, Request]) -> dict[str, list[int]]:
    """Items whose data is not sent, or not all of it, for each request that the workers get."""
    return {
        new.req_id: numbers
        for new in output.scheduled_new_reqs
        if (numbers := _withheld_inputs(new, requests[new.req_id]))
    }


def _withheld_inputs(new: NewRequestData, request: Request) -> list[int]:
    if hasattr(new, "withheld_inputs"):
        return list(new.withheld_inputs)
    carrier = carrier_of(new)
    pairs = enumerate(zip(getattr(new, carrier), getattr(request, carrier), strict=True))
    if carrier != "mm_features":
        return [number for number, (sent, _) in pairs if sent is None]
    # Models with several rotary axes are still given what positions follow from.
    return [number for number, (sent, own) in pairs if len(sent.data or ()) < len(own.data)]


def inputs_of(
    updates: Mapping[str, Mapping[int, object]], *, is_sent: bool
) -> dict[str, list[int]]:
    """Items whose data is sent again, or dropped, by request."""
    numbers = {
        request_id: sorted(number for number, data in of.items() if (data is not None) == is_sent)
        for request_id, of in updates.items()
    }
    return {request_id: of for request_id, of in numbers.items() if of}


def notices_of(output: SchedulerOutput) -> list[str]:
    if hasattr(output, "free_encoder_mm_hashes"):
        return list(output.free_encoder_mm_hashes)
    return [f"{request_id}#{input_id}" for request_id, input_id in output.free_encoder_input_ids]


def unasked(output: SchedulerOutput, num_drafts: int) -> list[str]:
    """Fields that are filled though no trace can ask for them."""
    found = [name for new in output.scheduled_new_reqs for name in _unasked(new, "NewRequestData")]
    found += _unasked(output.scheduled_cached_reqs, "CachedRequestData")
    found += _unasked(output, "SchedulerOutput")
    if getattr(output, "num_spec_tokens_to_schedule", num_drafts) != num_drafts:
        found.append("num_spec_tokens_to_schedule")
    return found


def _unasked(one: object, owner: str) -> list[str]:
    kind: Any = type(one)
    names, read = _fields_of(kind, owner)
    return [
        name
        # What is read has one value more, the class.
        for name, value in zip(names, read(one), strict=False)
        if value is not None and value is not False and _says_something(value)
    ]


@cache
def _fields_of(
    kind: type, owner: str
) -> tuple[tuple[str, ...], Callable[[object], Iterable[object]]]:
    """The UNASKED fields that a release's class has, and a function that reads them all; every
    field where the class does not say which it has."""
    if not is_dataclass(kind):
        every = UNASKED[owner]
        return every, lambda one: [getattr(one, name, None) for name in every]
    own = {field.name for field in fields(kind)}
    names = tuple(name for name in UNASKED[owner] if name in own or hasattr(kind, name))
    return names, attrgetter(*names, "__class__")  # a tuple, of one name too


def _says_something(value: Any) -> bool:
    if hasattr(value, "shape"):  # of an array, elements have no say
        return 0 not in value.shape
    # A field may have an entry for each request: all of them empty say nothing.
    is_collection = type(value) in (list, dict, set, tuple) or isinstance(value, Collection)
    return any(value) if is_collection else bool(value)
