"""The connector on a release, whose scheduler and worker are played: `PYTHON THIS_FILE FOLDER`."""

import sys
from pathlib import Path
from types import SimpleNamespace

import torch

sys.path.append(str(Path(__file__).parents[2] / "benchmarks"))

import beside
from encoder_connectors import Engine, rows_of

FOLDER = Path(sys.argv[1])


def main() -> None:
    beside.make_importable()
    producer, consumer, both = (
        Engine("EncoderConnector", FOLDER, role=f"ec_{role}")
        for role in ("producer", "consumer", "both")
    )
    producer.save("a", rows_of(1))
    consumer.save("never", rows_of(1))
    assert not producer.promises("a")
    assert not consumer.promises("never")

    assert consumer.promises("a")
    assert consumer.promises("a")
    consumer.plan("x", "a")
    assert len(pins()) == 1
    assert torch.equal(consumer.load()["a"], rows_of(1))
    assert len(pins()) == 1
    report(consumer)
    assert pins() == []

    assert both.promises("a")
    both.plan()
    assert both.load() == {}
    assert pins() == []
    both.save("b", rows_of(2))
    both.save("another width", rows_of(2)[:, :2])
    assert both.promises("b")
    assert not both.promises("another width")
    both.plan("b")
    for entry in (FOLDER / "entries").glob("*/*"):
        entry.unlink()
    assert torch.equal(both.load()["b"], rows_of(2))
    for engine in (producer, consumer, both):
        engine.scheduler.shutdown()
        engine.worker.shutdown()
    assert list((FOLDER / "owners").iterdir()) == []
    print("all steps are right")


def report(engine: Engine) -> None:
    """The worker says what it has loaded."""
    sent, received = engine.worker.get_finished(set())
    assert sent is None
    engine.scheduler.update_connector_output(SimpleNamespace(finished_recving=received))


def pins() -> list[Path]:
    return list((FOLDER / "owners").glob("*/*"))


if __name__ == "__main__":
    main()
