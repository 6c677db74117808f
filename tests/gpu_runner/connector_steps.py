"""The connector on a release, whose scheduler and worker are played: `PYTHON THIS_FILE FOLDER`."""

import sys
import types
from pathlib import Path
from types import SimpleNamespace
from typing import Any

ROOT = Path(__file__).parents[2]


def main() -> None:
    package = types.ModuleType("cacheproof")
    package.__path__ = [str(ROOT)]
    sys.modules["cacheproof"] = package
    folder = Path(sys.argv[1])
    import torch

    rows = torch.arange(12.0).reshape(3, 4)
    producer, consumer, both = (_sides(folder, role) for role in ("producer", "consumer", "both"))
    _save(producer, "a", rows)
    _save(consumer, "never", rows)
    assert not producer[0].has_cache_item("a")
    assert not consumer[0].has_cache_item("never")

    scheduler, _ = consumer
    assert scheduler.has_cache_item("a")
    assert scheduler.has_cache_item("a")
    scheduler.update_state_after_alloc(_request("x", "a"), 1)
    scheduler.update_state_after_alloc(_request("x", "a"), 0)
    assert len(_pins(folder)) == 1
    assert torch.equal(_load(consumer)["a"], rows)
    assert len(_pins(folder)) == 1
    _report(consumer)
    assert _pins(folder) == []

    scheduler, _ = both
    assert scheduler.has_cache_item("a")
    assert _load(both) == {}
    assert _pins(folder) == []
    _save(both, "b", rows + 1)
    _save(both, "another width", rows[:, :2])
    assert scheduler.has_cache_item("b")
    assert not scheduler.has_cache_item("another width")
    scheduler.update_state_after_alloc(_request("b"), 0)
    for entry in (folder / "entries").glob("*/*"):
        entry.unlink()
    assert torch.equal(_load(both)["b"], rows + 1)
    for side in (*producer, *consumer, *both):
        side.shutdown()
    assert list((folder / "owners").iterdir()) == []
    print("all steps are right")


def _sides(folder: Path, role: str) -> tuple[Any, Any]:
    """The scheduler's side and the worker's."""
    import torch
    from vllm.config.ec_transfer import ECTransferConfig
    from vllm.distributed.ec_transfer.ec_connector.base import ECConnectorRole

    from cacheproof.gpu_runner.encoder_connector.vllm_connector import EncoderConnector

    transfer = ECTransferConfig(
        ec_connector="EncoderConnector",
        ec_role=f"ec_{role}",
        ec_connector_extra_config={"disk_path": str(folder), "disk_bytes": "1MiB"},
    )
    model = SimpleNamespace(
        model="tiny", revision=None, dtype=torch.float32, get_inputs_embeds_size=lambda: 4
    )
    config: Any = SimpleNamespace(ec_transfer_config=transfer, model_config=model)
    sides = ECConnectorRole.SCHEDULER, ECConnectorRole.WORKER
    scheduler, worker = (EncoderConnector(config, side) for side in sides)
    return scheduler, worker


def _request(*identifiers: str) -> Any:
    return SimpleNamespace(mm_features=[SimpleNamespace(identifier=one) for one in identifiers])


def _save(sides: tuple[Any, Any], identifier: str, rows: Any) -> None:
    sides[1].save_caches({identifier: rows}, identifier)


def _load(sides: tuple[Any, Any]) -> dict[str, Any]:
    """What a step loads."""
    encoder_cache: dict[str, Any] = {}
    sides[1].bind_connector_metadata(sides[0].build_connector_meta(None))
    sides[1].start_load_caches(encoder_cache)
    sides[1].clear_connector_metadata()
    return encoder_cache


def _report(sides: tuple[Any, Any]) -> None:
    sent, received = sides[1].get_finished(set())
    assert sent is None
    sides[0].update_connector_output(SimpleNamespace(finished_recving=received))


def _pins(folder: Path) -> list[Path]:
    return list((folder / "owners").glob("*/*"))


if __name__ == "__main__":
    main()
