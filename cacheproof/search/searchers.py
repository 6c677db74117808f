"""Crews that search a target, with the jobs of `work`: here, or on a cluster."""

import hashlib
import logging
from collections.abc import Sequence
from pathlib import Path

from cacheproof.differential.errors import HarnessError
from cacheproof.differential.lanes.lane import Lane
from cacheproof.differential.search import paired, work
from cacheproof.differential.search.known import KnownFault
from cacheproof.differential.targets.base import Target
from cacheproof.differential.targets.named import CONNECTOR, plug_in_named
from cacheproof.differential.targets.process import HostTarget
from cacheproof.differential.targets.resolve import resolve, share_libraries
from cacheproof.proving.targets import file_of
from cacheproof.work.cluster import ClusterCrew
from cacheproof.work.code_digest import code_digest
from cacheproof.work.workers import ENGINE_MIB, WORKER_MIB, Crew
from cacheproof.work.workplace import AnyCrew, Workplace

_logger = logging.getLogger(__name__)


def crew_for(
    place: Workplace,
    target: Target,
    elsewhere: Target,
    with_reference: bool,
    known: Sequence[KnownFault],
    lanes: Sequence[Lane],
) -> AnyCrew:
    """Workers for these lanes of a target at the place that is joined, which know of these faults,
    each with the reference beside it where wanted; `elsewhere` is another process of the target."""
    if place.cluster is not None:
        return ClusterCrew(begin_there, target.name, text_of(target), with_reference, known)
    if isinstance(target, HostTarget):
        target.prepare(forks_much=_forks_much(lanes))
    if isinstance(elsewhere, HostTarget):
        elsewhere.prepare(imports=False)  # only what is written down is run there
    return Crew(place.number(mib_of(target)), work.begin, target, elsewhere, with_reference, known)


def _forks_much(lanes: Sequence[Lane]) -> bool:
    """Whether hosts fork for each trace of a lane: an engine with a connector is a fork."""
    return any(lane.depth == CONNECTOR for lane in lanes)


def mib_of(target: Target) -> int:
    """The memory that a worker of the target takes."""
    return ENGINE_MIB if target.runs_depth("engine") else WORKER_MIB


def begin_there(name: str, text: str, with_reference: bool, known: Sequence[KnownFault]) -> None:
    """Make this process a worker on a machine that may not have the target yet.

    Raises:
        HarnessError: the target reads otherwise here.
    """
    target = _same(name, text)
    work.begin(target, target.another(), with_reference, known)


def crew_for_both(
    place: Workplace,
    base: Target,
    head: Target,
    known: Sequence[KnownFault],
    lanes: Sequence[Lane],
) -> AnyCrew:
    """Workers for these lanes of two targets that are compared."""
    if place.cluster is not None:
        texts = (base.name, text_of(base)), (head.name, text_of(head))
        return ClusterCrew(begin_both_there, *texts, known)
    for one in (base, head):
        if isinstance(one, HostTarget):
            one.prepare(forks_much=_forks_much(lanes))
    number = place.number(2 * mib_of(base))
    return Crew(number, paired.begin, base, head, known)


def begin_both_there(
    base: tuple[str, str], head: tuple[str, str], known: Sequence[KnownFault]
) -> None:
    """As `begin_there`, for two targets by their names and texts."""
    targets = _same(*base), _same(*head)
    share_libraries(*targets)
    paired.begin(*targets, known)


def _same(name: str, text: str) -> Target:
    target = resolve(name, report=_logger.info)
    if text_of(target) != text:
        raise HarnessError(
            f"a node of the cluster has another text of {name} than this machine; expected the same"
        )
    return target


def text_of(target: Target) -> str:
    """The digest of all Python of the target's vllm, or of a plug-in's file; empty for the
    reference, whose text is cacheproof's own, and where the target has no text here."""
    if target.tree is not None:
        return code_digest(["vllm"], target.tree)
    named = plug_in_named(target.name) if isinstance(target, HostTarget) else None
    file = file_of(named[0], Path.cwd()) if named is not None else None
    return "" if file is None else hashlib.sha256(file.read_bytes()).hexdigest()
