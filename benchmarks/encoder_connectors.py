"""What connectors of external encoder caches promise and keep, on real releases.

    .venv/bin/python benchmarks/encoder_connectors.py > docs/encoder-connectors-checked.md

The classes are the releases' own, and cacheproof's. The scheduler's and the worker's side of each
engine are played, with the calls and the order of vLLM's first model runner; the store is a folder.
"""

import json
import os
import signal
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import beside

FIRST = "0.30.0"
"""The first release that is run."""
CONNECTORS = ("ECExampleConnector", "EncoderConnector")
ROWS, WIDTH = 3, 4
LARGE_ROWS = 2_000_000
KILLS = 30
KEPT = "kept"
HEAD = """# Connectors of external encoder caches, checked

    .venv/bin/python benchmarks/encoder_connectors.py > docs/encoder-connectors-checked.md

`ECExampleConnector` is vLLM's own, `EncoderConnector` is [cacheproof's](encoder-connector.md). Both
were run in vLLM RELEASES; a cell names releases where they differ. Schedulers and workers are
played: two engines with the role `ec_both` over one folder, each call in the order of vLLM's first
model runner. An engine cannot be told that a load failed, so whatever is promised and cannot be
loaded ends it.
"""
NOT_LOOKED_AT = """
Not looked at: `ECCPUConnector`, `ECMooncakeConnector`, LMCache; two workers of one engine; several
hosts. Entries of `ECExampleConnector` are whole after a kill because safetensors 0.8, which was
installed, writes another file and renames it; no other version was tried. vLLM's source calls
`ECExampleConnector` simple and for debugging. That it writes outside its folder is public (vLLM
#51448, open). Threads about the other rows: none found among the stored ones up to 2026-09-22,
searched on 2026-11-26.
"""


def main() -> None:
    from cacheproof.reference.releases import MODELLED

    releases = MODELLED[MODELLED.index(FIRST) :]
    print(HEAD.replace("RELEASES", ", ".join(releases)))
    print(f"| over one folder | {' | '.join(f'`{name}`' for name in CONNECTORS)} |")
    print("|---|" + "---|" * len(CONNECTORS))
    told = {release: list(beside.run(__file__, release)) for release in releases}
    for place, sentence in enumerate(SCENARIOS):
        cells = [
            _by_release({release: told[release][place][name] for release in releases})
            for name in CONNECTORS
        ]
        print(f"| {sentence} | {' | '.join(cells)} |")
    print(NOT_LOOKED_AT, end="")


def _by_release(became: dict[str, str]) -> str:
    """What became of a scenario, with its releases."""
    said: dict[str, list[str]] = {}
    for release, one in became.items():
        said.setdefault(one, []).append(release)
    if len(said) == 1:
        return next(iter(said))
    return "; ".join(f"{one} ({', '.join(releases)})" for one, releases in said.items())


class Engine:
    """One engine: the scheduler's side of a connector, and the worker's."""

    def __init__(
        self, connector: str, folder: Path, *, role: str = "ec_both", model: str = "a model"
    ) -> None:
        import torch
        from vllm.config.ec_transfer import ECTransferConfig
        from vllm.distributed.ec_transfer.ec_connector.base import ECConnectorRole

        transfer = ECTransferConfig(
            ec_connector=connector,
            ec_role=role,
            ec_connector_extra_config={"shared_storage_path": str(folder)}
            if connector == "ECExampleConnector"
            else {"disk_path": str(folder), "disk_bytes": "1GiB"},
        )
        of_model = SimpleNamespace(
            model=model,
            revision=None,
            dtype=torch.float32,
            get_inputs_embeds_size=lambda: WIDTH,
        )
        config = SimpleNamespace(ec_transfer_config=transfer, model_config=of_model)
        made = _class_of(connector)
        self.scheduler = made(config, ECConnectorRole.SCHEDULER)
        self.worker = made(config, ECConnectorRole.WORKER)

    def save(self, identifier: str, rows: Any) -> None:
        """A step that encodes an item."""
        self.worker.save_caches({identifier: rows}, identifier)

    def promises(self, identifier: str) -> bool:
        """Whether the scheduler need not have an item encoded."""
        promised: bool = self.scheduler.has_cache_item(identifier)
        return promised

    def plan(self, *identifiers: str) -> None:
        """A step of the scheduler that gives the items of a request their places."""
        features = [SimpleNamespace(identifier=identifier) for identifier in identifiers]
        request = SimpleNamespace(mm_features=features, get_num_encoder_embeds=lambda _: ROWS)
        for index in range(len(features)):
            self.scheduler.update_state_after_alloc(request, index)
        self.worker.bind_connector_metadata(self.scheduler.build_connector_meta(None))

    def load(self) -> dict[str, Any]:
        """The rows of items that the worker's part of that step loads."""
        encoder_cache: dict[str, Any] = {}
        self.worker.start_load_caches(encoder_cache)
        self.worker.clear_connector_metadata()
        return encoder_cache


def _class_of(connector: str) -> Any:
    if connector == "ECExampleConnector":
        from vllm.distributed.ec_transfer.ec_connector.example_connector import ECExampleConnector

        return ECExampleConnector
    from cacheproof.gpu_runner.encoder_connector.vllm_connector import EncoderConnector

    return EncoderConnector


def rows_of(number: float, count: int = ROWS) -> Any:
    """Rows that say which item they are of."""
    import torch

    return torch.full((count, WIDTH), float(number))


def entries(folder: Path) -> list[Path]:
    """The files of entries."""
    return [path for path in folder.rglob("*") if path.is_file() and path.stat().st_size > 8]


def served(engine: Engine, identifier: str, expected: Any) -> str:
    """What becomes of an item of which the store may have an entry."""
    if not engine.promises(identifier):
        return KEPT
    engine.plan(identifier)
    return loaded(engine, identifier, expected)


def loaded(engine: Engine, identifier: str, expected: Any) -> str:
    """What becomes of an item that is promised, and planned."""
    import torch

    try:
        rows = engine.load().get(identifier)
    except Exception as error:
        return f"promised, then {type(error).__name__}"
    if rows is None:
        return "promised, then missing"
    return KEPT if torch.equal(rows, expected) else "serves other rows"


Make = Callable[..., Engine]


def shares(make: Make, folder: Path) -> str:
    make().save("a", rows_of(1))
    other = make()
    return served(other, "a", rows_of(1)) if other.promises("a") else "not promised"


def half(make: Make, folder: Path) -> str:
    make().save("a", rows_of(1))
    for entry in entries(folder):
        os.truncate(entry, entry.stat().st_size // 2)
    return served(make(), "a", rows_of(1))


def swapped(make: Make, folder: Path) -> str:
    make().save("a", rows_of(1))
    (entry,) = entries(folder)
    kept = entry.read_bytes()
    entry.unlink()
    make().save("b", rows_of(2))
    (other,) = entries(folder)
    other.write_bytes(kept)
    return served(make(), "b", rows_of(2))


def of_another_model(make: Make, folder: Path) -> str:
    make(model="one model").save("a", rows_of(1))
    return served(make(model="another"), "a", rows_of(2))


def removed(make: Make, folder: Path) -> str:
    make().save("a", rows_of(1))
    engine = make()
    if not engine.promises("a"):
        return "not promised"
    engine.plan("a")
    for entry in entries(folder):
        if "owners" not in entry.parts:
            entry.unlink()
    return loaded(engine, "a", rows_of(1))


def outside(make: Make, folder: Path) -> str:
    for identifier in ("../outside", str(folder.parent / "absolute")):
        make().save(identifier, rows_of(1))
    others = [path.name for path in folder.parent.iterdir() if path != folder]
    return KEPT if not others else f"writes {len(others)} of 2 outside"


def kill_writers(make: Make) -> None:
    """Writers of large entries, each killed after a while."""
    for number in range(KILLS):
        rows = rows_of(number, LARGE_ROWS)
        child = os.fork()
        if not child:
            engine = make()
            signal.setitimer(signal.ITIMER_REAL, 0.002 * (number + 1))
            engine.save(f"item {number}", rows)
            os._exit(0)
        os.waitpid(child, 0)


def killed(make: Make, folder: Path) -> str:
    kill_writers(make)
    engine = make()
    became = [
        served(engine, f"item {number}", rows_of(number, LARGE_ROWS)) for number in range(KILLS)
    ]
    wrong = [one for one in became if one != KEPT]
    return KEPT if not wrong else f"{len(wrong)} of {KILLS}: {wrong[0]}"


def left_behind(make: Make, folder: Path) -> str:
    kill_writers(make)
    make()
    unfinished = [
        path
        for path in entries(folder)
        if path.name.startswith(".tmp") or "owners" in path.relative_to(folder).parts
    ]
    return "unfinished files stay" if unfinished else KEPT


SCENARIOS: dict[str, Callable[[Make, Path], str]] = {
    "what one engine saved, another promises and loads": shares,
    "an entry that was cut in half is a miss": half,
    "the bytes of another item are a miss": swapped,
    "an entry of another model is a miss": of_another_model,
    "an entry that is removed after it was promised is loaded": removed,
    "no identifier writes outside the folder": outside,
    f"{KILLS} writers that were killed leave whole entries or misses": killed,
    "an engine that starts afterwards removes what they left unfinished": left_behind,
}


def inside(release: str) -> None:
    """Runs in a release: one line of JSON for each scenario."""
    beside.make_importable()
    for scenario in SCENARIOS.values():
        line = {}
        for connector in CONNECTORS:
            with tempfile.TemporaryDirectory() as parent:
                folder = Path(parent) / "store"

                def make(connector: str = connector, folder: Path = folder, **of: Any) -> Engine:
                    return Engine(connector, folder, **of)

                line[connector] = scenario(make, folder)
        print(json.dumps(line), flush=True)


if __name__ == "__main__":
    if sys.argv[1:2] == ["inside"]:
        inside(sys.argv[2])
    else:
        main()
