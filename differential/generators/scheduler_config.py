"""The configurations of the scheduler's traces: what is scarce, and what few deployments use."""

from random import Random

import msgspec

from cacheproof.differential.traces.base import Group
from cacheproof.differential.traces.scheduler import SchedulerConfig
from cacheproof.reference.semantics import Semantics


def draw_tight(
    random: Random, capacity: int, largest: int, async_scheduling: bool
) -> SchedulerConfig:
    """Encoder cache, token budget and KV blocks that are all scarce, in whatever proportion."""
    block_size = random.choice((8, 16))
    max_model_len = random.choice((48, 64, 96))
    chunked = random.random() < 0.9
    return SchedulerConfig(
        capacity=capacity,
        compute_budget=random.choice((largest, capacity, 2 * capacity)),
        max_num_batched_tokens=random.choice((8, 12, 16, 24, 48)) if chunked else max_model_len,
        max_num_seqs=random.choice((2, 3, 4, 6)),
        max_model_len=max_model_len,
        block_size=block_size,
        num_blocks=1 + -(-max_model_len // block_size) + random.choice((0, 0, 1, 2, 4, 16)),
        prefix_caching=random.random() < 0.6,
        chunked_prefill=chunked,
        disable_chunked_mm_input=random.random() < 0.15,
        policy="priority" if random.random() < 0.3 else "fcfs",
        long_prefill_token_threshold=random.choice((0, 0, 0, 4, 8)),
        async_scheduling=async_scheduling,
    )


def draw_squeezed(
    random: Random, capacity: int, largest: int, async_scheduling: bool
) -> SchedulerConfig:
    """KV blocks for hardly one long prompt, and several prompts prefilled side by side."""
    block_size = random.choice((8, 16))
    return SchedulerConfig(
        capacity=capacity,
        compute_budget=2 * capacity,
        max_num_batched_tokens=random.choice((16, 24, 48)),
        max_num_seqs=random.choice((2, 3, 4)),
        max_model_len=96,
        block_size=block_size,
        num_blocks=1 + 96 // block_size + random.choice((0, 0, 1)),
        prefix_caching=random.random() < 0.3,
        policy="priority" if random.random() < 0.8 else "fcfs",
        long_prefill_token_threshold=random.choice((4, 8, 12)),
        async_scheduling=async_scheduling,
    )


def with_transfers(config: SchedulerConfig, offered: Semantics) -> SchedulerConfig:
    """The configuration with a connector to encoder outputs, and urgent requests that are admitted
    without room for all of them.

    No adapters and fewer drafts than the threshold: where these go wrong is searched elsewhere.
    """
    return msgspec.structs.replace(
        config,
        ec_connector=True,
        policy="priority",
        max_num_seqs=4,
        scheduler_reserve_full_isl=not offered.kv_cache.admits_whole_sequences,
        max_loras=0,
        num_speculative_tokens=min(config.num_speculative_tokens, 3),
    )


def with_kv_transfers(
    config: SchedulerConfig, random: Random, offered: Semantics
) -> SchedulerConfig:
    """The configuration with a connector to KV, and one time in four the one to encoder outputs as
    well."""
    ends = random.random() < 0.4 and offered.scheduler.ends_failed_loads
    both = random.random() < 0.25 and offered.scheduler.loads_encodings
    return msgspec.structs.replace(
        config, kv_connector="fail" if ends else "recompute", ec_connector=both
    )


def with_extras(
    config: SchedulerConfig, random: Random, offered: Semantics, runner: Random
) -> SchedulerConfig:
    """The configuration with options that few deployments use, as far as the release has them.
    `runner` draws the model runner of the workers, either as likely."""
    adaptive = random.random() < 0.15 and offered.scheduler.spares_lone_prefill
    active = random.randint(1, config.max_num_seqs) if random.random() < 0.1 else None
    reserve = random.random() < 0.8 or not offered.kv_cache.admits_whole_sequences
    watermark = random.choice((0.1, 0.2)) if random.random() < 0.1 else 0.0
    interval = random.choice((2, 3, 5)) if random.random() < 0.1 else 1
    max_loras = random.choice((1, 2)) if random.random() < 0.12 else 0
    speculates = random.random() < 0.3 and offered.scheduler.takes_drafts
    drafts = random.choice((1, 2, 3, 4)) if speculates else 0
    with_drafter = drafts > 0 and random.random() < 0.6
    random.random()  # once drew the runner; what is drawn after it stays as it was
    return msgspec.structs.replace(
        config,
        long_prefill_token_threshold_adaptive=adaptive,
        max_num_active_seqs=active if offered.scheduler.spares_lone_prefill else None,
        scheduler_reserve_full_isl=reserve,
        watermark=watermark if offered.kv_cache.keeps_watermark else 0.0,
        prefill_schedule_interval=interval if offered.scheduler.holds_prefills else 1,
        max_loras=max_loras,
        num_speculative_tokens=drafts,
        drafter=with_drafter,
        v2_model_runner=runner.random() < 0.5 and offered.scheduler.has_second_runner,
    )


def with_groups(config: SchedulerConfig, random: Random, offered: Semantics) -> SchedulerConfig:
    """The configuration with groups of windows or chunks, mostly beside full attention, and KV
    blocks for all of them.

    The drafter is taken out where the release has none beside such groups.
    """
    size = config.block_size
    full = Group("full", size)
    windows = [Group("sliding_window", size, random.randint(2, 3 * size)) for _ in range(2)]
    chunks = Group("chunked_local", size, size * random.randint(1, 4))
    groups = random.choice(
        (
            (full, windows[0]),
            (full, windows[0]),
            (windows[0], full),
            (full, windows[0], windows[0]),
            (full, *windows),
            (windows[0],),
            (full, chunks),
            (chunks,),
        )
    )
    has_windows = any(group.kind == "sliding_window" for group in groups)
    drops = not (config.prefix_caching and offered.block_keys.looks_ahead)
    has_no_drafter = chunks in groups or (
        config.prefix_caching and drops and not offered.kv_cache.caches_block_to_drop
    )
    slack = config.num_blocks - -(-config.max_model_len // size)
    drafter = config.drafter and not has_no_drafter
    retains = offered.kv_cache.retains_sparsely and has_windows and not (drafter and drops)
    return msgspec.structs.replace(
        config,
        groups=groups,
        prefix_cache_retention_interval=(
            random.choice((None, 0, 0, size, 2 * size)) if retains else None
        ),
        num_blocks=slack + sum(most_blocks(group, config) for group in groups),
        drafter=drafter,
    )


def most_blocks(group: Group, config: SchedulerConfig) -> int:
    """Most blocks that a request holds in a group at a time, as releases count them."""
    in_flight = config.max_num_batched_tokens * (2 if config.async_scheduling else 1)
    tokens = config.max_model_len
    if group.kind != "full":
        tokens = min(tokens, group.window + in_flight)
    return -(-tokens // group.block_size) + int(group.kind == "sliding_window")
