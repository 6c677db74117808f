"""The translator's reading of the block pool is held against what Python does."""

from collections.abc import Iterable

from cacheproof.proofs.evidence import Outcome
from cacheproof.proofs.symbolic.block_pool import of_reference
from cacheproof.proofs.symbolic.block_pool_validation import validate
from cacheproof.reference.block_pool import BlockPool, KVCacheBlock

SUBJECT = of_reference()


def test_symbolic_paths_admit_what_the_pool_does_and_nothing_else() -> None:
    row = validate(SUBJECT)
    assert row.outcome is Outcome.HOLDS, row.note
    assert row.counts


class Stacking(BlockPool):
    """Does what the text under proof does not say: what is given back goes first."""

    def free_blocks(self, ordered_blocks: Iterable[KVCacheBlock]) -> None:
        super().free_blocks(list(ordered_blocks)[::-1])


def test_a_pool_that_is_not_its_text_is_refused() -> None:
    assert any(validate(SUBJECT, Stacking, s).outcome is Outcome.REFUTED for s in range(3))
