"""A block that was met before with its key is judged as it was then."""

from collections import Counter
from typing import Any

import pytest

from cacheproof.differential.judges import block_hash
from cacheproof.differential.judges.block_hash import BlockHashJudge
from cacheproof.differential.judges.examination import examine
from cacheproof.differential.judges.rare_states import Reachability
from cacheproof.differential.lanes.all_lanes import LANES
from cacheproof.differential.targets.host.faults.block_hash import BLOCK_HASH_FAULTS
from cacheproof.differential.targets.reference import ReferenceTarget

SEEDS = range(12)


class _Forgetful(dict[Any, Any]):
    """Has met no block before."""

    def get(self, key: Any, default: Any = None) -> Any:
        return default


class _ByBlock(dict[Any, Any]):
    """Takes a block for met whatever its key is."""

    def get(self, key: Any, default: Any = None) -> Any:
        return super().get(key[0], default)

    def __setitem__(self, key: Any, value: Any) -> None:
        super().__setitem__(key[0], value)


def verdicts(fault: str | None, met: type[dict[Any, Any]] | None = None) -> list[Any]:
    """All that is said of some traces; `met` keeps what was met in the place of a dict."""
    reference, said = ReferenceTarget(), []
    make = BlockHashJudge.__init__

    def begin(self: BlockHashJudge, *given: Any) -> None:
        make(self, *given)
        if met is not None:
            self._paired = met()

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(block_hash.BlockHashJudge, "__init__", begin)
        for lane in [one for one in LANES.values() if one.depth == "block_hash"]:
            for trace in [lane.trace(seed, None) for seed in SEEDS]:
                reach = Reachability()
                seen = examine(trace, reference.run([trace], fault)[0], reference, None, reach)
                said.append((seen.illegal, seen.calls, sorted(seen.breaks()), Counter(reach.met)))
    return said


@pytest.mark.parametrize("fault", [None, *BLOCK_HASH_FAULTS])
def test_what_is_said_is_what_pairs_that_are_judged_again_say(fault: str | None) -> None:
    assert verdicts(fault) == verdicts(fault, _Forgetful)


def test_keys_that_differ_from_those_of_before_are_missed_where_only_blocks_are_kept() -> None:
    faults = [
        fault
        for fault in BLOCK_HASH_FAULTS
        if verdicts(fault, _ByBlock) != verdicts(fault, _Forgetful)
    ]
    assert faults
