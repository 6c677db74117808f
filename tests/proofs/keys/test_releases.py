"""Pairs that z3 works out of one key: the reference agrees, and so do the real releases."""

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import numpy as np
import pytest

from cacheproof.differential.judges.media_hash import MediaHashJudge
from cacheproof.differential.judges.rare_states import Reachability
from cacheproof.differential.judges.violation import Violation
from cacheproof.differential.media.descriptions import Description, call
from cacheproof.differential.media.values import array, boolean, integer, raw, real, text
from cacheproof.differential.search.fault_folders import load
from cacheproof.differential.search.known import may_be
from cacheproof.differential.targets.process import HostTarget
from cacheproof.differential.traces.base import SCHEMA, Adapter, Item
from cacheproof.differential.traces.block_hash import BlockHashConfig, BlockHashHeader, Prompt
from cacheproof.differential.traces.media_hash import Hash, MediaHashConfig, MediaHashHeader
from cacheproof.differential.traces.records import StepRecord
from cacheproof.differential.traces.trace import Trace
from cacheproof.proofs.keys import block_witnesses, vllm_media
from cacheproof.proofs.keys.block_extra import WITNESS, Hashing
from cacheproof.proofs.keys.block_witnesses import KeyedBlock
from cacheproof.proofs.keys.checks import hashing_of
from cacheproof.proofs.keys.prove import BLOCK_RELEASES, MEDIA_RELEASES
from cacheproof.reference.media_hash_of_vllm import ReleaseStream
from cacheproof.reference.releases import NEWEST
from cacheproof.reference.semantics import Semantics
from cacheproof.reference.semantics.block_keys import BlockKeySemantics

ROW = "0000000000000000"


def releases(versions: tuple[str, ...]) -> list[Any]:
    return [one if one == NEWEST else pytest.param(one, marks=pytest.mark.full) for one in versions]


Hosted = Callable[[str], AbstractContextManager[HostTarget]]


def outcomes(target: HostTarget, trace: Trace) -> list[object]:
    (result,) = target.run([trace])
    return [record.outcome for record in result.records]


def described(value: object) -> Description:
    match value:
        case bool():
            return boolean(value)
        case int():
            return integer(value)
        case float():
            return real(value)
        case str():
            return text(value)
        case bytes():
            return raw(value)
        case np.ndarray():
            return array(value.tobytes())
    raise TypeError(value)


def described_call(arguments: dict[str, object]) -> Description:
    return call(**{name: described(value) for name, value in arguments.items()})


@pytest.mark.parametrize("release", MEDIA_RELEASES)
def test_two_calls_have_the_stream_that_was_worked_out(release: str) -> None:
    semantics = Semantics.of_vllm(release).media
    pairs = list(vllm_media.pairs(semantics))
    assert len(pairs) >= 4
    for pair in pairs:
        assert repr(pair.first) != repr(pair.second)
        for arguments in (pair.first, pair.second):
            assert b"".join(ReleaseStream(semantics).arguments(arguments)) == pair.stream


def test_frames_leave_one_call_that_reads_as_another() -> None:
    """The head of an array's mapping is read as the length of the next argument's name."""
    (pair,) = (
        pair for pair in vllm_media.pairs(Semantics.of_vllm(NEWEST).media) if len(pair.second) == 2
    )
    assert pair.first.keys() == {""}
    assert pair.second[""] == "ndarray"
    assert len(max(pair.second, key=len)) == 0x0302


@pytest.mark.full
@pytest.mark.parametrize("release", releases(MEDIA_RELEASES))
def test_a_release_gives_both_calls_of_each_pair_one_digest(hosted: Hosted, release: str) -> None:
    pairs = list(vllm_media.pairs(Semantics.of_vllm(release).media))
    calls = [described_call(side) for pair in pairs for side in (pair.first, pair.second)]
    header = MediaHashHeader(SCHEMA, MediaHashConfig())
    with hosted(release) as target:
        digests = outcomes(target, Trace(header, tuple(map(Hash, calls))))
    assert digests[0::2] == digests[1::2]
    assert None not in digests
    for number in range(len(pairs)):
        judge = MediaHashJudge(None, Reachability())
        for place in (2 * number, 2 * number + 1):
            judge.judge(place, Hash(calls[place]), StepRecord(digests[place], [], None, None))
        assert set(judge.violations) == {"MH-3"}, pairs[number]
        assert listed(judge.violations["MH-3"], release), pairs[number]


def listed(violation: Violation, release: str) -> bool:
    return bool(may_be(load(), "MH-3", violation.kind, release, ("media hash",)))


def prompt(name: str, block: KeyedBlock) -> Prompt:
    adapter = block.adapter and Adapter(block.adapter[0], 1, block.adapter[1])
    items = [block.item] if block.item else []
    embeds = block.given and tuple(ROW if given else None for given in block.given)
    return Prompt(
        name,
        (0,) * WITNESS,
        tuple(Item(identifier, offset, 1) for identifier, offset in items),
        adapter or None,
        block.salt,
        embeds or None,
    )


def test_the_ideal_has_no_two_blocks_with_one_key() -> None:
    assert list(block_witnesses.pairs(Hashing(BlockKeySemantics()))) == []


@pytest.mark.parametrize("release", releases(BLOCK_RELEASES))
def test_a_release_gives_both_blocks_of_each_pair_one_key(hosted: Hosted, release: str) -> None:
    pairs = list(block_witnesses.pairs(hashing_of(release)))
    assert pairs
    header = BlockHashHeader(SCHEMA, BlockHashConfig(WITNESS, 0, "sha256_cbor"))
    with hosted(release) as target:
        for pair in pairs:
            prompts = prompt("first", pair.first), prompt("second", pair.second)
            first, second = outcomes(target, Trace(header, prompts))
            assert first["fresh"] == second["fresh"] != [], pair
