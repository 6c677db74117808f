"""The store behind vLLM's calls: promises outlive the folder, keys do not outlive a reset."""

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace

import pytest

from cacheproof.reference.encoder_connector import entry_file
from cacheproof.reference.encoder_connector.config import StoreConfig
from cacheproof.reference.encoder_connector.connector import ConnectorMetadata, StoreConnector
from cacheproof.reference.encoder_connector.entry_file import EntryRows
from cacheproof.reference.encoder_connector.tiers import TierConfig

OF_KEY = {"model": "m", "revision": "", "weights": "1", "dtype": "float32", "hidden_size": 2}
ROWS = EntryRows("float32", (1, 2), bytes(range(8)))


def connector(folder: Path) -> StoreConnector:
    return StoreConnector(StoreConfig((TierConfig(folder, 1 << 20),)), OF_KEY, entry_file)


def _sides_of(folder: Path) -> "_Both":
    return _Both(connector(folder), connector(folder))


@pytest.fixture
def sides(tmp_path: Path) -> Iterator[tuple[StoreConnector, StoreConnector]]:
    with closing(_sides_of(tmp_path / "store")) as made:
        yield made.scheduler, made.worker


class _Both:
    """Connectors that are shut down together."""

    def __init__(self, *connectors: StoreConnector) -> None:
        self.scheduler, self.worker = connectors

    def close(self) -> None:
        self.scheduler.shutdown()
        self.worker.shutdown()


def planned(scheduler: StoreConnector, *items: str) -> ConnectorMetadata:
    request = SimpleNamespace(mm_features=[SimpleNamespace(identifier=item) for item in items])
    for index in range(len(items)):
        scheduler.update_state_after_alloc(request, index)
    return scheduler.take_step()


def test_what_was_promised_is_loaded_from_a_folder_that_has_gone(
    sides: tuple[StoreConnector, StoreConnector], tmp_path: Path
) -> None:
    scheduler, worker = sides
    worker.save_caches({"x": ROWS}, "x")
    assert scheduler.has_cache_item("x")
    step = planned(scheduler, "x")
    (tmp_path / "store").rename(tmp_path / "elsewhere")
    loaded: dict[str, EntryRows] = {}
    worker.load(step, loaded)
    assert loaded == {"x": ROWS}
    _, received = worker.get_finished(set())
    scheduler.update_connector_output(SimpleNamespace(finished_recving=received))
    assert scheduler.pinned == set()
    assert not scheduler.has_cache_item("x")
    (tmp_path / "elsewhere").rename(tmp_path / "store")
    assert scheduler.has_cache_item("x")
    assert len(list((tmp_path / "store" / "owners").glob("*/*"))) == 1


def test_after_a_reset_nothing_of_before_is_promised_wherever_it_was_meanwhile(
    sides: tuple[StoreConnector, StoreConnector], tmp_path: Path
) -> None:
    scheduler, worker = sides
    worker.save_caches({"x": ROWS}, "x")
    (tmp_path / "store").rename(tmp_path / "elsewhere")
    scheduler.reset_cache()
    (tmp_path / "elsewhere").rename(tmp_path / "store")
    assert not scheduler.has_cache_item("x")
    worker.load(planned(scheduler), {})
    worker.save_caches({"x": ROWS}, "x")
    assert scheduler.has_cache_item("x")


def test_a_step_that_was_planned_before_a_reset_saves_under_the_old_key(
    sides: tuple[StoreConnector, StoreConnector],
) -> None:
    scheduler, worker = sides
    before = planned(scheduler)
    scheduler.reset_cache()
    worker.load(before, {})
    worker.save_caches({"x": ROWS}, "x")
    assert not scheduler.has_cache_item("x")


def test_a_folder_that_others_have_put_in_its_place_is_used(
    sides: tuple[StoreConnector, StoreConnector], tmp_path: Path
) -> None:
    scheduler, worker = sides
    (tmp_path / "store").rename(tmp_path / "elsewhere")
    with closing(_sides_of(tmp_path / "store")) as others:
        others.worker.save_caches({"x": ROWS}, "x")
        assert scheduler.has_cache_item("x")
        worker.save_caches({"y": ROWS}, "y")
        assert others.scheduler.has_cache_item("y")


def test_rows_that_are_none_of_the_key_are_not_kept_and_told_once(
    sides: tuple[StoreConnector, StoreConnector], caplog: pytest.LogCaptureFixture
) -> None:
    scheduler, worker = sides
    for name in ("x", "y"):
        worker.save_caches({name: EntryRows("float32", (2, 1), bytes(8))}, name)
        assert not scheduler.has_cache_item(name)
    assert len(caplog.records) == 1


def test_a_producer_promises_nothing_and_a_consumer_saves_nothing(tmp_path: Path) -> None:
    store = StoreConfig((TierConfig(tmp_path / "store", 1 << 20),))
    producer = StoreConnector(store, OF_KEY, entry_file, loads=False)
    consumer = StoreConnector(store, OF_KEY, entry_file, saves=False)
    with closing(_Both(producer, consumer)):
        consumer.save_caches({"x": ROWS}, "x")
        assert not consumer.has_cache_item("x")
        producer.save_caches({"x": ROWS}, "x")
        assert not producer.has_cache_item("x")
        assert consumer.has_cache_item("x")
