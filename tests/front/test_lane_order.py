"""A search of a changed target begins with the lanes that run what was changed."""

import pytest

from cacheproof.differential.errors import HarnessError
from cacheproof.differential.lanes.all_lanes import LANES
from cacheproof.differential.targets.base import Target
from cacheproof.differential.targets.process import HostTarget
from cacheproof.differential.texts.known_texts import Reading
from cacheproof.differential.traces.trace import Trace
from cacheproof.output.console import CommandOutput
from cacheproof.reference.releases import NEWEST
from cacheproof.search.lane_order import FEW, in_order

FREE = "EncoderCacheManager.free_encoder_input"
ALL = [lane for lane in LANES.values() if lane.depth in ("manager", "block_hash")]


class Calls(HostTarget):
    """A host whose traces of the encoder cache call one function, and all others another."""

    def called(self, trace: Trace, fault: str | None = None) -> list[list[str]]:
        is_its = trace.header.manager == "encoder_cache"
        return [[f"vllm.v1.core:{FREE if is_its else 'hash_block_tokens'}"]]


class Breaks(Calls):
    """A host that breaks over the traces of one manager."""

    def called(self, trace: Trace, fault: str | None = None) -> list[list[str]]:
        if trace.header.manager == "encoder_decoder":
            raise HarnessError("it broke")
        return super().called(trace, fault)


def changed(*differing: str, kind: type[HostTarget] = Calls) -> HostTarget:
    reading = Reading(NEWEST, NEWEST, 589, dict.fromkeys(differing, "changed"), ())
    return kind("path:fork", NEWEST, ["python"], {}, reading=reading)


@pytest.fixture
def said(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    lines: list[str] = []
    monkeypatch.setattr(CommandOutput, "say", lambda self, text: lines.append(text))
    return lines


def names(target: Target) -> list[str]:
    return [lane.name for lane in in_order(CommandOutput(None), target, ALL)]


def test_the_lanes_that_run_what_differs_come_first_and_a_line_says_so(said: list[str]) -> None:
    first = [lane.name for lane in ALL if lane.manager == "encoder_cache"]
    rest = [lane.name for lane in ALL if lane.manager != "encoder_cache"]
    assert names(changed(FREE)) == [*first, *rest]
    (line,) = said
    assert line.startswith(
        f"path:fork: the search begins with the {len(first)} lanes that run {FREE}"
    )
    assert f"the other {len(rest)} " in line


def test_without_a_difference_the_order_is_as_ever(said: list[str]) -> None:
    as_ever = [lane.name for lane in ALL]
    assert names(changed()) == as_ever
    many = (f"Scheduler.f{number}" for number in range(FEW))
    assert names(changed(FREE, *many)) == as_ever
    assert names(changed("Scheduler.nobody_calls_it")) == as_ever
    assert names(changed(FREE, "hash_block_tokens")) == as_ever
    assert said == []


def test_a_lane_over_which_the_target_breaks_takes_its_turn_later(said: list[str]) -> None:
    assert names(changed(FREE, kind=Breaks)) == names(changed(FREE))
    assert len(said) == 2
