"""A record says which text of vLLM ran, whoever put it there, and an engine never fails over it."""

import functools
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typing_extensions

from cacheproof.differential.recording import vllm_text
from cacheproof.differential.recording.messages import Text

MODULE = "vllm.v1.core.sched.scheduler"
SCHEDULER = """
class Scheduler:
    def schedule(self):
        return 1

    @property
    def room(self):
        return 1

    @staticmethod
    def _of_nobody():
        return 1

def preempted():
    return 1
"""
NOTHING: dict[str, str] = {}


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """The module of a vLLM that holds little else than a scheduler."""
    folder = tmp_path.joinpath(*MODULE.split(".")[:-1])
    folder.mkdir(parents=True)
    (folder / "scheduler.py").write_text(SCHEDULER)
    (tmp_path / "vllm" / "__init__.py").write_text('__version__ = "0.33.0+cpu"')
    monkeypatch.syspath_prepend(tmp_path)
    reading = vllm_text.of_files
    reading.cache_clear()
    import vllm.v1.core.sched.scheduler as module

    yield module
    reading.cache_clear()
    for name in [one for one in sys.modules if one.partition(".")[0] == "vllm"]:
        del sys.modules[name]


def differing(scheduler: Any) -> dict[str, str]:
    """What of a scheduler's vLLM is not as its files say."""
    text = vllm_text.text_of(scheduler)
    assert text is not None
    ways = (vllm_text.REPLACED, vllm_text.ITS_OWN)
    return {name: how for name, how in text.differing.items() if how in ways}


def another(self: Any) -> int:
    return 2


def test_what_runs_as_its_files_say_differs_by_them_alone(module: Any) -> None:
    scheduler = module.Scheduler()
    assert differing(scheduler) == NOTHING
    text = vllm_text.text_of(scheduler)
    assert text is not None
    assert text.differing["Scheduler.schedule"] == "changed"
    assert text.differing["EncoderCacheManager.allocate"] == "gone"
    assert text.differing["preempted"] == "new"


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("schedule", another),
        ("room", property(another)),
        ("_of_nobody", staticmethod(another)),
        ("schedule", functools.cache(another)),
        ("of_a_plug_in", another),
    ],
)
def test_a_method_that_a_plug_in_replaces_or_adds_differs(
    module: Any, name: str, value: Any
) -> None:
    setattr(module.Scheduler, name, value)
    assert differing(module.Scheduler()) == {f"Scheduler.{name}": vllm_text.REPLACED}


def test_a_method_that_a_plug_in_wraps_differs_and_one_that_python_wraps_does_not(
    module: Any,
) -> None:
    method = module.Scheduler.schedule
    module.Scheduler.schedule = functools.cache(method)
    assert differing(module.Scheduler()) == NOTHING
    module.Scheduler.schedule = functools.wraps(method)(lambda self: method(self) + 1)
    assert differing(module.Scheduler()) == {"Scheduler.schedule": vllm_text.REPLACED}


def test_a_decorator_of_a_library_that_vllm_uses_is_none_of_a_plug_in(module: Any) -> None:
    deprecated = typing_extensions.deprecated("soon gone")
    module.Scheduler.schedule = deprecated(module.Scheduler.schedule)
    assert differing(module.Scheduler()) == NOTHING
    module.Scheduler.schedule = deprecated(another)
    assert differing(module.Scheduler()) == {"Scheduler.schedule": vllm_text.REPLACED}


def test_a_function_or_class_that_a_plug_in_replaces_differs(module: Any) -> None:
    module.preempted = another
    scheduler = module.Scheduler()
    assert differing(scheduler) == {"preempted": vllm_text.REPLACED}
    module.Scheduler = type("Scheduler", (), {})
    assert differing(scheduler) == {
        "preempted": vllm_text.REPLACED,
        "Scheduler": vllm_text.REPLACED,
    }


def test_a_scheduler_and_managers_of_a_plug_in_are_its_own(module: Any) -> None:
    class Another(module.Scheduler):  # type: ignore[misc]
        encoder_cache_manager = Text("", 0, {})

    found = differing(Another())
    assert set(found.values()) == {vllm_text.ITS_OWN}
    assert f"{Another.__module__}.{Another.__qualname__}" in found
    assert f"{Text.__module__}.Text" in found


def test_a_checkout_without_a_version_is_read_as_well(module: Any) -> None:
    said = vllm_text.text_of(module.Scheduler())
    sys.modules["vllm"].__version__ = "dev"  # type: ignore[attr-defined]
    vllm_text.of_files.cache_clear()
    assert vllm_text.text_of(module.Scheduler()) == said


def test_a_thread_reads_ahead_and_says_the_same(module: Any) -> None:
    said = vllm_text.begin_reading()(module.Scheduler())
    assert said == vllm_text.text_of(module.Scheduler())
    assert vllm_text.of_files.cache_info().misses == 1


@pytest.mark.parametrize("source", ["class :", "\0", "x = " + "-" * 100_000 + "1"])
def test_what_cannot_be_read_is_not_said_and_logged(
    module: Any, caplog: pytest.LogCaptureFixture, source: str
) -> None:
    Path(module.__file__).write_text(source)
    with caplog.at_level("WARNING", "vllm.cacheproof"):
        assert vllm_text.begin_reading()(module.Scheduler()) is None
    (line,) = caplog.messages
    assert line.startswith("cacheproof: the record does not say which text of vLLM ran: InputErr")


def test_a_reading_that_does_not_end_is_not_waited_for(
    module: Any, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    ends = threading.Event()
    monkeypatch.setattr(vllm_text, "of_files", ends.wait)
    monkeypatch.setattr(vllm_text, "WAIT_SECONDS", 0.0)
    with caplog.at_level("WARNING", "vllm.cacheproof"):
        assert vllm_text.begin_reading()(module.Scheduler()) is None
    ends.set()
    assert "takes too long" in caplog.text
