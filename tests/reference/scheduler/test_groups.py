"""What the reference refuses of encoder-decoder models and of windows; `stories/` has what the
scheduler decides of them."""

import pytest

from cacheproof.reference.kv_cache_manager import KVCacheManager
from cacheproof.reference.kv_cache_specs import (
    FullAttentionSpec,
    KVCacheConfig,
    KVCacheGroupSpec,
    NotModelledCache,
    SlidingWindowSpec,
)
from cacheproof.reference.request import MultiModalFeature, PlaceholderRange
from cacheproof.reference.scheduled_request import ScheduledRequest
from cacheproof.reference.semantics import Semantics


def test_an_input_longer_than_the_prompt_belongs_to_a_decoder_alone() -> None:
    feature = MultiModalFeature("x", PlaceholderRange(0, 3), "x")
    ScheduledRequest("r", [1, 2], [feature], is_decoder=True)
    with pytest.raises(ValueError, match="reaches past the prompt"):
        ScheduledRequest("r", [1, 2], [feature])


@pytest.mark.parametrize("without", ["use_eagle", "retains_sparsely"])
def test_sparse_windows_are_not_modelled_everywhere(without: str) -> None:
    semantics = Semantics.ideal().changed(
        {"kv_cache.retains_sparsely": without != "retains_sparsely"}
    )
    groups = KVCacheGroupSpec(FullAttentionSpec(4)), KVCacheGroupSpec(SlidingWindowSpec(4, 5))
    sparse = KVCacheConfig(9, groups, prefix_cache_retention_interval=0)
    with pytest.raises(NotModelledCache, match="cached sparsely"):
        KVCacheManager(sparse, 64, 4, 4, use_eagle=without == "use_eagle", semantics=semantics)
