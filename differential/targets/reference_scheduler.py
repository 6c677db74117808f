"""The reference scheduler, made for a `SchedulerSession` to drive."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from cacheproof.differential.targets.host.faults.manager import FAULTS
from cacheproof.differential.targets.host.faults.scheduler import SCHEDULER_FAULTS
from cacheproof.differential.targets.host.media_inputs import (
    ZEROS,
    row_names_of,
    token_ids_of,
)
from cacheproof.differential.targets.host.protocol import HASH_SEED, Event, Illegal
from cacheproof.differential.targets.host.scheduler.encoder_transfers import EncoderTransfers
from cacheproof.differential.targets.host.scheduler.kv_transfers import KVTransfers, TransferReport
from cacheproof.differential.targets.host.scheduler.recorder import Recorder
from cacheproof.differential.targets.host.scheduler.session import (
    STOP_TOKEN_ID,
    SchedulerKit,
    SchedulerSession,
)
from cacheproof.differential.targets.host.scheduler.settings import settings_of
from cacheproof.differential.targets.host.session import run_events
from cacheproof.differential.targets.reference_kv_cache import attention_spec
from cacheproof.differential.traces.engine import WITH_MROPE
from cacheproof.differential.traces.records import TraceResult, records_of
from cacheproof.differential.traces.trace import Trace
from cacheproof.reference.block_hash import get_request_block_hasher
from cacheproof.reference.encoder_cache import EncoderCacheManager
from cacheproof.reference.encoder_decoder_cache import EncoderDecoderCacheManager
from cacheproof.reference.hash_functions import hash_function
from cacheproof.reference.kv_cache_manager import KVCacheManager
from cacheproof.reference.kv_cache_specs import (
    FullAttentionSpec,
    KVCacheConfig,
    KVCacheGroupSpec,
    NotModelledCache,
)
from cacheproof.reference.request import (
    LoRARequest,
    MultiModalFeature,
    PlaceholderRange,
    PromptEmbeds,
)
from cacheproof.reference.scheduled_request import RequestStatus, ScheduledRequest
from cacheproof.reference.scheduler.config import SchedulerConfig
from cacheproof.reference.scheduler.output import KVConnectorOutput
from cacheproof.reference.scheduler.scheduler import Scheduler
from cacheproof.reference.scheduler.state import PauseState
from cacheproof.reference.semantics import Semantics

if TYPE_CHECKING:
    from cacheproof.differential.targets.reference import ReferenceTarget


def is_there(target: "ReferenceTarget") -> bool:
    """Whether that reference can run any trace of this depth."""
    return True


def runs(target: "ReferenceTarget", trace: Trace) -> bool:
    """Whether that reference models all that the trace asks for."""
    return _unknown_of(target, trace) is None


def run(target: "ReferenceTarget", trace: Trace, fault: str | None) -> TraceResult:
    """The reference's records. Raises Illegal as `session` does."""
    lines = target.lines(trace)
    driven = _session(lines, target.semantics, _unknown_of(target, trace), fault)
    records = run_events(driven, lines["events"])
    return TraceResult(records_of(records), capacity=driven.recorder.manager.cache_size)


def models(trace: Event, semantics: Semantics) -> bool:
    """Whether the reference models all that the trace asks for."""
    return _unknown(trace, semantics) is None


def _unknown_of(target: "ReferenceTarget", trace: Trace) -> str | None:
    """What that reference does not model of a trace; found once for each, since whoever asks often
    has it run next."""
    if target.unmodelled is None or target.unmodelled[0] is not trace:
        target.unmodelled = trace, _unknown(target.lines(trace), target.semantics)
    return target.unmodelled[1]


def _unknown(trace: Event, semantics: Semantics) -> str | None:
    """What a trace asks for that those semantics do not model; None where they model it all."""
    return next(_unknowns(trace, semantics), None)


def _unknowns(trace: Event, semantics: Semantics) -> Iterator[str]:
    config = trace["header"]["config"]
    kinds = {group["kind"] for group in config["groups"]}
    asked = {
        "groups of several block sizes": {group["block_size"] for group in config["groups"]}
        - {config["block_size"]},
        "groups other than one of full attention before 0.14.0": kinds - {"full"}
        and not semantics.kv_cache.tells_external_tokens,
        "a drafter beside chunked local attention": config["drafter"] and "chunked_local" in kinds,
        "speculative decoding": config["num_speculative_tokens"]
        and not semantics.scheduler.takes_drafts,
        "a watermark": config["watermark"] and not semantics.kv_cache.keeps_watermark,
        "admission of parts": not config["scheduler_reserve_full_isl"]
        and not semantics.kv_cache.admits_whole_sequences,
        "an adaptive threshold": config["long_prefill_token_threshold_adaptive"]
        and not semantics.scheduler.spares_lone_prefill,
        "a limit of active requests": config["max_num_active_seqs"]
        and not semantics.scheduler.spares_lone_prefill,
        "loads of encoder outputs": config["ec_connector"]
        and not semantics.scheduler.loads_encodings,
        "KV from elsewhere for several groups": config["kv_connector"] and config["groups"],
        "the end of requests whose load failed": config["kv_connector"] == "fail"
        and not semantics.scheduler.ends_failed_loads,
        "where a release puts what is left of videos": config.get("video_pruning_rate"),
        "a second model runner": config["v2_model_runner"]
        and not semantics.scheduler.has_second_runner,
        "a prefill interval": config["prefill_schedule_interval"] > 1
        and not semantics.scheduler.holds_prefills,
    }
    if _is_decoder(trace):
        asked |= {
            "loads for encoder-decoder models": config["ec_connector"],
            "sessions of encoder-decoder models": any(
                event["event"] == "add" and event["resumable"] for event in trace["events"]
            ),
        }
    if config["groups"] and (caches := _unknown_caches(config, semantics)):
        asked[caches] = True
    asked["sessions that outgrow the model"] = _outgrow(trace, semantics)
    yield from (name for name, is_asked in asked.items() if is_asked)
    for event in trace["events"]:
        match event["event"]:
            case "add":
                yield from _unknown_of_request(event, config, semantics)
            case "received":
                if event["failed"] is not None and not semantics.scheduler.retries_failed_loads:
                    yield "a load that fails"
            case "pause":
                if not semantics.scheduler.pauses:
                    yield "a pause"
            case "reset_prefix":
                if event["running"] and not semantics.scheduler.restarts_running:
                    yield "a restart of running requests"


def _unknown_of_request(event: Event, config: Event, semantics: Semantics) -> Iterator[str]:
    is_asynchronous = config["async_scheduling"]
    is_sent = event["sends"] and config["kv_connector"]
    if is_sent and is_asynchronous and not semantics.scheduler.keeps_until_loaded:
        yield "a request that is sent under asynchronous scheduling"
    if event["skip_reading"] and not semantics.scheduler.skips_reading:
        yield "a request that skips reading"
    if event["resumable"]:
        if not semantics.block_keys.continues_requests:
            yield "a resumable request"
        if is_asynchronous and not semantics.scheduler.marks_stale_output:
            yield "a resumable request under asynchronous scheduling"


def _is_decoder(trace: Event) -> bool:
    return bool(trace["header"]["manager"] == "encoder_decoder")


def _outgrow(trace: Event, semantics: Semantics) -> bool:
    """Whether a session may outgrow the model's length: a release computes such tokens, and has no
    KV slots for them."""
    lengths: dict[str, int] = {}
    turns: dict[str, int] = {}
    for event in trace["events"]:
        name, kind = event.get("request"), event["event"]
        if kind == "add" and event["resumable"]:
            turns[name] = event["max_tokens"]
            lengths[name] = event["prompt"] + turns[name]
        elif kind == "chunk" and name in lengths:
            # Otherwise the session decodes as many tokens in each turn as it arrived with.
            own = semantics.scheduler.takes_max_tokens_of_chunks
            lengths[name] += event["prompt"] + (event["max_tokens"] if own else turns[name])
    most: int = trace["header"]["config"]["max_model_len"]
    return any(length > most for length in lengths.values())


def session(trace: Event, semantics: Semantics, fault: str | None = None) -> SchedulerSession:
    """The session of a trace; a fault is planted in it, or in its encoder cache manager.

    Raises:
        Illegal: the reference does not model what the trace asks for.
    """
    return _session(trace, semantics, _unknown(trace, semantics), fault)


def _session(
    trace: Event, semantics: Semantics, unknown: str | None, fault: str | None
) -> SchedulerSession:
    if unknown is not None:
        raise Illegal(f"the reference does not model {unknown} at scheduler depth")
    kit = build(trace, semantics, fault)
    return SchedulerSession(kit, trace["header"]["config"])


def build(trace: Event, semantics: Semantics, fault: str | None = None) -> SchedulerKit:
    """The scheduler of a trace. Raises Illegal where no release takes the configuration either."""
    config = trace["header"]["config"]
    sizes = [_size(item, semantics) for event in trace["events"] for item in event.get("items", ())]
    largest = max(sizes, default=0)
    if config["disable_chunked_mm_input"]:
        _check_whole(largest, config["max_num_batched_tokens"])
    # A release enlarges cache and budget until the largest item fits.
    capacity = max(config["capacity"], largest)
    is_decoder = _is_decoder(trace)
    # Of requests: what the reference takes is its own, and what the host hands on a release's.
    manager: Any = (EncoderDecoderCacheManager if is_decoder else EncoderCacheManager)(
        capacity, semantics.encoder_cache
    )
    # Before the recorder wraps the methods: it logs calls of the faulty ones.
    if fault is not None and fault not in SCHEDULER_FAULTS:
        FAULTS[fault](manager)
    recorder = Recorder(manager, shows_sizes=semantics.encoder_cache.remembers_sizes)
    drafter = _has_drafter(config)
    scheduler: Any = Scheduler(
        SchedulerConfig(
            **settings_of(config),
            encoder_compute_budget=max(config["compute_budget"], largest),
            async_scheduling=config["async_scheduling"],
            long_prefill_token_threshold_adaptive=config["long_prefill_token_threshold_adaptive"],
            max_num_active_seqs=config["max_num_active_seqs"],
            scheduler_reserve_full_isl=config["scheduler_reserve_full_isl"],
            prefill_schedule_interval=config["prefill_schedule_interval"],
            max_loras=config["max_loras"],
            num_speculative_tokens=config["num_speculative_tokens"],
            drafter=drafter,
            is_encoder_decoder=is_decoder,
            num_cross_attention_tokens=largest,
            recomputes_failed_loads=config["kv_connector"] != "fail",
            v2_model_runner=config["v2_model_runner"],
            uses_mrope=config.get("model") in WITH_MROPE,
        ),
        _legal_kv_cache_manager(config, semantics),
        manager,
        semantics=semantics,
        **_connectors(config),
    )
    if fault in SCHEDULER_FAULTS:
        SCHEDULER_FAULTS[fault](scheduler)
    hasher = get_request_block_hasher(
        config["block_size"],
        hash_function(semantics.block_keys),
        _hash_lookahead(config, semantics),
        semantics=semantics.block_keys,
        seed=HASH_SEED,
    )

    def make_request(event: Event, arrival_time: float) -> ScheduledRequest:
        if config["disable_chunked_mm_input"] and semantics.scheduler.refuses_long_whole_items:
            longest = max((item["length"] for item in event["items"]), default=0)
            _check_whole(longest, config["max_num_batched_tokens"])
        return ScheduledRequest(
            event["request"],
            token_ids_of(event, config.get("model"), has_placeholders=not is_decoder),
            [_feature(item, semantics) for item in event["items"]],
            None if event["lora"] is None else LoRARequest(**event["lora"]),
            event["salt"],
            _prompt_embeds(event),
            block_hasher=hasher,
            zeroes_mixed=semantics.block_keys.zeroes_embed_positions,
            is_decoder=is_decoder,
            skip_reading_prefix_cache=event["skip_reading"],
            resumable=event["resumable"],
            stop_token_ids=(STOP_TOKEN_ID,),
            max_tokens=event["max_tokens"],
            priority=event["priority"],
            arrival_time=arrival_time,
        )

    def update(
        output: Any, sampled: dict[str, list[int]], report: TransferReport | None
    ) -> list[tuple[str, int, bool]]:
        return [
            (answer.request_id, len(answer.new_token_ids), answer.finish_reason is not None)
            for answer in scheduler.update_from_output(output, sampled, _transfers(report))
        ]

    return SchedulerKit(
        scheduler,
        recorder,
        make_request,
        update,
        lambda request: scheduler.finish_requests([request], RequestStatus.FINISHED_ABORTED),
        scheduler.update_draft_token_ids,
        lambda mode: scheduler.set_pause_state(PauseState(mode)),
        RequestStatus.PREEMPTED,
        semantics.encoder_cache.resets,
    )


def _connectors(config: Event) -> dict[str, Any]:
    """The host's connectors, which take requests of the reference's as they take a release's."""
    return {
        "ec_connector": EncoderTransfers() if config["ec_connector"] else None,
        "connector": None if config["kv_connector"] is None else KVTransfers(),
    }


_NO_TRANSFERS = KVConnectorOutput()


def _transfers(report: TransferReport | None) -> KVConnectorOutput:
    if report is None:
        return _NO_TRANSFERS
    return KVConnectorOutput(
        [report.received] if report.received else [],
        [report.sent] if report.sent else [],
        report.invalid,
    )


def _has_drafter(config: Event) -> bool:
    return bool(config["drafter"] and config["num_speculative_tokens"])


def _hash_lookahead(config: Event, semantics: Semantics) -> int:
    """Number of tokens after a block that its key covers, because a drafter reads them."""
    looks_ahead = (
        semantics.block_keys.looks_ahead and config["kv_connector"] is None
    )  # keys are shared with it
    return int(_has_drafter(config) and config["prefix_caching"] and looks_ahead)


def _kv_cache_manager(config: Event, semantics: Semantics) -> KVCacheManager:
    """The KV cache manager of a configuration. Raises NotModelledCache as it does."""
    groups = tuple(map(attention_spec, config["groups"]))
    is_asynchronous = config["async_scheduling"] and semantics.kv_cache.keeps_window_in_flight
    caches = KVCacheConfig(
        config["num_blocks"],
        tuple(map(KVCacheGroupSpec, groups or (FullAttentionSpec(config["block_size"]),))),
        config["prefix_cache_retention_interval"],
    )
    return KVCacheManager(
        caches,
        config["max_model_len"],
        caches.scheduler_block_size,
        caches.hash_block_size,
        # Two steps may be in flight, and their blocks are not given back.
        config["max_num_batched_tokens"] * (2 if is_asynchronous else 1),
        enable_caching=config["prefix_caching"],
        use_eagle=_has_drafter(config) and not _hash_lookahead(config, semantics),
        watermark=config["watermark"],
        semantics=semantics,
    )


def _legal_kv_cache_manager(config: Event, semantics: Semantics) -> KVCacheManager:
    """The KV cache manager of a configuration. Raises Illegal where no release takes it either."""
    try:
        return _kv_cache_manager(config, semantics)
    except ValueError as refusal:
        raise Illegal(str(refusal)) from refusal


def _unknown_caches(config: Event, semantics: Semantics) -> str | None:
    """What of the configuration's groups is not modelled; None where all is."""
    try:
        _kv_cache_manager(config, semantics)
    except NotModelledCache as reason:
        return str(reason)
    except ValueError:  # refused when the manager is made, as by a release
        return None
    return None


def _check_whole(tokens: int, tokens_max: int) -> None:
    if tokens > tokens_max:
        raise Illegal(f"an item of {tokens} tokens must be whole, and a step has {tokens_max}")


def _size(item: Event, semantics: Semantics) -> int:
    """Encoder cache slots of an item."""
    mask = item["is_embed"]
    return (
        item["length"] if mask is None or not semantics.encoder_cache.counts_embeds else sum(mask)
    )


def _prompt_embeds(event: Event) -> PromptEmbeds | None:
    """A prompt of embeddings, by the names of its rows: rows of one name are equal, and so are all
    rows of zeros, given or not."""
    if not event["embeds"]:
        return None
    names = row_names_of(event)
    rows = tuple(f"{name or ZEROS};".encode() for name in names)
    return PromptEmbeds(rows, tuple(name is not None for name in names))


def _feature(item: Event, semantics: Semantics) -> MultiModalFeature:
    mask = item["is_embed"] if semantics.encoder_cache.counts_embeds else None
    position = PlaceholderRange(
        item["offset"], item["length"], None if mask is None else tuple(mask)
    )
    identifier = item["identifier"]
    return MultiModalFeature(identifier, position, item["mm_hash"] or identifier)
