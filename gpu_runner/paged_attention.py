"""Attention over the KV store, as an attention function of transformers' own modules.

A step's tokens stand behind one another in one sequence, request after request. Every layer writes
the keys and values of all of them, and then each request attends over its own slots: those of one
token together, the others one by one. Layers under a sliding window have slots of their own, and
none is read that no token's window holds: its block may be another's by now.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import torch
from torch.nn.attention.bias import causal_lower_right
from torch.nn.functional import scaled_dot_product_attention
from torch.nn.utils.rnn import pad_sequence
from transformers import AttentionInterface

from cacheproof.gpu_runner.attention import attend
from cacheproof.gpu_runner.cross_attention import CrossStep
from cacheproof.gpu_runner.devices import upload
from cacheproof.gpu_runner.kv_store import PagedKVStore

NAME = "cacheproof_paged"
MOST_SLOTS = 4096
"""What a call copies out of the store for windows of one token stays this small."""


@dataclass(frozen=True)
class Window:
    """The tokens of one request in a step: [start, end) of the step's.

    `slots` are where the tokens are kept that some of them attend to: all so far, or as many before
    the first as its sliding window holds. The last are their own.
    """

    start: int
    end: int
    slots: torch.Tensor


@dataclass(frozen=True)
class Decoding:
    """Windows of one token that attend in one call: which tokens of the step they are, [windows];
    their slots, [windows, most tokens], padded; and which of those are their own, as a mask."""

    tokens: torch.Tensor
    slots: torch.Tensor
    mask: torch.Tensor


@dataclass(frozen=True)
class PagedGroup:
    """What the layers of a group share in a step: the slots that its tokens go to, of [tokens], the
    windows of its requests, and how many tokens a sliding window holds, if they have one."""

    slots: torch.Tensor
    windows: tuple[Window, ...]
    sliding_window: int | None = None

    @cached_property
    def longer(self) -> tuple[tuple[Window, torch.Tensor], ...]:
        """Windows of more than one token, and which slots each of these attends to."""
        longer = (window for window in self.windows if window.end - window.start > 1)
        return tuple((window, _mask(window, self.sliding_window)) for window in longer)

    @cached_property
    def decoding(self) -> tuple[Decoding, ...]:
        """Windows of one token, those of about one length together: half of the slots that a call
        reads are padding at most, and no call reads many more than MOST_SLOTS."""
        single = (window for window in self.windows if window.end - window.start == 1)
        batches: list[list[Window]] = []
        for window in sorted(single, key=_num_read):
            num_read = _num_read(window)
            if (
                not batches
                or num_read > 2 * _num_read(batches[-1][0])
                or num_read * len(batches[-1]) >= MOST_SLOTS
            ):
                batches.append([])
            batches[-1].append(window)
        return tuple(map(_together, batches))


@dataclass(frozen=True)
class PagedStep:
    """What the layers of a step share: the store, and what those of each of its groups do; `cross`
    where the decoder attends to an encoder's rows."""

    store: PagedKVStore
    groups: tuple[PagedGroup, ...]
    cross: CrossStep | None = None


def _num_read(window: Window) -> int:
    return len(window.slots)


def _mask(window: Window, sliding_window: int | None) -> torch.Tensor:
    """Which slots each token attends to, of [tokens, slots]."""
    tokens, num_read = window.end - window.start, _num_read(window)
    if sliding_window is None or num_read <= sliding_window:
        return causal_lower_right(tokens, num_read)
    everything = torch.ones(tokens, num_read, dtype=torch.bool, device=window.slots.device)
    before = num_read - tokens
    return everything.tril(before).triu(before + 1 - sliding_window)


def _together(windows: Sequence[Window]) -> Decoding:
    slots = pad_sequence([window.slots for window in windows], batch_first=True)
    lengths = upload(list(map(_num_read, windows)), slots.device)
    own = torch.arange(slots.shape[1], device=slots.device) < lengths[:, None]
    tokens = upload([window.start for window in windows], slots.device)
    return Decoding(tokens, slots, own[:, None, None])


def paged_attention(
    module: torch.nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    scaling: float,
    *,
    paged: PagedStep,
    **_: object,
) -> tuple[torch.Tensor, None]:
    """Attend from queries of [1, heads, tokens, head dim]; answers [1, tokens, heads, head dim]."""
    layer: int = module.layer_idx
    group = paged.groups[paged.store.group_of[layer]]
    paged.store.write(layer, group.slots, key[0].transpose(0, 1), value[0].transpose(0, 1))
    answers = torch.empty_like(query)
    for window, mask in group.longer:
        tokens = slice(window.start, window.end)
        answers[:, :, tokens] = attend(
            paged.store, layer, window.slots, query[:, :, tokens], scaling, mask
        )
    for decoding in group.decoding:
        answer = _decode(decoding, layer, query[0], paged.store, scaling)
        answers[0].index_copy_(1, decoding.tokens, answer)
    return answers.transpose(1, 2).contiguous(), None


def _decode(
    decoding: Decoding, layer: int, query: torch.Tensor, store: PagedKVStore, scaling: float
) -> torch.Tensor:
    """Answers of [heads, windows, head dim].

    The query heads that share a KV head stand where several tokens of one head would.
    """
    count, length = decoding.slots.shape
    keys, values = (
        one.unflatten(0, (count, length)).transpose(1, 2)
        for one in store.read(layer, decoding.slots.flatten())
    )
    of_token = query.index_select(1, decoding.tokens).transpose(0, 1)
    answer = scaled_dot_product_attention(
        of_token.unflatten(1, (keys.shape[1], -1)),
        keys,
        values,
        attn_mask=decoding.mask,
        scale=scaling,
    )
    return answer.flatten(1, 2).transpose(0, 1)


AttentionInterface.register(NAME, paged_attention)
