"""Records of no engine in particular, and what stands in files of them."""

from collections.abc import Iterable, Sequence
from pathlib import Path

import msgspec

from cacheproof.differential.audit.streams import Part, RecordStream
from cacheproof.differential.recording.blocks import MAGIC, framed, pack
from cacheproof.differential.recording.messages import (
    SCHEMA,
    Keyframe,
    Message,
    Opened,
    Updated,
)

OPENED = Opened(SCHEMA, "scheduler", "0", "0.33.0", 1, 0, 1e9, True, "encoder_cache", "vllm.a:B")


def keyframe(lost: int = 0) -> Keyframe:
    """That of an engine without requests."""
    return Keyframe(1, lost, 0, [], [], [], 9, 9, 0, {}, [], [], [], {})


def updated(free_blocks: int) -> Updated:
    """One of many records that are all alike, but for a number."""
    return Updated(1, {}, [], [], None, None, free_blocks)


def written(groups: Iterable[Sequence[Message]], first: int = 0) -> bytes:
    """A file with a block for each group."""
    data = MAGIC
    for group in groups:
        data += pack([framed(msgspec.msgpack.encode(one)) for one in group], first)
        first += len(group)
    return data


def parts_of(*paths: Path) -> list[Part]:
    """What files that follow each other hold."""
    return list(RecordStream(paths[0].name, [path.open("rb") for path in paths]).end())
