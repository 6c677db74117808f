"""A seed gives one trace of the KV cache, and any part of it is legal."""

import random

from cacheproof.differential.generators.kv_cache import generate
from cacheproof.differential.targets.reference_kv_cache import step_records
from cacheproof.reference.semantics import Semantics
from tests.differential.judges.kv_cache import judge_records

SEEDS = range(40)
IDEAL = Semantics.ideal()


def test_a_seed_gives_one_trace() -> None:
    assert generate(3) == generate(3)
    assert generate(3) != generate(4)


def test_any_part_of_a_trace_is_legal() -> None:
    for seed in SEEDS:
        config, events = generate(seed)
        rng = random.Random(seed)
        part = [event for event in events if rng.random() < 0.6]
        records = step_records(config, part, IDEAL)
        assert [record.raised for record in records] == [None] * len(part)
        assert not judge_records(config, part, records, IDEAL).violations
