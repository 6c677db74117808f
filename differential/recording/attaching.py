"""Has every scheduler, model runner and cache of processed media of this process recorded, and
where a front end ends."""

import atexit
import functools
import logging
import os
import secrets
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from importlib.metadata import version
from pathlib import Path
from typing import Any

from cacheproof.differential.recording import plugin, settings, vllm_text
from cacheproof.differential.recording.answers import AnswersRecording
from cacheproof.differential.recording.engine import SchedulerRecording
from cacheproof.differential.recording.hashing import Hasher
from cacheproof.differential.recording.processed_media import (
    MediaRecording,
    ReceiverRecording,
    SenderRecording,
)
from cacheproof.differential.recording.worker import WorkerRecording
from cacheproof.differential.recording.writer import Limits, Writer
from cacheproof.differential.targets.after_import import after_import
from cacheproof.differential.targets.host.vllm_objects.media_caches import (
    RECEIVERS,
    SENDERS,
    SHARED_RECEIVERS,
    SHARED_SENDERS,
)
from cacheproof.differential.targets.host.vllm_objects.scheduler import ConfiguredScheduler

MEDIA_CACHES = (
    (SenderRecording, "lru", SENDERS),
    (ReceiverRecording, "lru", RECEIVERS),
    (SenderRecording, "shm", SHARED_SENDERS),
    (ReceiverRecording, "shm", SHARED_RECEIVERS),
)
DEATH_SECONDS = 2.0
_logger = logging.getLogger("vllm.cacheproof")
_lock = threading.Lock()
_count = 0
_attached = False


def attach() -> None:
    """Wrap the constructors of the classes, once in a process. Raises what keeps the recording from
    beginning."""
    global _attached
    with _lock:
        if _attached:
            return
        _attached = True
    folder = Path(os.environ[plugin.FOLDER]).absolute()
    folder.mkdir(parents=True, exist_ok=True)
    # One salt for all processes of an engine: those that this one starts inherit it.
    salt = os.environ.setdefault(plugin.SALT, secrets.token_hex(16))
    hasher = Hasher(bytes.fromhex(salt), plain=os.environ.get(plugin.PLAIN) == "1")
    total = int(os.environ.get(plugin.LIMITS, "1024")) << 20
    limits = Limits(file_bytes=max(1 << 20, min(64 << 20, total // 8)), total_bytes=total)
    _attach_schedulers(folder, hasher, limits)
    _attach_runners(folder, hasher, limits)
    _attach_media(folder, hasher, limits)
    _attach_answers(folder, hasher, limits)


def _attach_schedulers(folder: Path, hasher: Hasher, limits: Limits) -> None:
    def begin(scheduler: ConfiguredScheduler) -> None:
        writer = _writer(folder, "scheduler", limits)
        facts = settings.of_vllm(
            with_kv=os.environ.get(plugin.KV) == "1", text=vllm_text.begin_reading()
        )
        recording = SchedulerRecording(scheduler, writer, hasher, facts)
        atexit.register(recording.close)
        writers.append(writer)

    writers: list[Writer] = []
    after_import(
        "vllm.v1.core.sched.scheduler", lambda module: _after_construction(module.Scheduler, begin)
    )
    after_import("vllm.v1.engine.core", lambda module: flush_before_death(module, writers))


def flush_before_death(module: Any, writers: Sequence[Writer]) -> None:
    """Have all written before an engine says that it is dead: its server ends then, and what ends
    with the server has no time left."""
    say = getattr(module.EngineCoreProc, "_send_engine_dead", None)
    if say is None:
        return

    @functools.wraps(say)
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        end = time.monotonic() + DEATH_SECONDS
        for writer in writers:
            with suppress(Exception):  # whatever is wrong with us, the engine says it
                writer.flush(max(0.0, end - time.monotonic()))
        return say(*args, **kwargs)

    module.EngineCoreProc._send_engine_dead = wrapped


def _attach_runners(folder: Path, hasher: Hasher, limits: Limits) -> None:
    def begin(runner: Any) -> None:
        rank = getattr(runner.vllm_config.parallel_config, "rank", 0)
        writer = _writer(folder, f"worker-{rank}", limits)
        opened = settings.opened_as(
            "worker", version("vllm"), {"rank": rank}, plain=hasher.is_plain
        )
        WorkerRecording(runner, writer, hasher, opened)
        atexit.register(writer.close)

    for module in ("vllm.v1.worker.gpu_model_runner", "vllm.v1.worker.gpu.model_runner"):
        after_import(module, lambda found: _after_construction(found.GPUModelRunner, begin))


def _attach_media(folder: Path, hasher: Hasher, limits: Limits) -> None:
    def begin(recording: type[MediaRecording], store: str, cache: Any) -> None:
        role = recording.role
        writer = _writer(folder, role, limits)
        opened = settings.opened_as(role, version("vllm"), {"store": store}, plain=hasher.is_plain)
        recording(cache, writer, hasher, opened)
        atexit.register(writer.close)

    def attach(module: Any) -> None:
        for recording, store, names in MEDIA_CACHES:
            # A release may keep an earlier name for the same class.
            for kind in {getattr(module, name, None) for name in names} - {None}:
                _after_construction(kind, functools.partial(begin, recording, store))

    after_import("vllm.multimodal.cache", attach)


def _attach_answers(folder: Path, hasher: Hasher, limits: Limits) -> None:
    def begin(processor: Any) -> None:
        opened = settings.opened_as("answers", version("vllm"), {}, plain=hasher.is_plain)
        AnswersRecording(processor, lambda: _writer(folder, "answers", limits), hasher, opened)

    after_import(
        "vllm.v1.engine.output_processor",
        lambda module: _after_construction(module.OutputProcessor, begin),
    )


def _writer(folder: Path, role: str, limits: Limits) -> Writer:
    global _count
    with _lock:
        _count += 1
        return Writer(folder, f"{role}-{os.getpid()}-{_count}", limits)


def _after_construction(kind: Any, begin: Callable[[Any], None]) -> None:
    """Have `begin` called with each object of the class as that class's constructor ends."""
    construct = kind.__init__

    @functools.wraps(construct)
    def wrapped(self: Any, *args: Any, **kwargs: Any) -> None:
        construct(self, *args, **kwargs)
        try:
            begin(self)
        except Exception as error:
            _logger.warning("cacheproof: nothing is recorded: %s: %s", type(error).__name__, error)

    kind.__init__ = wrapped
