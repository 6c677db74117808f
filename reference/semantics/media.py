"""Media: what the hash of an item covers, and the identifier that is made from the hash."""

from dataclasses import dataclass

from cacheproof.reference.semantics.change import NOT_FOUND, change


@dataclass(frozen=True)
class MediaSemantics:
    """The flags of the media hasher and of media identifiers."""

    hashes_image_modes: bool = change(
        "0.11.0",
        "MultiModalHasher.serialize_item",
        "an image is hashed as its mode, pixels and palette, not as its RGBA form",
    )
    hashes_array_views: bool = change(
        "0.11.0",
        "MultiModalHasher.serialize_item",
        "the bytes of an array are read through a view of the array",
    )
    hashes_original_bytes: bool = change(
        "0.13.0",
        "MultiModalHasher.serialize_item",
        "a fetched image is hashed by the bytes that were fetched",
    )
    hashes_none_by_key: bool = change(
        "0.14.0",
        "MultiModalHasher.iter_item_to_bytes",
        "None adds its key alone to the stream, not its pickle",
    )
    chooses_media_digest: bool = change(
        "0.15.0",
        "MultiModalHasher.hash_kwargs",
        "sha256 and sha512 can replace blake3",
        thread="vLLM #18334",
    )
    hashes_array_scalars: bool = change(
        "0.16.0",
        "MultiModalHasher.serialize_item",
        "an array without dimensions is hashed by its element",
    )
    sorts_keywords: bool = change(
        "0.16.0",
        "MultiModalHasher.hash_kwargs",
        "keyword arguments are hashed in the order of their names",
    )
    hashes_decode_settings: bool = change(
        "0.27.0",
        "MultiModalHasher.serialize_item",
        "settings that altered a fetched image are hashed with it",
    )
    hashes_video_bytes: bool = change(
        "0.27.0",
        "MultiModalHasher.serialize_item",
        "a fetched video in an array is hashed by its fetched bytes, where they are fewer",
    )
    hashes_video_tensors: bool = change(
        "0.30.0",
        "MultiModalHasher.serialize_item",
        "a fetched video in a tensor is hashed by its fetched bytes, where they are fewer",
    )
    frames_media_chunks: bool = change(
        "0.31.0",
        "MultiModalHasher.iter_value_to_bytes",
        "each chunk is hashed with its length, each container with its kind",
    )
    identifies_adapters: bool = change(
        "0.14.0",
        "InputProcessor._get_mm_identifier",
        "an identifier names the adapter that reaches the encoder",
    )
    digests_counts: bool = change(
        "0.33.0",
        "DeepseekVL2MultiModalProcessor._get_mm_hashes",
        "a picture has another name where its request has more pictures than its model processes "
        "alike",
        thread=NOT_FOUND,
    )
    separates_user_ids: bool = change(
        None,
        "InputProcessor._get_mm_identifier",
        "no id that a user gives is the identifier of a content",
        thread=NOT_FOUND,
    )
    measures_adapter_names: bool = change(
        None,
        "InputProcessor._get_mm_identifier",
        "an identifier holds the length of its adapter's name",
        thread=NOT_FOUND,
    )
    digests_uncached: bool = change(
        None,
        "BaseRenderer._process_mm_uuids",
        "an item has its digest for a name where no cache of the engine asks for one, too",
        thread="LMCache PR #5055",
    )
    digests_settings: bool = change(
        None,
        "ProcessorInputs.get_mm_hashes",
        "a name holds what the engine tells its processor, and not a request's options alone",
        thread=NOT_FOUND,
    )
    keeps_user_ids: bool = change(
        "0.30.0",
        "BaseRenderer._process_mm_uuids",
        "a user's id is kept where no cache of the engine asks for digests",
        thread="vLLM PR #56432",
    )
    numbers_requests: bool = change(
        "0.17.0",
        "BaseRenderer._process_multimodal",
        "where nothing asks for digests, an item is named by the number of its request at its "
        "server, not by the id that a user may choose for the request",
    )
    numbers_servers: bool = change(
        "0.18.0",
        "BaseRenderer._process_multimodal",
        "such a name says which server of the engine gave it",
        thread="vLLM PR #36150",
    )
    takes_sounds_by_id: bool = change(
        "0.30.0",
        "MultiModalDataParser._parse_audio_data",
        "a sound may come without data, as a picture, where its user names it",
        thread="vLLM PR #56310",
    )
    hashes_frames: bool = change(
        None,
        "MultiModalHasher.serialize_item",
        "fetched media are hashed by their frames or pixels, not by the file that they came in",
        thread=NOT_FOUND,
    )
    tags_types: bool = change(
        None,
        "MultiModalHasher.iter_value_to_bytes",
        "each value and each key is hashed with its type, an int of any size by its value",
        thread=NOT_FOUND,
    )
    hashes_whole_values: bool = change(
        None,
        "MultiModalHasher.serialize_item",
        "the fields of an array and the transparency of an image are hashed",
        thread=NOT_FOUND,
    )
    sorts_mappings: bool = change(
        None,
        "MultiModalHasher.iter_value_to_bytes",
        "mappings are hashed in the order of their keys",
        thread=NOT_FOUND,
    )
    hashes_nodes: bool = change(
        None,
        "MultiModalHasher.iter_value_to_bytes",
        "each value is hashed as a node that says its kind and where it ends",
        thread=NOT_FOUND,
    )
