"""What a replay concludes in a sentence."""

from dataclasses import replace

import pytest

from cacheproof.replay.verdict import BrokenContract, Replayed, of_replay

HELD = Replayed("vllm@1", "t.jsonl", "docs/t.jsonl", events=9, calls=31, same=2, times=2)
FIRST = BrokenContract("SC-15", "A step reads what was computed", 7, "uncomputed-hit")
SECOND = BrokenContract("SC-8", "No event raises", 9, "kv-load-turn")


def broken(*some: BrokenContract) -> Replayed:
    return replace(HELD, broken=some)


@pytest.mark.parametrize(
    ("ran", "sentence", "command"),
    [
        (HELD, "vllm@1 keeps every contract on t.jsonl (9 events, 31 calls judged).", ""),
        (
            replace(HELD, is_compared=True, seen_on=("vllm@0", "salt-adapter")),
            "vllm@1 keeps every contract on t.jsonl (9 events, 31 calls judged), and decides as "
            "the reference does; the trace shows salt-adapter, which vllm@0 has.",
            "cacheproof replay docs/t.jsonl --target vllm@0",
        ),
        (
            replace(HELD, asked="EC-6"),
            "vllm@1 keeps EC-6 and every other contract on t.jsonl (9 events, 31 calls judged).",
            "",
        ),
        (
            replace(HELD, parts_at=3, is_compared=True),
            "vllm@1 breaks no contract on t.jsonl, and differs from the reference at event 3 of 9.",
            "cacheproof replay docs/t.jsonl --target vllm@1 --html run.html",
        ),
        (
            broken(FIRST),
            "vllm@1 breaks SC-15 on t.jsonl: at event 7 of 9 this does not hold: A step reads what "
            "was computed. It is the known fault uncomputed-hit.",
            "cacheproof explain uncomputed-hit",
        ),
        (
            broken(FIRST, SECOND),
            "vllm@1 breaks SC-15 and SC-8 on t.jsonl: at event 7 of 9 this does not hold: A step "
            "reads what was computed. It shows the known faults uncomputed-hit and kv-load-turn.",
            "cacheproof explain uncomputed-hit",
        ),
        (
            broken(replace(FIRST, fault=None)),
            "vllm@1 breaks SC-15 on t.jsonl: at event 7 of 9 this does not hold: A step reads what "
            "was computed. No known fault explains SC-15.",
            "cacheproof replay docs/t.jsonl --target vllm@1 --html run.html",
        ),
        (
            broken(FIRST, replace(SECOND, fault=None)),
            "vllm@1 breaks SC-15 and SC-8 on t.jsonl: at event 7 of 9 this does not hold: A step "
            "reads what was computed. No known fault explains SC-8. It shows the known fault "
            "uncomputed-hit too.",
            "cacheproof replay docs/t.jsonl --target vllm@1 --html run.html",
        ),
        (
            replace(broken(FIRST), same=1),
            "vllm@1 does not do the same each time on t.jsonl: 1 of 2 runs agree, so that this "
            "replay shows nothing.",
            "cacheproof replay docs/t.jsonl --target vllm@1 --times 20",
        ),
    ],
)
def test_a_replay_is_concluded_in_a_sentence(ran: Replayed, sentence: str, command: str) -> None:
    line = of_replay(ran)
    assert (line.sentence, line.command) == (sentence, command)
