"""Operations of torch in the place of vLLM's compiled parts, as a CPU's worker calls them.

A release from its official source archive has no compiled parts. Its own CPU platform, attention
backend, worker and runners call a few operations of the library `_C` by name; these here replace
them. They compute in float32; our tests compare them with torch's own attention and with the
compiled operations of wheels. They refuse by name what they do not know.
"""

import importlib
import inspect
import re
from collections.abc import Callable, Iterable
from itertools import pairwise

import torch
from torch import Tensor

from ..protocol import Illegal

LIBRARY = "_C"
_LACKING = re.compile(r"'_OpNamespace' '_C' object has no attribute '(\w+)'")
_Operation = Callable[..., Tensor | None]
_OPERATIONS: dict[str, tuple[str, _Operation]] = {}
"""Name -> schema and function of an operation."""
_library: torch.library.Library | None = None
_SLOTS = "_compute_slot_mapping_kernel_impl"
_SIZE_OF_BLOCK = 6
"""Index of the size of a block among the arguments of the kernel of slots."""


def has_compiled_parts() -> bool:
    """Whether this interpreter's vLLM loads compiled parts for CPUs: those of a checkout may be for
    GPUs, and do not load where there is none."""
    importlib.import_module("vllm._custom_ops")  # which loads them, the release's own way
    return _library is None and hasattr(torch.ops._C, "cpu_attention_with_kv_cache")


def register_missing() -> None:
    """Register the operations where the release calls them, if it lacks them; does nothing a second
    time."""
    global _library
    if _library is None and not has_compiled_parts():
        _library = torch.library.Library(LIBRARY, "FRAGMENT")
        operations = dict(_OPERATIONS)
        if _says_both_sides():
            operations[cpu_attention_with_kv_cache.__name__] = _BETWEEN_SIDES
        for name, (schema, operation) in operations.items():
            _library.define(f"{name}{schema}")
            _library.impl(name, operation, "CompositeExplicitAutograd")
        _hand_over_size_of_block()


def _hand_over_size_of_block() -> None:
    """Pass the size of a block to the kernel of slots. A launch of 0.32.0 leaves it out: the
    arguments after it move up, and the first step ends the engine."""
    kernels = importlib.import_module("vllm.utils.cpu_triton_utils")
    own = getattr(kernels, _SLOTS, None)
    if own is None or "block_size" not in inspect.signature(own).parameters:
        return

    def mended(*launched: object, **named: object) -> None:
        before, behind = launched[:_SIZE_OF_BLOCK], launched[_SIZE_OF_BLOCK:]
        if behind and isinstance(behind[0], Tensor):
            slots, size = behind[:2]
            behind = size, slots
        own(*before, *behind, **named)

    setattr(kernels, _SLOTS, mended)


def _says_both_sides() -> bool:
    """Whether the release says how many tokens a window has before and after a query's own, as
    releases before 0.24.0 do."""
    caller = importlib.import_module("vllm._custom_ops").cpu_attention_with_kv_cache
    return "tuple" in str(inspect.signature(caller).parameters["sliding_window"].annotation)


def require(error: AttributeError) -> None:
    """Raises Illegal where the error is that an operation is missing."""
    lacking = _LACKING.search(str(error))
    if lacking is not None:
        raise Illegal(
            f"{lacking[1]} is not among the operations that stand in for vLLM's compiled parts; "
            "expected a model without it, or an engine with those parts"
        ) from error


def _operation(schema: str) -> Callable[[_Operation], _Operation]:
    """Registers a function as the operation of its name."""

    def keep(operation: _Operation) -> _Operation:
        _OPERATIONS[operation.__name__] = schema, operation
        return operation

    return keep


def _refuse(operation: str, **asked: object) -> None:
    """Raises Illegal where one of the values is true."""
    for name, value in asked.items():
        if value:
            raise Illegal(
                f"{operation} with {name}={value} is not among the operations that stand in for "
                "vLLM's compiled parts; expected a model without it, or an engine with those parts"
            )


@_operation("(int[] nodes) -> ()")
def init_cpu_memory_env(nodes: Iterable[int]) -> None:
    """Does nothing: memory is bound to no node."""


@_operation(
    "(int num_reqs, int num_heads, int num_kv_heads, int head_dim, Tensor seq_lens,"
    " ScalarType dtype, Tensor query_start_loc, bool causal, int window, str isa, bool split,"
    " Tensor? dynamic_causal=None, str kv_cache_dtype='auto') -> Tensor"
)
def get_scheduler_metadata(*asked: object, **more: object) -> Tensor:
    """An empty tensor: no plan is needed of how threads share the work."""
    return torch.empty(0, dtype=torch.int8)


@_operation(
    "(Tensor key, Tensor value, Tensor(a!) key_cache, Tensor(b!) value_cache, Tensor slots,"
    " str isa, float k_scale=1.0, float v_scale=1.0, str kv_cache_dtype='auto') -> ()"
)
def cpu_attn_reshape_and_cache(
    key: Tensor,
    value: Tensor,
    key_cache: Tensor,
    value_cache: Tensor,
    slots: Tensor,
    isa: str,
    k_scale: float = 1.0,
    v_scale: float = 1.0,
    kv_cache_dtype: str = "auto",
) -> None:
    """Writes rows of keys and values (tokens, heads, size) into blocks of a KV cache (blocks,
    heads, tokens of a block, size), each at its slot; a slot of -1 pads."""
    quantised = "" if kv_cache_dtype == "auto" else kv_cache_dtype
    _refuse("cpu_attn_reshape_and_cache", kv_cache_dtype=quantised)
    rows = (slots >= 0).nonzero().flatten()
    block_size = key_cache.shape[2]
    written = slots[rows].long()
    blocks, places = written // block_size, written % block_size
    key_cache[blocks, :, places] = key[rows]
    value_cache[blocks, :, places] = value[rows]


@_operation(
    "(Tensor query, Tensor key_cache, Tensor value_cache, Tensor(a!) output,"
    " Tensor query_start_loc, Tensor seq_lens, float scale, bool causal, Tensor? alibi_slopes,"
    " int window, Tensor block_table, float softcap, Tensor metadata, Tensor? s_aux,"
    " Tensor? dynamic_causal=None, float k_scale=1.0, float v_scale=1.0,"
    " str kv_cache_dtype='auto') -> ()"
)
def cpu_attention_with_kv_cache(
    query: Tensor,
    key_cache: Tensor,
    value_cache: Tensor,
    output: Tensor,
    query_start_loc: Tensor,
    seq_lens: Tensor,
    scale: float,
    causal: bool,
    alibi_slopes: Tensor | None,
    window: int,
    block_table: Tensor,
    softcap: float,
    metadata: Tensor,
    s_aux: Tensor | None,
    dynamic_causal: Tensor | None = None,
    k_scale: float = 1.0,
    v_scale: float = 1.0,
    kv_cache_dtype: str = "auto",
) -> None:
    """Attention over a paged KV cache: the last queries (tokens, heads, size) of each request over
    all its keys and values. Where it is `causal`, a query sees nothing later than itself, and of
    that the last `window` tokens; 0 or less is no window. A window to both sides is refused."""
    _refuse(
        "cpu_attention_with_kv_cache",
        alibi_slopes=alibi_slopes is not None,
        softcap=softcap,
        sinks=s_aux is not None,
        window=0 if causal else max(window, 0),
        dynamic_causal=dynamic_causal is not None,
        kv_cache_dtype="" if kv_cache_dtype == "auto" else kv_cache_dtype,
    )
    heads, size = query.shape[1:]
    answers = output.view(-1, heads, size)
    starts = query_start_loc.tolist()
    for number, length in enumerate(seq_lens.tolist()):
        start, end = starts[number], min(starts[number + 1], len(query))
        if end <= start or length == 0:
            continue
        keys, values = (
            _rows(cache, block_table[number], length).repeat_interleave(
                heads // cache.shape[1], dim=0
            )
            for cache in (key_cache, value_cache)
        )
        scores = query[start:end].transpose(0, 1).float() @ keys.transpose(1, 2) * scale
        here = torch.arange(length - (end - start), length)[:, None]
        there = torch.arange(length)
        if causal:
            scores.masked_fill_(there > here, -torch.inf)
        if window > 0:
            scores.masked_fill_(there <= here - window, -torch.inf)
        answer = scores.softmax(-1) @ values
        answers[start:end] = answer.transpose(0, 1).to(answers.dtype)


def attention_between_sides(
    query: Tensor,
    key_cache: Tensor,
    value_cache: Tensor,
    output: Tensor,
    query_start_loc: Tensor,
    seq_lens: Tensor,
    scale: float,
    causal: bool,
    alibi_slopes: Tensor | None,
    before: int,
    behind: int,
    block_table: Tensor,
    softcap: float,
    metadata: Tensor,
    s_aux: Tensor | None,
    k_scale: float = 1.0,
    v_scale: float = 1.0,
    kv_cache_dtype: str = "auto",
) -> None:
    """`cpu_attention_with_kv_cache` for windows with `before` tokens before a query's own, and
    `behind` after it; -1: all."""
    _refuse("cpu_attention_with_kv_cache", behind=max(behind, 0))
    cpu_attention_with_kv_cache(
        query,
        key_cache,
        value_cache,
        output,
        query_start_loc,
        seq_lens,
        scale,
        causal,
        alibi_slopes,
        before + 1,
        block_table,
        softcap,
        metadata,
        s_aux,
        kv_cache_dtype=kv_cache_dtype,
    )


_BETWEEN_SIDES = (
    "(Tensor query, Tensor key_cache, Tensor value_cache, Tensor(a!) output,"
    " Tensor query_start_loc, Tensor seq_lens, float scale, bool causal, Tensor? alibi_slopes,"
    " int before, int behind, Tensor block_table, float softcap, Tensor metadata, Tensor? s_aux,"
    " float k_scale=1.0, float v_scale=1.0, str kv_cache_dtype='auto') -> ()",
    attention_between_sides,
)


def _rows(cache: Tensor, blocks: Tensor, length: int) -> Tensor:
    """The first `length` rows of a request in a cache, [heads, length, size]."""
    heads, block_size, size = cache.shape[1:]
    used = blocks[: -(-length // block_size)].long()
    return cache[used].transpose(0, 1).reshape(heads, -1, size)[:, :length].float()


@_operation(
    "(Tensor positions, Tensor(a!) query, Tensor(b!)? key, int head_size, Tensor cos_sin_cache,"
    " bool is_neox, int rope_dim_offset=0, bool inverse=False) -> ()"
)
def rotary_embedding(
    positions: Tensor,
    query: Tensor,
    key: Tensor | None,
    head_size: int,
    cos_sin_cache: Tensor,
    is_neox: bool,
    rope_dim_offset: int = 0,
    inverse: bool = False,
) -> None:
    """Turn the first dimensions of each head by the angles of its position: halves against each
    other if `is_neox`, else neighbours."""
    _refuse("rotary_embedding", rope_dim_offset=rope_dim_offset, inverse=inverse)
    cosines, sines = cos_sin_cache[positions.flatten()][:, None].chunk(2, dim=-1)
    turned = 2 * cosines.shape[-1]
    if is_neox:
        first, second = slice(0, turned // 2), slice(turned // 2, turned)
    else:
        first, second = slice(0, turned, 2), slice(1, turned, 2)
    for rows in (query, key):
        if rows is not None:
            heads = rows.view(len(cosines), -1, head_size)
            one, two = heads[..., first].clone(), heads[..., second].clone()
            heads[..., first] = one * cosines - two * sines
            heads[..., second] = two * cosines + one * sines


@_operation("(Tensor(a!) out, Tensor input) -> ()")
def gelu_quick(out: Tensor, given: Tensor) -> None:
    """x * sigmoid(1.702 * x), by element."""
    out.copy_(given * torch.sigmoid(1.702 * given))


@_operation("(Tensor(a!) out, Tensor input) -> ()")
def silu_and_mul(out: Tensor, given: Tensor) -> None:
    """A gate: the first half of each row, through silu, times the second."""
    gate, rest = given.chunk(2, dim=-1)
    out.copy_(torch.nn.functional.silu(gate) * rest)


@_operation("(Tensor(a!) out, Tensor input, Tensor? weight, float epsilon) -> ()")
def rms_norm(out: Tensor, given: Tensor, weight: Tensor | None, epsilon: float) -> None:
    """Rows divided by the root of their mean square, times the weight."""
    rows = torch.nn.functional.rms_norm(given.float(), given.shape[-1:], eps=epsilon)
    out.copy_(rows if weight is None else rows.to(given.dtype) * weight)


@_operation("(Tensor(a!) input, Tensor(b!) residual, Tensor? weight, float epsilon) -> ()")
def fused_add_rms_norm(
    given: Tensor, residual: Tensor, weight: Tensor | None, epsilon: float
) -> None:
    """Add the input to the residual, and put the normed sum into the input."""
    residual.add_(given)
    rms_norm(given, residual, weight, epsilon)


@_operation(
    "(Tensor query_start_loc, Tensor positions, Tensor block_table, Tensor(a!) slots,"
    " int block_size) -> ()"
)
def compute_slot_mapping_kernel_impl(
    query_start_loc: Tensor,
    positions: Tensor,
    block_table: Tensor,
    slots: Tensor,
    block_size: int,
) -> None:
    """The KV slot of each token of a step, by its request's blocks; -1 after the last token."""
    starts = query_start_loc.tolist()
    for blocks, (start, end) in zip(block_table, pairwise(starts), strict=False):
        at = positions[start:end]
        slots[start:end] = blocks[at // block_size] * block_size + at % block_size
    slots[starts[-1] :] = -1


@_operation("(Tensor logits) -> Tensor")
def greedy_argmax(logits: Tensor) -> Tensor:
    """The likeliest token of each row."""
    return logits.argmax(-1)


@_operation("(Tensor(a!) output, Tensor input, Tensor cu_num_tokens, int replaced, int by) -> ()")
def expand_kernel_impl(
    output: Tensor, given: Tensor, cu_num_tokens: Tensor, replaced: int, by: int
) -> None:
    """Repeat each request's value for each of its tokens, with `by` in the place of `replaced`."""
    counts = cu_num_tokens.diff(prepend=cu_num_tokens.new_zeros(1))
    values = given.masked_fill(given == replaced, by)
    output[: int(counts.sum())] = values.repeat_interleave(counts)


@_operation(
    "(Tensor(a!) output, Tensor cu_num_drafts, Tensor drafts, Tensor likeliest, Tensor bonus,"
    " Tensor? is_greedy, int max_spec_len) -> ()"
)
def rejection_greedy_sample_kernel_impl(
    output: Tensor,
    cu_num_drafts: Tensor,
    drafts: Tensor,
    likeliest: Tensor,
    bonus: Tensor,
    is_greedy: Tensor | None,
    max_spec_len: int,
) -> None:
    """For each greedy request the model's likeliest tokens, up to and with the first that differs
    from its draft; the bonus token as well where none differs."""
    start = 0
    for number, end in enumerate(cu_num_drafts.tolist()):
        wanted = likeliest[start:end]
        wrong = (wanted != drafts[start:end]).nonzero().flatten()
        if is_greedy is None or is_greedy[number]:
            count = end - start if len(wrong) == 0 else int(wrong[0]) + 1
            output[number, :count] = wanted[:count]
            if len(wrong) == 0:
                output[number, count] = bonus.flatten()[number]
        start = end


@_operation(
    "(Tensor(a!) output, Tensor cu_num_drafts, Tensor drafts, Tensor? draft_probs,"
    " Tensor target_probs, Tensor inv_q, int vocab_size, bool no_draft_probs) -> ()"
)
def sample_recovered_tokens_kernel_impl(
    output: Tensor,
    cu_num_drafts: Tensor,
    drafts: Tensor,
    draft_probs: Tensor | None,
    target_probs: Tensor,
    inv_q: Tensor,
    vocab_size: int,
    no_draft_probs: bool,
) -> None:
    """For each draft the token that replaces it if it is rejected: drawn from the probabilities
    that the draft leaves over, by the noise of its request."""
    counts = cu_num_drafts.diff(prepend=cu_num_drafts.new_zeros(1))
    left = target_probs.clone()
    if no_draft_probs:
        left.scatter_(1, drafts[: len(left), None], 0.0)
    else:
        assert draft_probs is not None
        left = (left - draft_probs).clamp(min=0)
    noise = inv_q.repeat_interleave(counts, dim=0)
    output[: len(left)] = (left * noise).argmax(-1)


@_operation(
    "(Tensor(a!) output, Tensor cu_num_drafts, Tensor drafts, Tensor? draft_probs,"
    " Tensor target_probs, Tensor bonus, Tensor recovered, Tensor uniform, Tensor is_greedy,"
    " int max_spec_len, int vocab_size, bool no_draft_probs) -> ()"
)
def rejection_random_sample_kernel_impl(
    output: Tensor,
    cu_num_drafts: Tensor,
    drafts: Tensor,
    draft_probs: Tensor | None,
    target_probs: Tensor,
    bonus: Tensor,
    recovered: Tensor,
    uniform: Tensor,
    is_greedy: Tensor,
    max_spec_len: int,
    vocab_size: int,
    no_draft_probs: bool,
) -> None:
    """For each request that is not greedy its drafts, up to the first that is rejected, which its
    recovered token replaces; the bonus token as well where none is rejected."""
    start = 0
    for number, end in enumerate(cu_num_drafts.tolist()):
        if not is_greedy[number]:
            taken: list[int] = []
            for place in range(start, end):
                draft = int(drafts[place])
                drawn = 1.0 if no_draft_probs or draft_probs is None else draft_probs[place, draft]
                wanted = target_probs[place, draft]
                if draft < 0 or drawn <= 0 or wanted / drawn < uniform[place]:
                    taken.append(int(recovered[place]))
                    break
                taken.append(draft)
            else:
                taken.append(int(bonus.flatten()[number]))
            output[number, : len(taken)] = output.new_tensor(taken)
        start = end


@_operation(
    "(Tensor sampled, Tensor is_discarded, Tensor backup, Tensor(a!) next_tokens,"
    " Tensor(b!) num_valid, int vocab_size, int num_sampled, int num_requests) -> ()"
)
def eagle_prepare_next_token_padded_kernel_impl(
    sampled: Tensor,
    is_discarded: Tensor,
    backup: Tensor,
    next_tokens: Tensor,
    num_valid: Tensor,
    vocab_size: int,
    num_sampled: int,
    num_requests: int,
) -> None:
    """How many tokens of each request's row are valid, and the last of them; its `backup` for a
    request that is discarded or has none."""
    for number in range(num_requests):
        row = sampled[number, :num_sampled]
        valid = row[(row != -1) & (row < vocab_size)]
        if is_discarded[number]:
            valid = valid[:0]
        num_valid[number] = len(valid)
        next_tokens[number] = valid[-1] if len(valid) else backup[number]


@_operation(
    "(Tensor cu_num_drafts, Tensor num_valid, Tensor query_start_loc, Tensor(a!) to_sample,"
    " Tensor(b!) num_rejected, int num_requests) -> ()"
)
def eagle_prepare_inputs_padded_kernel_impl(
    cu_num_drafts: Tensor,
    num_valid: Tensor,
    query_start_loc: Tensor,
    to_sample: Tensor,
    num_rejected: Tensor,
    num_requests: int,
) -> None:
    """How many drafts of each request were rejected, none where it has none; and the place of the
    last token that is not."""
    num_drafts = cu_num_drafts[:num_requests].diff(prepend=cu_num_drafts.new_zeros(1))
    rejected = (num_drafts + 1 - num_valid[:num_requests]).where(num_drafts > 0, 0)
    num_rejected[:num_requests] = rejected
    to_sample[:num_requests] = query_start_loc[1 : num_requests + 1] - 1 - rejected


@_operation(
    "(Tensor positions, Tensor block_table, Tensor(a!) seq_lens, Tensor(b!) next_positions,"
    " Tensor(c!) slots, int block_size, int max_model_len, int pad) -> ()"
)
def eagle_step_slot_mapping_metadata_kernel_impl(
    positions: Tensor,
    block_table: Tensor,
    seq_lens: Tensor,
    next_positions: Tensor,
    slots: Tensor,
    block_size: int,
    max_model_len: int,
    pad: int,
) -> None:
    """The next position of each request, its slot, and the request's length with it. At the model's
    length it is position 0, with length 1 and no slot; places after the last request have no slot
    either."""
    count = len(positions)
    ends = positions + 1 >= max_model_len
    following = (positions + 1).where(~ends, 0)
    numbers = (following // block_size).clamp(max=block_table.shape[1] - 1)
    blocks = block_table[:count].gather(1, numbers[:, None].long())[:, 0]
    slots[:count] = (blocks * block_size + following % block_size).where(~ends, pad)
    slots[count:] = pad
    next_positions[:count] = following
    seq_lens[:count] = (seq_lens[:count] + 1).where(~ends, 1).clamp(max=max_model_len)
