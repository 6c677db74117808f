"""A finding is whole: shrunk, replayed, fit for one screen, and safe to load from a stranger."""

import io
import json
import random
from collections.abc import Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path
from types import SimpleNamespace

import msgspec
import pytest
from rich.console import Console

from cacheproof.differential.errors import InputError
from cacheproof.differential.findings.finding import LOCKSTEP, Finding, found_in, of_run, replay
from cacheproof.differential.findings.finding_file import load, path_of, save
from cacheproof.differential.findings.report import print_finding
from cacheproof.differential.findings.standalone.writing import standalone_test
from cacheproof.differential.generators.manager import manager_trace
from cacheproof.differential.generators.scheduler import scheduler_trace
from cacheproof.differential.judges.examination import examine
from cacheproof.differential.lanes.all_lanes import LANES
from cacheproof.differential.targets.reference import ReferenceTarget
from cacheproof.differential.traces import manager as events
from cacheproof.differential.traces.base import Item
from cacheproof.differential.traces.records import TraceResult
from cacheproof.differential.traces.trace import Trace
from cacheproof.differential.traces.trace_file import dump
from cacheproof.differential.traces.wording import program
from cacheproof.reference.encoder_cache import EncoderCacheManager
from cacheproof.reference.encoder_decoder_cache import EncoderDecoderCacheManager
from cacheproof.reference.semantics import Semantics

FAULTS = [
    ("0.28.0", "encoder_cache", "EC-6", 0),
    ("0.28.0", "encoder_cache", "EC-6a", 0),
    ("0.28.0", "encoder_cache", "EC-7", 268),
    ("0.27.1", "encoder_cache", "EC-9", 0),
    ("0.33.0", "encoder_decoder", "ED-1", 0),
    ("0.33.0", "encoder_decoder", "ED-2", 0),
    ("0.14.0", "encoder_decoder", "ED-3", 0),
    ("0.14.0", "encoder_decoder", "WM-4", 0),
]


def faulty(release: str) -> ReferenceTarget:
    """The reference with that release's faults."""
    return ReferenceTarget(Semantics.of_vllm(release), name=f"reference@{release}", release=release)


@cache
def find(release: str, manager: str, contract: str, seed: int) -> Finding:
    finding = found_in(faulty(release), manager_trace(seed, manager), contract, seconds=1.25)
    assert finding is not None
    return finding


@pytest.fixture(scope="module")
def repeated_item() -> Finding:
    return find("0.28.0", "encoder_cache", "EC-6a", 0)


@pytest.mark.sample(8)
@pytest.mark.parametrize(("release", "manager", "contract", "seed"), FAULTS)
def test_a_known_fault_is_found_small_and_replayed(
    release: str, manager: str, contract: str, seed: int
) -> None:
    finding = find(release, manager, contract, seed)
    assert len(finding.events) <= 10
    assert finding.replays == "10 of 10"
    assert finding.sentence.startswith(f"{contract} at event {finding.event + 1}")
    assert finding.seed == seed
    assert finding.known is None


def test_what_holds_is_no_finding() -> None:
    assert found_in(ReferenceTarget(), manager_trace(0), "EC-6a") is None


def test_what_is_made_small_breaks_nothing_else_first() -> None:
    held_up = Semantics.ideal().without("scheduler.tries_all_holders")
    finding = found_in(
        ReferenceTarget(held_up), scheduler_trace(3534, kv_transfers=True), "LV-1", batches=40
    )
    assert finding is not None
    target = ReferenceTarget(held_up)
    small = examine(finding.trace, target.run([finding.trace])[0], target)
    assert set(small.violations) == {"LV-1"}  # and no request that could never be scheduled (LV-2)


def test_the_same_fault_from_two_seeds_is_one_finding() -> None:
    keys = {find("0.28.0", "encoder_cache", "EC-6a", seed).key for seed in (0, 1, 7)}
    assert keys == {
        ("EC-6a", "encoder_cache; add a[x x]; walk a; notices; update"),
    }


def test_a_difference_from_the_reference_names_the_field_and_both_values() -> None:
    reference = ReferenceTarget(Semantics.of_vllm("0.33.0"))
    finding = found_in(faulty("0.28.0"), manager_trace(0), LOCKSTEP, reference)
    assert finding is not None
    assert finding.harm == "difference"
    assert finding.parting is not None
    assert finding.parting.field in finding.why
    assert len(finding.events) <= 10
    screen = printed(finding)
    assert "reference@0.28.0" in screen
    assert str(finding.parting.field) in screen


def test_an_annotation_names_the_public_thread(repeated_item: Finding) -> None:
    known = repeated_item.annotated("vLLM PR #54284", "released too early")
    assert "vLLM PR #54284: released too early" in printed(known)
    assert known.key == repeated_item.key


# replaying


def test_ten_replays_give_one_digest(repeated_item: Finding) -> None:
    runs = replay(repeated_item, faulty("0.28.0"), 10)
    assert (runs.same, runs.broke, runs.times) == (10, 10, 10)
    assert set(runs.digests) == {repeated_item.digest}


def test_a_replay_where_it_is_fixed_breaks_nothing(repeated_item: Finding) -> None:
    runs = replay(repeated_item, faulty("0.33.0"), 4)
    assert (runs.same, runs.broke) == (4, 0)
    assert "broke in 0 of 4 on reference@0.33.0" in runs.sentence


def test_a_plain_trace_replays_too(repeated_item: Finding) -> None:
    runs = replay(repeated_item.trace, faulty("0.28.0"), 2)
    assert (runs.same, runs.broke) == (2, 2)
    assert "EC-6a" in runs.sentence


def test_half_of_the_replays_run_in_another_process(repeated_item: Finding) -> None:
    class Watched(ReferenceTarget):
        def __init__(self) -> None:
            super().__init__()
            self.log = ""
            self.twin: Watched | None = None

        def run(self, traces: Sequence[Trace], fault: str | None = None) -> list[TraceResult]:
            self.log += "r"
            return super().run(traces, fault)

        def another(self) -> ReferenceTarget:
            self.twin = Watched()
            return self.twin

        def close(self) -> None:
            self.log += "c"

    target = Watched()
    replay(repeated_item, target, 4)
    assert target.twin is not None
    assert (target.log, target.twin.log) == ("rr", "rrc")


def test_a_target_that_answers_otherwise_each_time_is_seen(repeated_item: Finding) -> None:
    class Fickle(ReferenceTarget):
        runs = 0

        def run(self, traces: Sequence[Trace]) -> list[TraceResult]:
            self.runs += 1
            release = "0.28.0" if self.runs % 2 else "0.33.0"
            return faulty(release).run(traces)

    runs = replay(repeated_item, Fickle(release="0.28.0"), 10)
    assert (runs.same, runs.broke) == (5, 5)


# files


def test_a_finding_survives_its_file(repeated_item: Finding, tmp_path: Path) -> None:
    document, test = save(repeated_item, tmp_path / "findings")
    assert test.name == f"test_{document.stem}.py"
    assert load(document) == msgspec.structs.replace(repeated_item, standalone=test.name)
    assert sorted(path.name for path in document.parent.iterdir()) == sorted(
        (document.name, test.name)
    )


def test_a_finding_behind_a_break_in_another_kind_survives_its_file(tmp_path: Path) -> None:
    target = ReferenceTarget(Semantics.of_vllm("0.33.0"), release="0.33.0")
    trace = LANES["media hash"].trace(0, "0.33.0")
    earlier, later = of_run(target, trace, replay(trace, target, 1))
    assert earlier.contract == later.contract == "MH-3"
    assert earlier.event < later.event
    for finding in (earlier, later):
        saved, *_ = save(finding, tmp_path)
        assert load(saved).digest == finding.digest


def test_a_trace_file_loads_as_a_trace(tmp_path: Path) -> None:
    path = tmp_path / "trace.jsonl"
    path.write_text(dump(manager_trace(3)))
    assert load(path) == manager_trace(3)


def test_the_same_finding_is_written_over(repeated_item: Finding, tmp_path: Path) -> None:
    save(repeated_item, tmp_path)
    later = msgspec.structs.replace(repeated_item, seconds=9.0)
    document, _ = save(later, tmp_path)
    again = load(document)
    assert isinstance(again, Finding)
    assert again.seconds == 9.0
    assert len(list(tmp_path.iterdir())) == 2


def test_another_finding_lands_beside_it(repeated_item: Finding, tmp_path: Path) -> None:
    other = msgspec.structs.replace(repeated_item, digest="0" * 64)
    assert path_of(other, tmp_path) != path_of(repeated_item, tmp_path)


def test_a_folder_that_cannot_be_written_is_named(repeated_item: Finding, tmp_path: Path) -> None:
    (tmp_path / "taken").write_text("a file")
    with pytest.raises(InputError, match="taken: cannot be written"):
        save(repeated_item, tmp_path / "taken")


def refused(content: bytes, path: Path) -> str:
    """The one line with which a file is refused."""
    path.write_bytes(content)
    with pytest.raises(InputError) as caught:
        load(path)
    line = str(caught.value)
    assert "\n" not in line
    assert line.startswith(str(path))
    return line


@pytest.mark.parametrize(
    ("field", "value", "reason"),
    [
        ("schema_version", 2, "schema_version 2; this cacheproof reads 1"),
        ("contract", "EC-99", "do not break EC-99"),
        ("contract", "EC-1", "do not break EC-1"),
        ("event", 0, "at the event named"),
        ("event", 10**9, "at the event named"),
        ("digest", "0", "do not add up to the digest"),
        ("records", [], "do not add up to the digest"),
        ("protocol", {}, "protocol lacks, or has too much, claims_duplicates, counts_embeds"),
        ("events", "none", "Expected `array`"),
        ("configuration", {"depth": "deep"}, "deep"),
        ("release", "newest", "do not break"),
        ("surprise", 1, "unknown field `surprise`"),
    ],
)
def test_an_edited_finding_is_refused_in_one_line(
    field: str, value: object, reason: str, repeated_item: Finding, tmp_path: Path
) -> None:
    document = json.loads(msgspec.json.encode(repeated_item))
    document[field] = value
    assert reason in refused(json.dumps(document).encode(), tmp_path / "edited.json")


def test_records_of_another_trace_are_refused(repeated_item: Finding, tmp_path: Path) -> None:
    other = find("0.28.0", "encoder_cache", "EC-6", 0)
    mixed = msgspec.structs.replace(other, events=repeated_item.events)
    assert "do not break" in refused(msgspec.json.encode(mixed), tmp_path / "mixed.json")


def test_garbage_is_refused_in_one_line(repeated_item: Finding, tmp_path: Path) -> None:
    whole = msgspec.json.encode(repeated_item)
    random_bytes = random.Random("garbage")
    for number in range(300):
        content = bytearray(whole)
        match number % 3:
            case 0:
                del content[random_bytes.randrange(1, len(content)) :]
            case 1:
                position = random_bytes.randrange(len(content))
                content[position] = random_bytes.randrange(256)
            case _:
                start = random_bytes.randrange(len(content))
                content[start:start] = b"[" * random_bytes.choice((1, 5000))
        path = tmp_path / "garbage.json"
        path.write_bytes(bytes(content))
        with suppress(InputError):  # a changed letter in a sentence is no harm
            load(path)


# the screen


def printed(finding: Finding, file: str = "finding.json") -> str:
    console = Console(file=io.StringIO(), width=100)
    print_finding(finding, console, file)
    assert isinstance(console.file, io.StringIO)
    return "\n".join(line.rstrip() for line in console.file.getvalue().splitlines()) + "\n"


GOLDEN = """\
reference@0.28.0: EC-6a at event 4 (release) on a, x
  Who needs a resident entry holds it
  safety; vLLM PR #54284; without it EC-6 does not follow from the eviction rule

events
  config = ManagerConfig(capacity=2, compute_budget=2)
  header = ManagerHeader(schema=1, manager="encoder_cache", config=config)
  trace = Trace(header, (
      Add("a", prompt=4, items=(Item("x", offset=0, length=2), Item("x", offset=2, length=2))),
      Walk("a", tokens=3),
      Notices(),
      Update(),
  ))

first wrong step: event 4
                  before  after
  freeable slots  0       2
  holders of x    {a}     {}
  queue           empty   x:2

both sides
  for h = 'x': g.needed[h] <= s.holders[h] is false: {'a'} <= {}

lanes
      scheduler                                ledger                                     store
   1  a arrives with x [0, 2), x [2, 4)
   2  3 tokens of a are scheduled; encode a#0  free 2 -> 0, freeable 2 -> 0, x held by a
   3  schedule() returns, and the worker runs                                             +x
  >4  the step's output arrives                freeable 0 -> 2, x idle

replay   cacheproof replay finding.json --target reference@0.28.0 --times 10
replays  10 of 10 identical, digest <its digest>
found    seed 0 of encoder-cache/1, after 1.2 s
known    not listed
fault    a new one, as far as the list says

"""


def test_the_screen_is_as_it_was(repeated_item: Finding) -> None:
    screen = printed(repeated_item)
    assert screen.replace(repeated_item.digest[:12], "<its digest>") == GOLDEN


@pytest.mark.parametrize(("release", "manager", "contract", "seed"), FAULTS)
def test_a_screen_is_a_screen(release: str, manager: str, contract: str, seed: int) -> None:
    lines = printed(find(release, manager, contract, seed)).splitlines()
    assert len(lines) <= 55
    assert all(len(line) <= 100 for line in lines)


@pytest.mark.parametrize("seed", range(20))
def test_the_printed_events_can_be_pasted(seed: int) -> None:
    trace = manager_trace(seed, "encoder_cache", None, resized=True)
    header = msgspec.structs.replace(trace.header, seed=None, generator=None)
    names: dict[str, object] = {}
    given = {**vars(events), "Item": Item, "Trace": Trace}
    exec("\n".join(program(trace)), given, names)
    assert names["trace"] == Trace(header, trace.events)


# the standalone test


def run_standalone(finding: Finding, release: str) -> None:
    """Run the test's function with the reference's managers in the place of vLLM's."""
    source = standalone_test(finding)
    assert source is not None
    kept = [line for line in source.splitlines() if not line.startswith("from vllm")]
    semantics = Semantics.of_vllm(release)
    scheduler = SimpleNamespace(_allocate_encoder_inputs=None)
    if release < "0.29":
        del scheduler._allocate_encoder_inputs
    names = {
        "Scheduler": scheduler,
        "EncoderCacheManager": lambda cache_size: EncoderCacheManager(
            cache_size, semantics.encoder_cache
        ),
        "EncoderDecoderCacheManager": lambda cache_size: EncoderDecoderCacheManager(
            cache_size, semantics.encoder_cache
        ),
    }
    exec("\n".join(kept), names)
    (test,) = [thing for name, thing in names.items() if name.startswith("test_")]
    test()  # type: ignore[operator]


FIXED_IN = {
    "EC-6": "0.33.0", "EC-6a": "0.33.0", "EC-7": "0.33.0", "EC-9": "0.28.0",
    "ED-3": "0.15.1", "WM-4": "0.15.1",
}  # fmt: skip


@pytest.mark.parametrize(("release", "manager", "contract", "seed"), FAULTS)
def test_the_standalone_test_fails_where_it_was_found_and_passes_where_it_is_fixed(
    release: str, manager: str, contract: str, seed: int
) -> None:
    finding = find(release, manager, contract, seed)
    with pytest.raises(AssertionError):
        run_standalone(finding, release)
    if contract in FIXED_IN:
        run_standalone(finding, FIXED_IN[contract])


def test_the_standalone_test_imports_nothing_of_this_project(repeated_item: Finding) -> None:
    source = standalone_test(repeated_item)
    assert source is not None
    assert "cacheproof" not in source
    assert all(len(line) <= 100 for line in source.splitlines())


def test_names_cannot_break_out_of_the_standalone_test(repeated_item: Finding) -> None:
    nasty = 'x"""\nraise SystemExit\n"""'
    text = msgspec.json.encode(repeated_item).replace(b'"x"', msgspec.json.encode(nasty))
    finding = msgspec.json.decode(text, type=Finding)
    source = standalone_test(finding)
    assert source is not None
    compile(source, "standalone", "exec")
    assert "\nraise" not in source


@pytest.fixture
def in_a_scheduler() -> Finding:
    """Found in the real Scheduler of vLLM 0.28.0."""
    finding = load(Path(__file__).parent / "data" / "scheduler_finding.json")
    assert isinstance(finding, Finding)
    return finding


def test_a_scheduler_finding_shows_steps_and_configuration(in_a_scheduler: Finding) -> None:
    screen = printed(in_a_scheduler)
    assert "schedule(): 3 tokens of a; encode a#0" in screen
    assert "max_num_batched_tokens=3," in screen


def test_a_scheduler_finding_has_a_test_that_builds_the_scheduler(in_a_scheduler: Finding) -> None:
    source = standalone_test(in_a_scheduler)
    assert source is not None
    compile(source, "standalone", "exec")
    assert "cacheproof" not in source
    assert source.endswith(
        """\
    engine.add("a", prompt=8, items=[("x", 0, 4, None), ("x", 4, 4, None)])
    engine.schedule()  # 3 tokens of a
    engine.update()
    engine.schedule()  # 3 tokens of a
    engine.update()

    manager = engine.manager
    assert "a" in manager.cached["x"]  # not past its last x yet
"""
    )


def test_a_wasted_eviction_has_no_standalone_test_and_says_so(
    in_a_scheduler: Finding, tmp_path: Path
) -> None:
    save(msgspec.structs.replace(in_a_scheduler, contract="EC-8b"), tmp_path)
    (document,) = tmp_path.iterdir()
    standalone = json.loads(document.read_text())["standalone"]
    assert standalone == "none: no attribute shows it after the event"
