"""Tiers of a store: what is promised was read and is whole, what is evicted goes down a tier."""

import random
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import BinaryIO

import pytest

from cacheproof.reference.encoder_connector.entry_key import EntryKey
from cacheproof.reference.encoder_connector.tiers import TierConfig, Tiers

KEY = EntryKey("a picture", "llava", "", "1", "float32", 4)


def fault_of(file: BinaryIO, key: EntryKey) -> str | None:
    """An entry is its identifier again and again."""
    data, whole = file.read(), key.identifier.encode()
    return None if data and data == whole * (len(data) // len(whole)) else "other bytes"


def entry(identifier: str, size: int = 40) -> tuple[EntryKey, list[bytes]]:
    text = identifier.encode()
    return replace(KEY, identifier=identifier), [text * (size // len(text))]


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Tiers]:
    tiers = [TierConfig(tmp_path / "cpu", 100), TierConfig(tmp_path / "disk", 300)]
    with closing(Tiers(tiers, fault_of)) as made:
        yield made


def where(folder: Path, key: EntryKey) -> list[str]:
    """The tiers that have an entry."""
    found = folder.glob(f"*/entries/{key.name[:2]}/{key.name[2:]}")
    return sorted(path.parents[2].name for path in found)


def test_what_is_kept_is_promised_and_stays_until_it_is_given_back(
    store: Tiers, tmp_path: Path
) -> None:
    assert store.promise(KEY) is None
    assert store.put(*entry("a"))
    promise = store.promise(entry("a")[0])
    assert promise is not None
    for number in range(50):
        store.put(*entry(f"{number:04}"))
    store.clear()
    assert [promise.file.read_bytes()] == entry("a")[1]
    store.give_back(promise)
    assert not promise.file.exists()


def test_what_is_saved_takes_the_place_of_what_is_torn(store: Tiers, tmp_path: Path) -> None:
    key, data = entry("a")
    store.put(key, data)
    (file,) = tmp_path.glob("cpu/entries/*/*")
    file.unlink()
    file.write_bytes(b"b" * 40)
    assert store.put(key, data)
    assert file.read_bytes() == b"".join(data)


@pytest.mark.parametrize("field", ["model", "revision", "weights", "dtype"])
def test_an_entry_of_another_engine_is_none_of_this_one(store: Tiers, field: str) -> None:
    key, data = entry("a")
    store.put(key, data)
    assert store.promise(replace(key, **{field: "another"})) is None


def test_what_one_tier_evicts_the_next_has_and_what_is_used_comes_back(
    store: Tiers, tmp_path: Path
) -> None:
    keys = [store.put(*entry(name)) and entry(name)[0] for name in "abcd"]
    assert [where(tmp_path, key) for key in keys] == [["disk"], ["disk"], ["cpu"], ["cpu"]]
    promise = store.promise(keys[0])
    assert promise is not None
    assert where(tmp_path, keys[0]) == ["cpu", "disk"]


def test_what_no_tier_takes_is_not_kept(store: Tiers, tmp_path: Path) -> None:
    assert store.put(*entry("large", 250))
    assert where(tmp_path, entry("large")[0]) == ["disk"]
    assert not store.put(*entry("huge", 400))


@pytest.mark.parametrize("content", [b"", b"b" * 40, b"a" * 39 + b"b"])
def test_what_is_not_whole_is_dropped_with_a_line_and_can_be_kept_again(
    store: Tiers, tmp_path: Path, content: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    key, data = entry("a")
    store.put(key, data)
    (file,) = tmp_path.glob("cpu/entries/*/*")
    file.unlink()
    file.write_bytes(content)
    assert store.promise(key) is None
    assert len(caplog.records) == 1
    assert where(tmp_path, key) == []
    assert store.put(key, data)
    assert store.promise(key) is not None


def test_a_torn_entry_does_not_hide_a_whole_one_of_the_next_tier(
    store: Tiers, tmp_path: Path
) -> None:
    for name in "abcd":
        store.put(*entry(name))
    key = entry("a")[0]
    promise = store.promise(key)
    assert promise is not None
    store.give_back(promise)
    (torn,) = tmp_path.glob(f"cpu/entries/{key.name[:2]}/{key.name[2:]}")
    torn.unlink()
    torn.write_bytes(b"torn")
    again = store.promise(key)
    assert again is not None
    assert [again.file.read_bytes()] == entry("a")[1]


@pytest.mark.parametrize("identifier", ["../../x", "{tmp}/x", "a" * 5000, "\0", "\ud800", ""])
def test_no_identifier_names_a_file_outside(store: Tiers, tmp_path: Path, identifier: str) -> None:
    before = set(tmp_path.iterdir())
    store.put(replace(KEY, identifier=identifier.replace("{tmp}", str(tmp_path))), [b"x"])
    assert set(tmp_path.iterdir()) == before
    assert len(list(tmp_path.glob("cpu/entries/??/*"))) == 1


def test_engines_that_put_and_take_at_random_get_their_own_rows(tmp_path: Path) -> None:
    draw = random.Random(5)
    tiers = [TierConfig(tmp_path / "cpu", 150), TierConfig(tmp_path / "disk", 400)]
    stores = [Tiers(tiers, fault_of) for _ in range(3)]
    promised = []
    for _ in range(1500):
        store, (key, data) = draw.choice(stores), entry(f"{draw.randrange(30):02}")
        if draw.random() < 0.4:
            store.put(key, data)
        elif draw.random() < 0.6:
            promise = store.promise(key)
            promised += [(store, promise, data)] if promise else []
        elif promised:
            store, promise, data = promised.pop(draw.randrange(len(promised)))
            assert [promise.file.read_bytes()] == data
            store.give_back(promise)
        if draw.random() < 0.01:
            store.clear()
    assert len(promised) < 400
    for store in stores:
        store.close()
