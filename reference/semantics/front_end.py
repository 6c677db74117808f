"""The caches before the scheduler: processed media, as a front end and an engine core keep them."""

from dataclasses import dataclass

from cacheproof.reference.semantics.change import NOT_FOUND, change


@dataclass(frozen=True)
class FrontEndSemantics:
    """The flags of a front end's cache of processed media and of its counterpart."""

    touches_all_first: bool = change(
        "0.12.0",
        "BaseMultiModalProcessor._merge_mm_kwargs",
        "all items of a request count as used before the first of them is looked up",
        thread="vLLM PR #28525",
    )
    touches_what_is_there: bool = change(
        "0.24.0",
        "LRUCache.touch",
        "a name that nothing is kept under is not counted as used",
        thread="vLLM PR #43595",
    )
    sends_names_alone: bool = change(
        "0.10.2",
        "MultiModalProcessorSenderCache.get_and_update_item",
        "an item that the engine core is taken to have is sent without its data, which the front "
        "end does not keep",
    )
    takes_in_one_order: bool = change(
        None,
        "BaseMultiModalReceiverCache.get_and_update_features",
        "both halves take the items of a request in one order, by the names of their modalities",
        thread=NOT_FOUND,
    )
    keeps_what_skips_it: bool = change(
        None,
        "BaseMultiModalProcessor._apply_hf_processor",
        "what a front end sends without a look into its cache it keeps there, as the engine core "
        "keeps it",
        thread=NOT_FOUND,
    )
    processes_again: bool = change(
        None,
        "BaseMultiModalCache.get_and_update_item",
        "an item that is not where it was taken to be is processed again, and sent",
        thread=NOT_FOUND,
    )
    counts_resets: bool = change(
        None,
        "LruKeyReplicatedReceiverCache.clear_cache",
        "a message says how often its sender was emptied, and nothing of before is kept or found",
        thread=NOT_FOUND,
    )
    resets_all_servers: bool = change(
        None,
        "MultiModalProcessorOnlyCache.clear_cache",
        "a reset reaches the caches of all API servers, and not of the one alone that is called",
        thread=NOT_FOUND,
    )
    follows_next_chunk: bool = change(
        "0.11.1",
        "SingleWriterShmRingBuffer.free_buf",
        "room in shared memory begins where the oldest chunk does that is left",
    )
    numbers_on: bool = change(
        "0.32.0",
        "SingleWriterShmRingBuffer.clear",
        "chunks in shared memory are numbered on after a reset, so that no two have one number",
    )
    protects_what_is_touched: bool = change(
        "0.32.0",
        "SingleWriterShmObjectStorage.touch",
        "an item in shared memory that is touched is kept for its request, and counted once it is "
        "sent",
    )
    counts_samples: bool = change(
        None,
        "SingleWriterShmObjectStorage.get_cached",
        "an item in shared memory is to be read once for each answer that its request asks for",
        thread=NOT_FOUND,
    )
    returns_what_is_not_sent: bool = change(
        None,
        "SingleWriterShmObjectStorage.increment_writer_flag",
        "an item in shared memory waits for no reader of a message that is never sent",
        thread=NOT_FOUND,
    )
    keeps_what_is_to_be_read: bool = change(
        None,
        "SingleWriterShmObjectStorage.clear",
        "a reset leaves in shared memory what a message under way refers to",
        thread=NOT_FOUND,
    )
    reports_misses: bool = change(
        "0.28.0",
        "MultiModalReceiverCache.get_and_update_item",
        "an item that the engine core lacks is reported, and the front end forgets it",
        thread="vLLM PR #46747",
    )
    skips_oversize: bool = change(
        "0.29.0",
        "BaseMultiModalCache.cache_if_fits",
        "an item that is larger than the cache is passed on, and not kept",
        thread="vLLM PR #53016",
    )
    keeps_what_is_sent: bool = change(
        "0.31.0",
        "LruKeyReplicatedReceiverCache.get_and_update_item",
        "an item that is sent replaces what is kept under its name",
        thread="vLLM PR #57833",
    )
