"""Run in a release's interpreter: runs scheduler-depth traces on it, each with a recorder around
the scheduler. Reads {"folder", "runs", "keyframe_steps", "fails_in", "long_way", "with_kv",
"breaks"} as JSON from standard input, a run being a trace and the fault that is planted; "kv: NAME"
is one of the KV cache manager's. Leaves a folder of records for each trace, and prints what the
host itself saw of it."""

import functools
import importlib
import importlib.util
import json
import os
import sys
from itertools import count
from pathlib import Path

import msgspec

OURS = Path(sys.argv[1])


def load_host() -> None:
    """The host's modules, as a host has them."""
    folder = OURS / "differential" / "targets" / "host"
    spec = importlib.util.spec_from_file_location(
        "host", folder / "__init__.py", submodule_search_locations=[str(folder)]
    )
    module = importlib.util.module_from_spec(spec)
    sys.modules["host"] = module
    spec.loader.exec_module(module)


def fail_in(kind, name, is_forever):
    """Have a method of the recorder raise at its third call, and from then on if that is asked."""
    method, calls = getattr(kind, name), count()

    def failing(*args, **kwargs):
        number = next(calls)
        if number == 2 or (is_forever and number > 2):
            raise RuntimeError("on purpose")
        return method(*args, **kwargs)

    setattr(kind, name, failing)


def recorded_kv(session, folders, recordings, keyframe_events):
    """A session whose KV cache manager is recorded. A name that comes back is another request."""
    from host.package import ours

    kv_cache = ours("differential.recording.kv_cache")
    messages = ours("differential.recording.messages")
    writer_of = ours("differential.recording.writer")
    hasher = ours("differential.recording.hashing").Hasher(b"salt", plain=True)

    class Recorded(session):
        def __init__(self, config, kit):
            folder = next(folders)
            folder.mkdir()
            self._writer = writer_of.Writer(folder, "scheduler-1-1", writer_of.Limits())
            self._numbers = {}
            self._arrivals = count()
            self._events = count(1)
            recordings.append(self._writer)
            self._kv = kv_cache.KVCacheRecording(
                kit.manager, hasher, self._numbers.__getitem__, config, [], kit.takes
            )
            self._writer.begin(messages.Opened(messages.SCHEMA, "scheduler", "", "", 1, 0, 0, True))
            self._kv.write(self._writer, is_whole=True)
            super().__init__(config, kit)

        def apply(self, event):
            if event["event"] == "arrive" and event["request"] not in self._lives:
                self._numbers[event["request"]] = next(self._arrivals)
            try:
                return super().apply(event)
            finally:
                is_whole = next(self._events) % keyframe_events == 0
                self._kv.write(self._writer, is_whole=is_whole)

    return Recorded


def record_front_ends(folders, recordings):
    """Have both halves of each cache of processed media recorded."""
    from host.package import ours

    caches = importlib.import_module("host.managers.front_end_release").CACHES
    media = ours("differential.recording.processed_media")
    messages = ours("differential.recording.messages")
    writer_of = ours("differential.recording.writer")
    hasher = ours("differential.recording.hashing").Hasher(b"salt", plain=True)

    def recorded(store, kind, config):
        made = kind(config)
        folder = next(folders)
        folder.mkdir()
        receivers = made._readers if store == "shm" else [made._receiver]
        halves = [(media.SenderRecording, made._sender)]
        halves += [(media.ReceiverRecording, one) for one in receivers]
        for number, (recording, half) in enumerate(halves, 1):
            opened = messages.Opened(messages.SCHEMA, recording.role, "", "", 1, 0, 0, True)
            opened = msgspec.structs.replace(opened, settings={"store": store})
            writer = writer_of.Writer(folder, f"{recording.role}-1-{number}", writer_of.Limits())
            recording(half, writer, hasher, opened)
            recordings.append(writer)
        return made

    for store in ("lru", "shm"):
        caches[store] = functools.partial(recorded, store, caches[store])


def main() -> None:
    results = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    job = json.load(sys.stdin)
    load_host()
    from host.package import ours
    from host.torch_names import answer

    answer()
    release = __import__("host.release", fromlist=["HOST"]).HOST()
    from host import release as module
    from host.protocol import Illegal

    engine = ours("differential.recording.engine")
    settings = ours("differential.recording.settings")
    writer_of = ours("differential.recording.writer")
    text_of = ours("differential.recording.vllm_text").text_of
    engine.KEYFRAME_STEPS = job["keyframe_steps"]
    if job["long_way"]:
        engine.SchedulerRecording._goes_on = lambda self, output: False
    if job["fails_in"] is not None:
        module_name, kind, method, is_forever = job["fails_in"]
        fail_in(getattr(ours(f"differential.recording.{module_name}"), kind), method, is_forever)
    if job["breaks"] is not None:
        module_name, kind, method, says = job["breaks"]
        part = ours(f"differential.recording.{module_name}")
        setattr(getattr(part, kind) if kind else part, method, lambda *_, **__: says)
    protocol = release.hello(None)["protocol"]
    session = module.SchedulerSession
    folders = iter(Path(job["folder"]) / str(number) for number in range(len(job["runs"])))
    recordings, kv_faults = [], []
    plant = importlib.import_module("host.faults.kv_cache").KV_CACHE_FAULTS

    class Recorded(session):
        """A session whose scheduler is recorded, with whatever fault is planted in it."""

        def __init__(self, kit, config):
            folder = next(folders)
            folder.mkdir()
            for fault in kv_faults:
                plant[fault](kit.scheduler.kv_cache_manager)
            writer = writer_of.Writer(folder, "scheduler-1-1", writer_of.Limits())
            hasher = ours("differential.recording.hashing").Hasher(b"salt", plain=True)
            facts = settings.of_vllm(with_kv=job["with_kv"], text=text_of)
            recordings.append(engine.SchedulerRecording(kit.scheduler, writer, hasher, facts))
            super().__init__(kit, config)

    module.SchedulerSession = Recorded
    module.KVCacheSession = recorded_kv(
        module.KVCacheSession, folders, recordings, job["keyframe_steps"]
    )
    if any(trace["header"]["depth"] == "front_end" for trace, _ in job["runs"]):
        record_front_ends(folders, recordings)
    for trace, fault in job["runs"]:
        _, is_kv, kv_fault = (fault or "").partition("kv: ")
        kv_faults[:] = [kv_fault] if is_kv else []
        request = {"traces": [trace], "fault": None if is_kv else fault}
        try:
            (answered,) = list(release.run(request))
        except Illegal as reason:
            answered = {"records": [], "illegal": str(reason)}
        recorded = bool(recordings)
        while recordings:
            recordings.pop().close()
        told = {"protocol": protocol, "recorded": recorded, **answered}
        print(json.dumps(told), file=results, flush=True)


if __name__ == "__main__":
    main()
