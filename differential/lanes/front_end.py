"""The lanes of front ends and their caches of processed media."""

from cacheproof.differential.generators.front_end import (
    every_order_trace,
    front_end_trace,
    mixed_media_trace,
    processor_only_trace,
    several_answers_trace,
    several_servers_trace,
    shared_memory_trace,
)
from cacheproof.differential.lanes.lane import Lane

OF_TWO_HALVES = frozenset({"PM-2", "PM-5"})
OF_SHARED_MEMORY = frozenset({"PM-7", "PM-8"})
LANES = (
    Lane(
        "front end",
        "front_end",
        "front_end",
        front_end_trace,
        frozenset(
            {
                "processed and never sent",
                "told of a miss",
                "larger than the cache of processed media",
                "one half emptied alone",
                "message overtaken",
                "engine core lacks an item",
            }
        ),
        silent_on=OF_SHARED_MEMORY,
    ),
    Lane(
        "front end, every order",
        "front_end",
        "front_end",
        every_order_trace,
        frozenset(
            {
                "processed and never sent",
                "told of a miss",
                "one half emptied alone",
                "message overtaken",
                "engine core lacks an item",
            }
        ),
        silent_on=OF_SHARED_MEMORY,
    ),
    Lane(
        "front end, mixed media",
        "front_end",
        "front_end",
        mixed_media_trace,
        frozenset(
            {
                "processed and never sent",
                "told of a miss",
                "one half emptied alone",
                "message overtaken",
                "engine core lacks an item",
                "items of several modalities",
                "front end's cache left out",
                "error of a processor",
            }
        ),
        silent_on=OF_SHARED_MEMORY,
    ),
    Lane(
        "front end, shared memory",
        "front_end",
        "front_end",
        shared_memory_trace,
        frozenset(
            {
                "processed and never sent",
                "message overtaken",
                "no room in shared memory",
                "reset while messages are under way",
            }
        ),
        silent_on=OF_TWO_HALVES | {"PM-4"},
        since="0.11.0",
    ),
    Lane(
        "front end, processor only",
        "front_end",
        "front_end",
        processor_only_trace,
        frozenset(
            {
                "processed and never sent",
                "larger than the cache of processed media",
                "message overtaken",
            }
        ),
        silent_on=OF_TWO_HALVES | OF_SHARED_MEMORY,
    ),
    Lane(
        "front end, several servers",
        "front_end",
        "front_end",
        several_servers_trace,
        frozenset(
            {
                "processed and never sent",
                "larger than the cache of processed media",
                "message overtaken",
                "reset of one of several API servers",
            }
        ),
        silent_on=OF_TWO_HALVES | OF_SHARED_MEMORY,
        since="0.11.0",
    ),
    Lane(
        "front end, several answers",
        "front_end",
        "front_end",
        several_answers_trace,
        frozenset({"message overtaken", "no room in shared memory"}),
        silent_on=OF_TWO_HALVES | {"PM-4"},
        since="0.11.0",
    ),
)
