"""Contracts of a scheduler's steps as the assertions that end a standalone test.

`engine` is the class of the test's own file: its `windows` are what the last step computes, as a
request's first and last token, its `items` where items stand, its `misread` what a step reads of
blocks that hold something else, its `delivered` who got tokens by the last update, and its
`spoiled` whose loads failed.
"""

OF_BLOCKS = frozenset({"SC-15", "SC-17", "KT-2"})
"""Contracts of the blocks of requests: the test follows one group of them."""
OF_ITEMS = frozenset({"SC-4"})
"""Contracts of the items that a request arrived with."""
OF_THE_LEDGER = frozenset({"SC-6"})
"""Contracts of entries with holders, which an encoder-decoder's manager has not."""
OF_LOADS = frozenset({"KT-3"})
"""Contracts of loads that fail."""


def claim(contract: str, block_size: int, *, has_loads: bool, loads_end: bool) -> list[str]:
    """The lines that end the test; none where no attribute shows the fault. What a request waits
    for are loads of KV, where the trace `has_loads`; the engine knows of those that `loads_end`."""
    return {
        "LV-1": _goes_on(has_loads, loads_end),
        "SC-4": [
            "for name, (start, end) in engine.windows.items():",
            "    for first, last in engine.items[name]:",
            "        assert not start <= first < end < last  # the step ends inside of the item",
        ],
        "SC-6": [
            "running = {request.request_id for request in engine.scheduler.running}",
            "assert all(holders <= running for holders in engine.manager.cached.values())",
        ],
        "SC-15": ["assert not engine.misread  # blocks whose KV nobody has computed"],
        "SC-17": [
            "for name, (_, end) in engine.windows.items():",
            "    (blocks,) = engine.scheduler.kv_cache_manager.get_block_ids(name)",
            f"    assert end <= len(blocks) * {block_size}  # each token has a slot",
        ],
        "KT-2": ["assert not engine.misread  # blocks whose KV is not right"],
        "KT-3": [
            "# tokens that were sampled over KV that did not arrive",
            "assert not engine.delivered & engine.spoiled",
        ],
    }.get(contract, [])


def _goes_on(has_loads: bool, loads_end: bool) -> list[str]:
    for_ever = "# nothing is in flight: who waits now, and for no load, does so for ever"
    if loads_end:
        told = "engine.windows or engine.late or not engine.scheduler.has_unfinished_requests()"
        return [for_ever, f"assert {told}"]
    if has_loads:
        return [
            "statuses = [request.status for request in engine.scheduler.requests.values()]",
            "loads = RequestStatus.WAITING_FOR_REMOTE_KVS in statuses",
            for_ever,
            "assert engine.windows or loads or not engine.scheduler.has_unfinished_requests()",
        ]
    return [
        "# nothing is in flight: who waits now does so for ever",
        "assert engine.windows or not engine.scheduler.has_unfinished_requests()",
    ]
