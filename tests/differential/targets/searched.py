"""What a search of a release beside the reference breaks, and what of it is new."""

from collections.abc import Iterable, Sequence
from contextlib import closing

from cacheproof.differential.judges.examination import LOCKSTEP
from cacheproof.differential.lanes.lane import Lane
from cacheproof.differential.search.attribution import Attribution
from cacheproof.differential.search.fault_folders import load
from cacheproof.differential.search.seeded import search
from cacheproof.differential.targets.process import HostTarget
from cacheproof.differential.targets.resolve import reference_for

Break = tuple[str, str, bool]
"""A contract, the kind of its break, and whether that is new: a difference from the reference, or
no listed fault."""


def breaks_in(real: HostTarget, seeds: range, lanes: Sequence[Lane]) -> list[Break]:
    """The breaks in these traces, one of each kind."""
    reference = reference_for(real)
    assert reference is not None
    with closing(reference):
        outcome = search(
            real,
            lanes,
            against=reference,
            seeds=seeds,
            kept_per_break=1,
            attribution=Attribution(load(), real.release, reference),
        )
    assert outcome.harness_errors == []
    return [
        (one.contract, one.kind, one.contract == LOCKSTEP or one.attributed.fault is None)
        for one in outcome.breaks
    ]


def new_among(breaks: Iterable[Break]) -> list[tuple[str, str]]:
    """Differences from the reference, and breaks that are no listed fault."""
    return [(contract, kind) for contract, kind, is_new in breaks if is_new]
