"""Targets of the user's own: a folder with vLLM's sources, and a manager by its class."""

import json
import os
import re
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from pathlib import Path

import pytest

from cacheproof.differential.generators.scheduler import scheduler_trace
from cacheproof.differential.judges.lockstep import compare
from cacheproof.differential.lanes.all_lanes import LANES
from cacheproof.differential.provision import releases
from cacheproof.differential.search.seeded import search
from cacheproof.differential.targets.base import Target
from cacheproof.differential.targets.process import HostTarget
from cacheproof.differential.targets.resolve import reference_for, resolve
from cacheproof.differential.traces.trace import Trace
from cacheproof.output.console import CommandOutput
from cacheproof.reference.releases import NEWEST
from cacheproof.search.lane_choice import lanes_for
from tests.front.conftest import Run

Opening = Callable[[str], HostTarget]
"""Opens a target by its name."""
OpeningOfMine = Callable[[str, str], HostTarget]
"""Opens a class by its name and the text of its module."""

MANAGER = Path("vllm/v1/core/encoder_cache_manager.py")
REFERENCE = "cacheproof.reference.encoder_cache:EncoderCacheManager"
KV_CACHE = "cacheproof.reference.kv_cache_manager:KVCacheManager"
KV_CACHE_SEEDS = range(20)
SCHEDULER_SEEDS = range(30)
GUARD = re.compile(r"if not self\.cached\[\w+\]:")
"""Of a hit: only an entry that nobody holds stands in the queue, to be taken out of it."""


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """The newest release as a folder of the user's own, its files linked."""
    tree = releases.install(NEWEST, report=print).tree
    folder = tmp_path / "my vLLM"
    shutil.copytree(tree, folder, copy_function=os.symlink)
    return folder


@pytest.fixture
def target(request: pytest.FixtureRequest) -> Iterator[Opening]:
    """Opens targets by their names and closes them in the end, but for the newest release."""
    opened: list[HostTarget] = []

    def opening(text: str) -> HostTarget:
        if text == f"vllm@{NEWEST}":
            newest: HostTarget = request.getfixturevalue("newest")
            return newest
        found = resolve(text, report=print)
        assert isinstance(found, HostTarget)
        opened.append(found)
        return found

    yield opening
    for one in opened:
        one.close()


@pytest.fixture
def target_of_mine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, target: Opening
) -> OpeningOfMine:
    """Puts a text into the current folder, and opens a class of it beside the newest release."""
    monkeypatch.chdir(tmp_path)

    def opening(name: str, text: str) -> HostTarget:
        (tmp_path / "mine.py").write_text(text)
        return target(f"mine:{name}@{NEWEST}")

    return opening


@pytest.mark.full
def test_an_unchanged_copy_is_the_release_that_it_says_it_is(
    checkout: Path, target: Opening
) -> None:
    copy, release = target(f"path:{checkout}"), target(f"vllm@{NEWEST}")
    assert copy.release == NEWEST
    reference = reference_for(copy)
    assert reference is not None
    lanes = [lane for lane in LANES.values() if lane.is_offered_by(NEWEST)]
    lanes = [lane for lane in lanes if release.runs_depth(lane.depth)]
    campaigns = [search(one, lanes, against=reference, seeds=range(10)) for one in (copy, release)]
    assert campaigns[0].broken == campaigns[1].broken
    assert {contract for contract, _ in campaigns[0].broken}.isdisjoint({"lockstep", "EC-13"})
    assert [one.harness_errors for one in campaigns] == [[], []]


@pytest.mark.full
def test_a_guard_taken_out_of_a_copy_is_found(checkout: Path, run: Run, tmp_path: Path) -> None:
    source = checkout / MANAGER
    broken, count = GUARD.subn("if True:", source.read_text(), count=1)
    assert count == 1
    source.unlink()
    source.write_text(broken)
    arguments = "--depth", "manager", "--seeds", "0:2", "--findings", tmp_path / "findings"
    ran = run("fuzz", "--target", f"path:{checkout}", *arguments, "--json", "-")
    assert ran.code == 1
    unlisted = [one for one in json.loads(ran.out)["findings"] if one["known_note"] is None]
    assert "EC-13" in {one["contract"] for one in unlisted}


@pytest.mark.full
def test_a_checkout_that_names_no_release_is_held_to_the_one_that_it_reads_as(
    checkout: Path, target: Opening
) -> None:
    version = checkout / "vllm" / "_version.py"
    version.unlink()
    version.write_text(
        "__version__ = version = 'dev'\n__version_tuple__ = version_tuple = (0, 0)\n"
    )
    mine = target(f"path:{checkout}")
    assert mine.release == NEWEST
    with closing(reference_for(mine)) as reference:
        found = search(mine, [LANES["encoder cache"]], against=reference, seeds=range(5))
    assert found.breaks == []
    assert found.lanes[0].compared.traces == 5


@pytest.mark.full
def test_the_reference_manager_stands_in_for_the_real_one_in_the_real_scheduler(
    target: Opening,
) -> None:
    """Every step comes out the same: what is scheduled, encoded, preempted, reported and finished,
    and every call of the manager with its answer and what it changed."""
    traces = [scheduler_trace(seed) for seed in SCHEDULER_SEEDS]
    with_reference = target(f"{REFERENCE}@{NEWEST}")
    assert partings(target(f"vllm@{NEWEST}"), with_reference, traces) == {}


def partings(own: Target, with_another: Target, traces: Sequence[Trace]) -> dict[int | None, str]:
    """Where the steps of two targets part, by the seed of the trace."""
    found, events = {}, 0
    for trace, ours, theirs in zip(traces, own.run(traces), with_another.run(traces), strict=True):
        assert ours.illegal is theirs.illegal is None
        difference = compare(ours, theirs)
        if difference is not None:
            found[trace.header.seed] = difference.sentence
        events += len(ours.records)
    assert events > 30 * len(traces)
    return found


@pytest.mark.full
def test_the_reference_kv_cache_manager_stands_in_for_the_real_one_in_every_scheduler_lane(
    target: Opening,
) -> None:
    """Every step comes out the same, block ids and free blocks among it."""
    own, with_reference = target(f"vllm@{NEWEST}"), target(f"{KV_CACHE}@{NEWEST}")
    assert with_reference.plug_in_kind == "kv_cache"
    for lane in (lane for lane in LANES.values() if lane.depth == "scheduler"):
        traces = [lane.trace(seed, NEWEST) for seed in KV_CACHE_SEEDS]
        assert partings(own, with_reference, traces) == {}, lane.name


FAULTY_KV_CACHES = """
from cacheproof.reference.kv_cache_manager import KVCacheManager

class Leaking(KVCacheManager):
    def free(self, request):
        first, *others = self.pop_blocks_for_free(request) or [None]
        self.block_pool.free_blocks(reversed(others))

class CachingAhead(KVCacheManager):
    def allocate_slots(self, request, num_new_tokens, **further):
        slots = super().allocate_slots(request, num_new_tokens, **further)
        (table, *_) = self.get_block_ids(request.request_id)
        if slots is not None:
            size = self.kv_cache_config.scheduler_block_size
            self.cache_blocks(request, min(request.num_tokens, len(table) * size))
        return slots
"""


@pytest.mark.full
@pytest.mark.parametrize(
    ("name", "lane"),
    [("Leaking", "scheduler"), ("CachingAhead", "scheduler with KV loads")],
)
def test_a_faulty_kv_cache_manager_lets_the_real_scheduler_decide_otherwise(
    name: str, lane: str, target_of_mine: OpeningOfMine, target: Opening
) -> None:
    mine = target_of_mine(name, FAULTY_KV_CACHES)
    traces = [LANES[lane].trace(seed, NEWEST) for seed in range(20)]
    assert len(partings(target(f"vllm@{NEWEST}"), mine, traces)) > 2


@pytest.mark.full
def test_a_kv_cache_manager_may_build_on_the_one_of_the_release(
    target_of_mine: OpeningOfMine, target: Opening
) -> None:
    mine = target_of_mine(
        "Mine",
        "from vllm.v1.core.kv_cache_manager import KVCacheManager\n"
        "class Mine(KVCacheManager):\n"
        "    def free(self, request):\n"
        "        pass\n",
    )
    traces = [scheduler_trace(seed) for seed in range(20)]
    assert len(partings(target(f"vllm@{NEWEST}"), mine, traces)) > 10


@pytest.mark.full
def test_a_kv_cache_manager_is_searched_in_the_scheduler_lanes(run: Run, tmp_path: Path) -> None:
    arguments = "--seeds", "0:3", "--findings", tmp_path, "--json", "-"
    ran = run("fuzz", "--target", f"{KV_CACHE}@{NEWEST}", *arguments)
    report = json.loads(ran.out)
    lanes = {one["name"] for one in report["lanes"]}
    assert lanes == {lane.name for lane in LANES.values() if lane.depth == "scheduler"}
    assert all(one["known_note"] for one in report["findings"])


@pytest.mark.full
def test_no_kv_cache_manager_stands_in_where_more_is_asked_of_it(run: Run) -> None:
    ran = run("fuzz", "--target", f"{KV_CACHE}@0.28.0", "--seeds", "0:1")
    assert ran.code == 2
    (line,) = ran.err.splitlines()
    assert "stands in from 0.32.0 on" in line


@pytest.mark.full
def test_the_real_scheduler_breaks_nothing_with_the_reference_manager_but_what_is_its_own(
    run: Run, tmp_path: Path
) -> None:
    seeds = f"0:{len(SCHEDULER_SEEDS)}"
    arguments = "--depth", "scheduler", "--seeds", seeds, "--findings", tmp_path, "--json", "-"
    ran = run("fuzz", "--target", f"{REFERENCE}@{NEWEST}", *arguments)
    assert ran.code == 0
    report = json.loads(ran.out)
    assert report["void_because"] == []
    assert report["lanes"][0]["calls"] > 1000
    assert all(one["known_note"] for one in report["findings"])


def test_a_manager_is_searched_by_itself_and_in_a_scheduler_and_in_no_engine(
    target_of_mine: OpeningOfMine,
) -> None:
    mine = target_of_mine(
        "Mine",
        "from cacheproof.reference.encoder_cache import EncoderCacheManager\n"
        "class Mine(EncoderCacheManager): pass\n",
    )
    lanes = lanes_for([*LANES.values()], mine, CommandOutput(None))
    assert {lane.depth for lane in lanes} == {"manager", "scheduler"}
    assert {lane.manager for lane in lanes} == {"encoder_cache"}


@pytest.mark.full
def test_a_manager_built_on_the_reference_is_found_in_the_current_folder(
    target_of_mine: OpeningOfMine,
) -> None:
    mine = target_of_mine(
        "Mine",
        "from cacheproof.reference.encoder_cache import EncoderCacheManager\n"
        "class Mine(EncoderCacheManager):\n"
        "    def can_allocate(self, request, input_id, budget, pending):\n"
        "        return super().can_allocate(request, input_id, 10 ** 6, pending)\n",
    )
    assert mine.plug_in_kind == "encoder_cache"
    outcome = search(mine, [LANES["encoder cache"]], against=None, seeds=range(120))
    assert {contract for contract, _ in outcome.broken} == {"EC-12"}


def test_a_host_sees_the_reference_and_nothing_else_that_is_installed_here(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, target: Opening
) -> None:
    (tmp_path / "mine.py").write_text(
        "import importlib.util\n"
        "from cacheproof.reference.encoder_cache import EncoderCacheManager\n"
        "assert importlib.util.find_spec('hypothesis') is None\n"
        "class Mine(EncoderCacheManager): pass\n"
    )
    monkeypatch.chdir(tmp_path)
    assert target(f"mine:Mine@{NEWEST}").plug_in_kind == "encoder_cache"


@pytest.mark.full
def test_an_encoder_decoder_manager_is_driven_as_one(target: Opening) -> None:
    name = "cacheproof.reference.encoder_decoder_cache:EncoderDecoderCacheManager"
    mine = target(f"{name}@{NEWEST}")
    assert mine.plug_in_kind == "encoder_decoder"
    assert search(mine, [LANES["encoder-decoder"]], against=None, seeds=range(20)).breaks == []


@pytest.mark.full
def test_the_real_scheduler_breaks_nothing_with_the_reference_manager_of_encoder_decoders(
    target: Opening,
) -> None:
    """With its own it credits what was never debited."""
    lane = LANES["scheduler of encoder-decoders"]
    name = "cacheproof.reference.encoder_decoder_cache:EncoderDecoderCacheManager"
    with_reference, own = target(f"{name}@{NEWEST}"), target(f"vllm@{NEWEST}")
    assert search(with_reference, [lane], against=None, seeds=SCHEDULER_SEEDS).breaks == []
    broken = search(own, [lane], against=None, seeds=SCHEDULER_SEEDS).broken
    assert {contract for contract, _ in broken} == {"ED-1", "ED-2", "ED-5", "WM-3"}


@pytest.mark.sample(3)
@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("no.such.module:Manager", "no module no.such.module in "),
        ("json.no:Manager", "no module json.no in "),
        ("vllm.v1.core.sched.async_scheduler:AsyncScheduler", "no manager of an encoder cache"),
        ("json.decoder:Manager", "AttributeError"),
        ("os:path", "os:path is no class"),
    ],
)
def test_a_class_that_is_not_there_is_the_users_error(run: Run, name: str, words: str) -> None:
    ran = run("fuzz", "--target", f"{name}@{NEWEST}", "--seeds", "0:1")
    assert ran.code == 2
    assert ran.out == ""
    (line,) = ran.err.splitlines()
    assert words in line
    assert "expected MODULE:CLASS" in line


@pytest.mark.full
@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("def f():\n    raise ValueError('a\\nb\\x1b[0m')\nf()", r"ValueError: a b\x1b[0m (%s:2)"),
        ("import nothing_there", "ModuleNotFoundError: No module named 'nothing_there' (%s:1)"),
        ("import sys\nsys.exit('words')", "SystemExit: words (%s:2)"),
        ("def f(:", "SyntaxError: invalid syntax (mine.py, line 1)"),
    ],
)
def test_a_plug_in_that_raises_says_what_and_where(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, words: str
) -> None:
    (file := tmp_path / "mine.py").write_text(text)
    monkeypatch.chdir(tmp_path)
    refusal = run("fuzz", "--target", f"mine:Mine@{NEWEST}", "--seeds", "0:1").refusal
    assert words.replace("%s", str(file)) in refusal


@pytest.mark.parametrize("name", ["..:x", "a/b:C", "a:b:c", ":C", "a.:C", "os:9"])
def test_what_is_no_name_of_a_class_starts_nothing(run: Run, name: str) -> None:
    for command in ("fuzz", "prove", "explore"):
        assert "MODULE:CLASS" in run(command, "--target", name).refusal
