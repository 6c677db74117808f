"""Entries of encoder outputs in each tier of the store, beside a copy of as many bytes and LMCache.

    .venv/bin/python benchmarks/encoder_connector.py --disk /var/tmp

*Put* makes an entry of rows that are in memory and keeps it; *take* promises one, reads it and has
its rows in memory: with its digest checked twice, as a scheduler and its worker do. *Copy* is
torch's clone. With `--device cuda` the rows are on the GPU before, and after, and *copy* is one to
the CPU, as `Tensor.cpu` makes it. LMCache's put ends
when its tier has the entry, and its get takes it from that tier and not from the memory in front of
it. All take turns, and begin with memory that was not used before. Sizes are those of a video of 32
and of 128 frames for Qwen2.5-VL-7B. The disk's figures are of the page cache.
"""

import json
import logging
import os
import shutil
import sys
import tempfile
import time
from argparse import Namespace
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import Any

import beside
import torch_side

HIDDEN_SIZE = 3584
ROWS = (4784, 19136)
TIERS = ("memory", "disk", "server")
LMCACHE = "0.5.6"
POOL_GB, DISK_GB = 0.6, 16
SERVER_SECONDS = 30.0


def main() -> None:
    parser = torch_side.arguments(__doc__)
    parser.add_argument("--disk", default=tempfile.gettempdir(), help="a folder on a disk")
    parser.add_argument("--memory", default="/dev/shm", help="a folder in memory")
    parser.add_argument("--tiers", default=",".join(TIERS))
    parser.add_argument("--alone", action="store_true", help="without LMCache")
    chosen = parser.parse_args()
    told = torch_side.run(__file__, chosen, given=None if chosen.python else _lmcache(chosen))
    print(f"GB/s, wall time: median (least to most) of {chosen.rounds} rounds; {next(told)}\n")
    columns = ["copy", "put", "take"] + ([] if chosen.alone else ["LMCache put", "LMCache get"])
    ratios = [("copy", "put"), ("copy", "take")]
    ratios += [] if chosen.alone else [("LMCache put", "put"), ("LMCache get", "take")]
    heads = ["tier", "MB", *columns, *(f"{one} / {other}, time" for one, other in ratios)]
    print(f"| {' | '.join(heads)} |\n|{'---|' * len(heads)}")
    for line in told:
        size, seconds = line["bytes"], line["seconds"]
        speeds = [[size / one / 1e9 for one in seconds[what]] for what in columns]
        cells = [
            line["tier"],
            f"{size / 1e6:.1f}",
            *(beside.spread(speed, digits=2) for speed in speeds),
            *(beside.spread(beside.ratios(seconds[one], seconds[other])) for one, other in ratios),
        ]
        print(f"| {' | '.join(cells)} |", flush=True)


def _lmcache(chosen: Namespace) -> tuple[list[str], dict[str, str]] | None:
    """The interpreter that has LMCache too."""
    from cacheproof.differential.provision import connectors, releases

    if chosen.alone:
        return None
    return releases.host_command(connectors.install(LMCACHE, report=print))


def inside(job: Any) -> None:
    """Runs where torch is: one line of JSON for each tier and size, seconds."""
    beside.make_importable()
    device = torch_side.device(job["device"])
    print(json.dumps(torch_side.machine(job["device"])), flush=True)
    for tier in job["tiers"].split(","):
        for rows in ROWS:
            with ExitStack() as stack:
                folder = Path(tempfile.mkdtemp(dir=job.get(tier), prefix="cacheproof-"))
                stack.callback(shutil.rmtree, folder)
                url = stack.enter_context(server()) if tier == "server" else None
                line = {"tier": tier, "bytes": rows * HIDDEN_SIZE * 2}
                sides = [stack.enter_context(_ours(url or folder / "ours", rows, device))]
                if not job["alone"]:
                    sides.append(stack.enter_context(_theirs(tier, folder / "theirs", url)))
                line["seconds"] = measure(sides, rows, device, job["rounds"])
                print(json.dumps(line), flush=True)


Calls = dict[str, Callable[[str, Any], Any]]
"""By name: what is done with an identifier and its rows."""


def measure(sides: list[Calls], rows: int, device: Any, rounds: int) -> dict[str, list[float]]:
    """Seconds of each round."""
    import torch

    source = torch.randn(rows, HIDDEN_SIZE, generator=torch.Generator().manual_seed(0))
    source = source.to(torch.bfloat16).to(device)
    calls: Calls = {"copy": lambda _, rows: rows.cpu() if rows.is_cuda else rows.clone()}
    for side in sides:
        calls |= side
    seconds: dict[str, list[float]] = {name: [] for name in calls}
    for round_ in range(rounds + 1):
        for name, call in calls.items():
            begun = torch_side.wall(device)
            got = call(f"video {round_}", source)
            spent = torch_side.wall(device) - begun
            if got is not None:
                assert torch.equal(got[-1].cpu(), source[-1].cpu())
                assert name == "copy" or got.device == source.device
            if round_:
                seconds[name].append(spent)
    return seconds


def store_in(place: Path | str, bytes_max: int) -> Any:
    """A store in a folder, or at the server of a URL."""
    from cacheproof.reference.encoder_connector.entry_file import fault_of
    from cacheproof.reference.encoder_connector.tiers import RemoteConfig, TierConfig, Tiers

    if isinstance(place, Path):
        return Tiers([TierConfig(place, bytes_max)], fault_of)
    return Tiers([], fault_of, RemoteConfig(place, SERVER_SECONDS, 0))


@contextmanager
def server() -> Iterator[str]:
    """The URL of a Redis server, while it runs."""
    from host.connectors.redis_server import RedisServer

    with tempfile.TemporaryDirectory() as folder, closing(RedisServer(Path(folder))) as server:
        yield server.url


@contextmanager
def _ours(place: Path | str, rows: int, device: Any) -> Iterator[Calls]:
    from cacheproof.gpu_runner.encoder_connector.entry_file import TensorCodec
    from cacheproof.reference.encoder_connector.entry_key import EntryKey

    codec = TensorCodec(device)

    def key_of(name: str) -> EntryKey:
        return EntryKey(name, "model", "", "", "bfloat16", HIDDEN_SIZE)

    with closing(store_in(place, 2 * rows * HIDDEN_SIZE * 2 + (1 << 20))) as store:

        def put(name: str, rows: Any) -> None:
            key = key_of(name)
            assert store.put(key, codec.parts_of(rows, key))

        def take(name: str, rows: Any) -> Any:
            key = key_of(name)
            promise = store.promise(key)
            assert promise is not None
            with open(promise.paths[0], "rb", buffering=0) as entry:
                taken = codec.load(entry, key)
            store.give_back(promise)
            return taken

        yield {"put": put, "take": take}


@contextmanager
def _theirs(tier: str, folder: Path, url: str | None) -> Iterator[Calls]:
    logging.disable(logging.CRITICAL)
    os.environ["PROMETHEUS_MULTIPROC_DIR"] = str(folder)
    import torch
    from lmcache.v1.config import LMCacheEngineConfig
    from lmcache.v1.ec_engine import ECCacheEngine
    from lmcache.v1.metadata import LMCacheMetadata

    settings = {"chunk_size": 16, "local_cpu": True, "max_local_cpu_size": POOL_GB}
    folder.mkdir()
    if tier == "disk":
        settings |= {"local_disk": f"{folder}/", "max_local_disk_size": DISK_GB}
    elif url is not None:
        settings |= {"remote_url": url, "remote_serde": "naive"}
    config = LMCacheEngineConfig.from_dict(settings)
    metadata = LMCacheMetadata(
        model_name="model",
        world_size=1,
        local_world_size=1,
        worker_id=0,
        local_worker_id=0,
        kv_dtype=torch.bfloat16,
        kv_shape=(1, 2, 16, 1, 8),
    )
    engine = ECCacheEngine(config, metadata, torch.bfloat16)
    backends = engine._storage_manager.storage_backends
    memory = backends["LocalCPUBackend"]
    last = next(reversed(backends.values()))

    def put(name: str, rows: Any) -> None:
        assert engine.put(name, rows)
        until = time.monotonic() + SERVER_SECONDS
        while not last.contains(engine._make_cache_key(name)):
            assert time.monotonic() < until, "LMCache has not put it anywhere"
            time.sleep(0)

    def get(name: str, rows: Any) -> Any:
        key = engine._make_cache_key(name)
        if last is memory:
            return engine.get(name, str(rows.device))
        memory.remove(key)
        # `engine.get` asks the memory alone (LMCache #4458); this asks the tier
        held = last.get_blocking(key)
        got = held.tensor.to(rows.device)
        got = got.clone() if got.data_ptr() == held.tensor.data_ptr() else got
        held.ref_count_down()
        last.remove(key)
        return got

    yield {"LMCache put": put, "LMCache get": get}
    if url is None:  # over a server it does not come back (LMCache #4489)
        engine.close()


if __name__ == "__main__":
    if sys.argv[1:2] == ["inside"]:
        inside(json.loads(sys.argv[2]))
    else:
        main()
