"""The lane of the media hash."""

from cacheproof.differential.generators.media_hash import media_hash_trace
from cacheproof.differential.lanes.lane import Lane

LANES = (
    Lane(
        "media hash",
        "media_hash",
        "media_hash",
        media_hash_trace,
        frozenset(
            {
                "another form over the same bytes",
                "types over the same bytes",
                "names of arguments",
                "list against map",
                "type of a key",
                "dtype of an array",
                "shape of an array",
                "fields of an array",
                "array against tensor",
                "size of an image",
                "mode of an image",
                "palette of an image",
                "transparency of an image",
                "image id",
                "picture from one file",
                "frames from one file",
                "order of arguments",
                "order of a mapping",
                "layout of an array",
                "list or tuple",
                "huge int",
            }
        ),
        by_release=True,
    ),
)
