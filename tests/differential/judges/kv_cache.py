"""Judges records of the KV cache that no trace was made of."""

from collections.abc import Iterable

from cacheproof.differential.judges.kv_cache import KVCacheJudge
from cacheproof.differential.judges.rare_states import Reachability
from cacheproof.differential.traces.outcomes import KVConfig, KVEvent
from cacheproof.differential.traces.records import StepRecord
from cacheproof.reference.semantics import Semantics


def judge_records(
    config: KVConfig,
    events: Iterable[KVEvent],
    records: Iterable[StepRecord],
    semantics: Semantics,
    release: str | None = None,
    reach: Reachability | None = None,
) -> KVCacheJudge:
    """The judge behind all records of a trace."""
    judge = KVCacheJudge(config, semantics, release, reach or Reachability())
    for number, (event, record) in enumerate(zip(events, records, strict=False)):
        judge.judge(number, event, record)
    return judge
