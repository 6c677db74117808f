"""The scopes of schedulers that are explored, each as small as what it is about allows.

What red twins break at once comes first.
"""

from functools import partial
from typing import Any

from cacheproof.differential.search.explore.scope import ANY, SchedulerScope
from cacheproof.differential.traces.base import Adapter, Item
from cacheproof.differential.traces.manager import Add, Reset
from cacheproof.differential.traces.scheduler import ResetPrefix, SchedulerConfig

BLOCK_SIZE = 2
_scope = partial(SchedulerScope, lane="scheduler", requests="ab", further=())


def _config(blocks: int = 3, tokens: int = 4, **further: Any) -> SchedulerConfig:
    """A scheduler with that many KV blocks, all of which one request may have, and tokens a
    step."""
    sizes = {
        "capacity": 2,
        "compute_budget": 2,
        "max_num_batched_tokens": tokens,
        "max_num_seqs": 2,
        "max_model_len": blocks * BLOCK_SIZE,
        "block_size": BLOCK_SIZE,
        "num_blocks": blocks + 1,
    }
    return SchedulerConfig(**{**sizes, **further})


def _asks(prompt: int, *items: Item, max_tokens: int = 1, **settings: Any) -> Add:
    """The arrival of a request."""
    return Add(ANY, prompt, items, max_tokens, **settings)


def _item(identifier: str, offset: int, *, size: int = 1) -> Item:
    return Item(identifier, offset, size)


SMALL = (
    _scope(
        "items in chunks",
        config=_config(tokens=2),
        arrivals=(_asks(5, _item("y", 1, size=2)),),
        further=(Reset(),),
    ),
    _scope(
        "whole items",
        config=_config(
            tokens=3,
            disable_chunked_mm_input=True,
            long_prefill_token_threshold=1,
            prefix_caching=False,
        ),
        arrivals=(
            _asks(3, _item("y", 0, size=2)),
            _asks(2),
            _asks(4, Item("long", 0, 4, None, (True, False, False, False))),
        ),
    ),
    _scope(
        "whole items and a drafter",
        config=_config(
            tokens=3,
            disable_chunked_mm_input=True,
            num_speculative_tokens=1,
            drafter=True,
            prefix_caching=False,
        ),
        arrivals=(_asks(4, _item("x", 0, size=2), _item("y", 2, size=2)),),
    ),
    _scope(
        "two steps in flight",
        config=_config(async_scheduling=True, blocks=2),
        arrivals=(_asks(2, _item("x", 1), max_tokens=2),),
    ),
    _scope(
        "order of eviction",
        config=_config(prefix_caching=False),
        arrivals=tuple(_asks(1, _item(identifier, 0)) for identifier in "vwx"),
    ),
    _scope(
        "adapters",
        requests="abc",
        config=_config(tokens=2, max_loras=1, prefix_caching=False),
        arrivals=(
            _asks(1, max_tokens=2, lora=Adapter("adapter-1", 1, "/adapters/1")),
            _asks(2, lora=Adapter("adapter-2", 2, "/adapters/2")),
        ),
    ),
    _scope(
        "prompts at once",
        requests="abc",
        config=_config(
            blocks=4, tokens=5, max_model_len=5, chunked_prefill=False, prefix_caching=False
        ),
        arrivals=(_asks(4, _item("x", 1)), _asks(2)),
    ),
    _scope(
        "a drafter",
        config=_config(
            tokens=3, long_prefill_token_threshold=1, num_speculative_tokens=1, drafter=True
        ),
        arrivals=(
            _asks(4, Item("z", 1, 2, None, (False, True))),
            _asks(1, max_tokens=2),
        ),
    ),
    _scope(
        "priority",
        config=_config(policy="priority"),
        arrivals=(_asks(2, _item("x", 1), max_tokens=3), _asks(3, priority=-1)),
    ),
    _scope(
        "preemption",
        config=_config(),
        arrivals=(_asks(2, _item("x", 1), max_tokens=3),),
        further=(ResetPrefix(True),),
    ),
    _scope(
        "a cached item",
        requests="a",
        config=_config(blocks=2),
        arrivals=(_asks(3, _item("x", 0)),),
        further=(Reset(), ResetPrefix(True)),
    ),
)
LARGE = (
    _scope(
        "items in chunks beside others",
        config=_config(tokens=2),
        arrivals=(_asks(4, _item("y", 1, size=2)), _asks(3, _item("x", 1))),
        further=(Reset(), ResetPrefix()),
    ),
    _scope(
        "preemption beside text",
        config=_config(),
        arrivals=(_asks(2, _item("x", 1), max_tokens=3), _asks(2, max_tokens=3)),
        further=(ResetPrefix(True),),
    ),
    _scope(
        "two steps in flight and preemption",
        transitions_max=150_000,
        config=_config(async_scheduling=True),
        arrivals=(_asks(2, _item("x", 1), max_tokens=3), _asks(3, _item("w", 0))),
        further=(ResetPrefix(True),),
    ),
    _scope(
        "preemption of three",
        requests="abc",
        config=_config(max_num_seqs=3, blocks=4),
        arrivals=(_asks(2, _item("x", 1), max_tokens=3),),
        further=(ResetPrefix(True),),
    ),
)
