"""Where a finding's function stands is read off the target's own files."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from cacheproof.differential.generators.manager import manager_trace
from cacheproof.differential.generators.scheduler import scheduler_trace
from cacheproof.differential.provision import releases
from cacheproof.differential.texts import places
from cacheproof.differential.texts.places import (
    PACKAGE,
    SourceFunction,
    SourcePlace,
    find,
    find_plugged,
    way,
)
from cacheproof.differential.traces.base import tag_of
from cacheproof.differential.traces.manager import Walk
from cacheproof.differential.traces.scheduler import Schedule
from cacheproof.differential.traces.trace import Trace

MANAGERS = "vllm/v1/core/encoder_cache_manager.py"
CAN = SourceFunction("encoder_cache_manager", "EncoderCacheManager", ("can_allocate",))


@pytest.fixture(scope="module")
def newest() -> Path:
    """The files of the newest release."""
    return releases.install("0.33.0", report=print).tree


def functions() -> Iterator[SourceFunction]:
    """All that the tables name."""
    for owner in ("EncoderCacheManager", "EncoderDecoderCacheManager"):
        for names in places._OF_MANAGER.values():
            yield SourceFunction("encoder_cache_manager", owner, names)
    for component, owner, table in (
        ("scheduler", "Scheduler", {**places._OF_SCHEDULER, "schedule": "schedule"}),
        ("kv_cache_manager", "KVCacheManager", places._OF_KV_CACHE),
        ("cpu_connector", "ECCPUConnector", places._OF_CONNECTOR),
        ("example_connector", "ECExampleConnector", places._OF_CONNECTOR),
    ):
        yield from (SourceFunction(component, owner, (name,)) for name in table.values())
    yield places.EXECUTION
    yield SourceFunction("kv_cache_utils", "", ("hash_block_tokens",))
    yield SourceFunction("hasher", "MultiModalHasher", ("hash_kwargs",))


def first_line(tree: Path, place: SourcePlace) -> str:
    return (tree / place.path).read_text().splitlines()[place.line - 1].strip()


@pytest.mark.parametrize("function", sorted(set(functions())), ids=lambda one: one.name)
def test_the_newest_release_has_every_function_that_is_named(
    newest: Path, function: SourceFunction
) -> None:
    found = first_line(newest, find(newest, function))
    named = tuple(f"def {name}(" for name in function.names)
    assert found.startswith((*named, f"class {function.owner}")), found


def test_only_what_a_class_inherits_from_elsewhere_is_shown_as_its_class(newest: Path) -> None:
    shown = {
        one.name
        for one in functions()
        if first_line(newest, find(newest, one)).startswith("class ")
    }
    assert all(one.startswith("EC") for one in shown), shown


def test_an_older_name_is_found_in_the_release_that_has_it() -> None:
    old = releases.install("0.10.1.1", report=print).tree
    asked = SourceFunction(
        "encoder_cache_manager", "EncoderCacheManager", places._OF_MANAGER["check"]
    )
    assert first_line(old, find(old, asked)).startswith("def has_cache(")
    assert asked.name == "EncoderCacheManager.check_and_update_cache"


def test_what_a_tree_has_not_is_shown_as_its_class_its_file_or_the_package(newest: Path) -> None:
    gone = CAN._replace(names=("gone",))
    assert first_line(newest, find(newest, gone)) == "class EncoderCacheManager:"
    assert find(newest, gone._replace(owner="Gone")) == SourcePlace(MANAGERS, 1)
    assert find(newest / "nothing", gone) == SourcePlace(PACKAGE, 1)


def test_a_line_moves_with_its_text(newest: Path, tmp_path: Path) -> None:
    copy = tmp_path / MANAGERS
    copy.parent.mkdir(parents=True)
    copy.write_text("\n" * 7 + (newest / MANAGERS).read_text())
    here, there = find(newest, CAN), find(tmp_path, CAN)
    assert (there.path, there.line) == (here.path, here.line + 7)


def test_a_file_that_is_no_python_is_shown_from_its_package(newest: Path, tmp_path: Path) -> None:
    broken = tmp_path / MANAGERS
    broken.parent.mkdir(parents=True)
    broken.write_text((newest / MANAGERS).read_text() + "\ndef (\n")
    assert find(tmp_path, CAN) == SourcePlace(PACKAGE, 1)


def test_a_plug_in_is_named_where_it_has_the_function_itself(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    file = tmp_path / "company" / "cache.py"
    file.parent.mkdir()
    file.write_text("class Base:\n    def can_allocate(self): ...\n\nclass Mine(Base): ...\n")
    assert find_plugged(file, "Mine", CAN) == SourcePlace("company/cache.py", 2)
    assert find_plugged(file, "Mine", CAN._replace(names=())) == SourcePlace("company/cache.py", 4)
    assert find_plugged(file, "Mine", CAN._replace(names=("free",))) is None
    monkeypatch.chdir(file.parent.parent / "company")
    assert find_plugged(tmp_path / "elsewhere.py", "Mine", CAN) is None


def event_of(trace: Trace, kind: type) -> int:
    return next(number for number, one in enumerate(trace.events) if isinstance(one, kind))


def test_the_way_leads_through_the_scheduler_where_there_is_one() -> None:
    managers, schedulers = manager_trace(3), scheduler_trace(3)
    walk, step = event_of(managers, Walk), event_of(schedulers, Schedule)
    assert tag_of(Schedule) == "schedule"
    assert [one.name for one in way(managers, walk, "can")] == ["EncoderCacheManager.can_allocate"]
    assert [one.name for one in way(managers, walk, "step")] == ["EncoderCacheManager"]
    called = way(schedulers, step, "can")
    assert [one.name for one in called] == [
        "Scheduler.schedule",
        "EncoderCacheManager.can_allocate",
    ]
    assert way(schedulers, step, "can", of_caller=True) == called[:1]
    assert way(schedulers, step, "step") == called[:1]
    (freed,) = way(schedulers, step, "withdraw")
    assert freed.name == "Scheduler._free_request"
