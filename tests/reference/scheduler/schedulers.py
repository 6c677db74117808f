"""Schedulers of the reference that a test makes by hand."""

from typing import Any

from cacheproof.differential.targets.host.scheduler.encoder_transfers import EncoderTransfers
from cacheproof.differential.targets.host.scheduler.kv_transfers import KVTransfers
from cacheproof.reference.block_hash import get_request_block_hasher
from cacheproof.reference.encoder_cache import EncoderCacheManager
from cacheproof.reference.hash_functions import hash_function
from cacheproof.reference.kv_cache_manager import KVCacheManager
from cacheproof.reference.kv_cache_specs import FullAttentionSpec, KVCacheConfig, KVCacheGroupSpec
from cacheproof.reference.request import MultiModalFeature
from cacheproof.reference.scheduled_request import ScheduledRequest
from cacheproof.reference.scheduler.config import SchedulerConfig
from cacheproof.reference.scheduler.scheduler import Scheduler
from cacheproof.reference.semantics import Semantics

BLOCK_SIZE = 4
IDEAL = Semantics.ideal()
HASHER = get_request_block_hasher(
    BLOCK_SIZE, hash_function(IDEAL.block_keys), semantics=IDEAL.block_keys, seed="0"
)


def make(
    blocks: int = 33,
    capacity: int = 8,
    ec_connector: EncoderTransfers | None = None,
    kv_connector: KVTransfers | None = None,
    semantics: Semantics = IDEAL,
    **options: Any,
) -> Scheduler:
    """A scheduler over so many blocks, the null block among them."""
    config = SchedulerConfig(
        **{
            "max_num_batched_tokens": 16,
            "max_num_seqs": 4,
            "max_model_len": 64,
            "encoder_compute_budget": 8,
            **options,
        }
    )
    caches = KVCacheConfig(blocks, (KVCacheGroupSpec(FullAttentionSpec(BLOCK_SIZE)),))
    sizes = caches.scheduler_block_size, caches.hash_block_size
    return Scheduler(
        config,
        KVCacheManager(caches, 64, *sizes, semantics=semantics),
        EncoderCacheManager(capacity, semantics.encoder_cache),
        semantics=semantics,
        ec_connector=ec_connector,
        connector=kv_connector,
    )


def request(
    name: str,
    tokens: int,
    *items: MultiModalFeature,
    max_tokens: int = 1,
    stop_token_ids: tuple[int, ...] = (),
    resumable: bool = False,
) -> ScheduledRequest:
    """A request whose text is the beginning of everybody's."""
    return ScheduledRequest(
        name,
        list(range(tokens)),
        items,
        block_hasher=HASHER,
        resumable=resumable,
        stop_token_ids=stop_token_ids,
        max_tokens=max_tokens,
    )
