"""Block keys of the reference, at block hash depth."""

from typing import TYPE_CHECKING

import msgspec

from cacheproof.differential.targets.host.managers.block_hash import BlockHashSession
from cacheproof.differential.targets.host.protocol import HASH_SEED, Event, Illegal
from cacheproof.differential.targets.host.session import run_events
from cacheproof.differential.traces.block_hash import BlockHashConfig
from cacheproof.differential.traces.records import TraceResult, records_of
from cacheproof.differential.traces.trace import Trace
from cacheproof.reference.block_hash import (
    BlockHasher,
    continue_request,
    get_request_block_hasher,
)
from cacheproof.reference.hash_functions import hash_function
from cacheproof.reference.request import (
    LoRARequest,
    MultiModalFeature,
    PlaceholderRange,
    PromptEmbeds,
    TokenRequest,
)
from cacheproof.reference.semantics.block_keys import BlockKeySemantics

if TYPE_CHECKING:
    from cacheproof.differential.targets.reference import ReferenceTarget


def is_there(target: "ReferenceTarget") -> bool:
    """Whether that reference can run any trace of this depth."""
    return True


def runs(target: "ReferenceTarget", trace: Trace) -> bool:
    """Whether that reference can run the trace."""
    return True


def run(target: "ReferenceTarget", trace: Trace, fault: str | None) -> TraceResult:
    """The reference's records. Raises Illegal where its semantics lack what is asked for."""
    assert isinstance(trace.header.config, BlockHashConfig)
    session = _session(trace.header.config, target.semantics.block_keys, fault)
    events = [msgspec.to_builtins(one) for one in trace.events]
    return TraceResult(records_of(run_events(session, events)))


def _session(
    config: BlockHashConfig, semantics: BlockKeySemantics, fault: str | None
) -> BlockHashSession:
    if config.lookahead and not semantics.looks_ahead:
        raise Illegal("block hashes of this release do not look ahead")
    try:
        function = hash_function(semantics, config.algorithm)
    except ValueError as error:
        raise Illegal(str(error)) from error
    hasher = get_request_block_hasher(
        config.block_size, function, config.lookahead, semantics=semantics, seed=HASH_SEED
    )

    def go_on(request: TokenRequest, chunk: TokenRequest) -> None:
        if not semantics.continues_requests:
            raise Illegal("this release does not continue requests")
        kept = request.num_tokens - 1
        continue_request(request, chunk, config.block_size, kept=kept, semantics=semantics)

    def make(event: Event, block_hasher: BlockHasher | None) -> TokenRequest:
        features = [
            MultiModalFeature(
                item["identifier"], PlaceholderRange(item["offset"], item["length"]), ""
            )
            for item in event["items"]
        ]
        return TokenRequest(
            event["request"],
            event["tokens"],
            features,
            event["lora"] and LoRARequest(**event["lora"]),
            event["salt"],
            _prompt_embeds(event["embeds"]),
            block_hasher,
            zeroes_mixed=semantics.zeroes_embed_positions,
        )

    return BlockHashSession(make, go_on, hasher, config.block_size, fault)


def _prompt_embeds(rows: list[str | None] | None) -> PromptEmbeds | None:
    if rows is None:
        return None
    width = max(len(row) for row in rows if row is not None) // 2
    tensor = tuple(bytes(width) if row is None else bytes.fromhex(row) for row in rows)
    return PromptEmbeds(tensor, tuple(row is not None for row in rows))
