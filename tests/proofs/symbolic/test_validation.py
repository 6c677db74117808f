"""The translator is held against what Python does."""

import copy

import pytest

from cacheproof.proofs.evidence import Outcome
from cacheproof.proofs.symbolic.encoder_cache import of_reference
from cacheproof.proofs.symbolic.validation import validate
from cacheproof.reference.encoder_cache import EncoderCacheManager
from cacheproof.reference.request import Request

SUBJECT = of_reference()


@pytest.mark.parametrize("seed", range(2))
def test_symbolic_paths_admit_what_the_class_does_and_nothing_else(seed: int) -> None:
    row = validate(SUBJECT, EncoderCacheManager, seed)
    assert row.outcome is Outcome.HOLDS, row.note
    assert row.counts


class Forgetful(EncoderCacheManager):
    """Does what the text under proof does not say."""

    def free_encoder_input(self, request: Request, input_id: int) -> None:
        queue = copy.copy(self.freeable)
        super().free_encoder_input(request, input_id)
        self.freeable = queue


class Unhurried(EncoderCacheManager):
    """Evicts what was let go of last."""

    def _evict(self, identifier: str) -> None:
        super()._evict(list(self.freeable)[-1])


@pytest.mark.parametrize("manager", [Forgetful, Unhurried])
def test_a_class_that_is_not_its_text_is_refused(manager: type[EncoderCacheManager]) -> None:
    assert validate(SUBJECT, manager).outcome is Outcome.REFUTED
