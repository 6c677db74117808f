"""What is read of each module of keys, and what stands for the rest."""

from collections.abc import Mapping
from dataclasses import dataclass, field

HELPER = "_read_"
"""How names begin that stand in a text once it is read."""
WRAPPER = "MEDIA_WRAPPER"
"""The constant that is the one name of a class that values are told apart by."""


@dataclass(frozen=True)
class Language:
    """What is read of a module, and what stands for the rest.

    Attributes:
        module: its name; `path` where it lies.
        read: the functions and methods that are read.
        cut: those of them whose loops are cut at an invariant.
        stated: functions whose meaning is stated by hand, and the digest of their text.
        given: imported names whose meaning is stated by hand, and what they are imported from.
        used: imported names that are run as they are, and what they are imported from.
        state: attributes that a method other than __init__ sets, and that method.
    """

    module: str
    read: frozenset[str]
    cut: frozenset[str] = frozenset()
    stated: Mapping[str, str] = field(default_factory=dict, hash=False)
    given: Mapping[str, str] = field(default_factory=dict, hash=False)
    used: Mapping[str, str] = field(default_factory=dict, hash=False)
    state: Mapping[str, str] = field(default_factory=dict, hash=False)

    @property
    def path(self) -> str:
        """Where the module lies, from the folder of the package on."""
        return self.module.removeprefix("cacheproof.").replace(".", "/") + ".py"


REFERENCE = "cacheproof.reference."
MEDIA_STREAM = Language(
    f"{REFERENCE}media_stream",
    read=frozenset({"chunks", "_size", "_decode"}),
    cut=frozenset({"_decode"}),
    stated={"encode": "88d5ea367bcd", "decode": "04d2d78ceacf"},
    used={"NamedTuple": "typing.NamedTuple"},
)
MEDIA_CONTENT = Language(
    f"{REFERENCE}media_content",
    read=frozenset(
        {"content", "call", "_text", "_shape", "_mapping"}
        | {"_array", "_elements", "_tensor", "_image"}
    ),
    stated={"is_numpys": "8ff5b24d4b34", "is_of": "8165dcb3fe73", "image_id": "a2c479856e7d"},
    given={
        "Mapping": "collections.abc.Mapping",
        "Node": f"{REFERENCE}media_stream.Node",
        "encode": f"{REFERENCE}media_stream.encode",
        "json": "json",
        "struct": "struct",
        "sys": "sys",
    },
)
MEDIA_IDENTIFIER = Language(
    f"{REFERENCE}media_identifier",
    read=frozenset({"processor_key", "identifier"}),
    used={"NamedTuple": "typing.NamedTuple"},
)
BLOCK_HASH = Language(
    f"{REFERENCE}block_hash",
    read=frozenset(
        {"none_hash", "get_request_block_hasher", "hasher", "__init__", "of", "_of_items"}
        | {"_adapter_keys", "_item_key", "_salt_keys", "_embeds_keys"}
    ),
    cut=frozenset({"hasher", "_of_items"}),
    given={"hashlib": "hashlib"},
    used={"end_of": f"{REFERENCE}request.end_of"},
    state={"_item": "_of_items", "_starts_late": "_of_items"},
)
MEDIA_HASH_OF_VLLM = Language(
    f"{REFERENCE}media_hash_of_vllm",
    read=frozenset(
        {
            "__init__",
            "arguments",
            "_item",
            "_framed",
            "_chunk",
            "_leaf",
            "_array",
            "_dtype",
            "_number",
        }
    ),
    given={
        "image_id": f"{REFERENCE}media_content.image_id",
        "is_of": f"{REFERENCE}media_content.is_of",
        "struct": "struct",
    },
    used={"MEDIA_WRAPPER": f"{REFERENCE}media_content.MEDIA_WRAPPER"},
)
