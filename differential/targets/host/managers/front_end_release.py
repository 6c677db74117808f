"""The two caches of processed media of this vLLM, called as its processors and engine core do."""

import inspect
import itertools
import os
import threading
from collections.abc import Sequence
from contextlib import suppress
from types import SimpleNamespace
from typing import Any

import vllm
import vllm.multimodal.cache as caches
from vllm.multimodal.inputs import (
    MultiModalBatchedField,
    MultiModalFeatureSpec,
    MultiModalFieldElem,
    MultiModalKwargsItem,
    PlaceholderRange,
)

from ..faults.front_end import FRONT_END_FAULTS
from ..protocol import Event, Illegal
from ..vllm_objects.media_caches import (
    RECEIVERS,
    SENDERS,
    SHARED_RECEIVERS,
    SHARED_SENDERS,
    Asked,
    Content,
    Lacking,
    Message,
    NeverEnds,
)
from .front_end import FrontEndSession, check
from .processor_release import Processor, field_of, tensor_of


def class_of(names: Sequence[str]) -> Any:
    """This release's class of one of these names; None where it has none."""
    return next((getattr(caches, name) for name in names if hasattr(caches, name)), None)


_SENDER, _RECEIVER = class_of(SENDERS), class_of(RECEIVERS)
_SHARED_SENDER, _SHARED_RECEIVER = class_of(SHARED_SENDERS), class_of(SHARED_RECEIVERS)
_MISS: tuple[type[Exception], ...] = tuple(
    filter(None, [getattr(caches, "MultiModalCacheMissError", None)])
)
_NAME_OF_MEMORY = "VLLM_OBJECT_STORAGE_SHM_BUFFER_NAME"
_numbers = itertools.count()
_IMAGE = "image"
_GIB, _MIB = 2**30, 2**20
_OF_ELEMENT = frozenset(inspect.signature(MultiModalFieldElem).parameters)
_OF_FEATURE = frozenset(inspect.signature(MultiModalFeatureSpec).parameters)


def front_end_session(header: Event, fault: str | None) -> FrontEndSession:
    """A session on this release."""
    config = header["config"]
    check(config)
    caches: Any = CACHES[config["store"]](config)
    FRONT_END_FAULTS[fault or "nothing"](caches)
    return FrontEndSession(config, caches)


class ReleaseCaches:
    """A sender and a receiver of this release, each with so many bytes."""

    def __init__(self, config: Event) -> None:
        model = model_of(config["capacity"])
        self._sender: Any = _SENDER(model)
        self._receiver: Any = _RECEIVER(model)
        for half in (self._sender, self._receiver):
            end_endless_evictions(half._cache)
        self._processor = Processor(self._sender)

    def process(self, asked: Asked) -> tuple[Any, list[str | None]]:
        payload = self._processor.process(asked)
        return payload, [None if item is None else _text_of(item) for item in payload]

    def withdraw(self, message: Message) -> None:
        """No release has either half take back what is not sent."""

    def receive(self, message: Message, worker: int) -> list[str]:
        features = _features(message)
        try:
            told = self._receiver.get_and_update_features(features)
        except _MISS as error:
            raise Lacking(error.mm_hashes) from error  # type: ignore[attr-defined]
        return [_text_of(feature.data) for feature in told]

    def close(self) -> None:
        """It is this process's alone."""

    def forget(self, names: Sequence[str]) -> None:
        for name in names:
            self._sender.invalidate(name)

    def reset(self, half: str, server: int) -> None:
        if half != "receiver":
            self._sender.clear_cache()
        if half != "sender":
            self._receiver.clear_cache()

    def state(self) -> list[tuple[list[str], int]]:
        return [_kept_by(self._sender), _kept_by(self._receiver)]


class ProcessorOnlyCaches:
    """Caches of this release's API servers, which have no counterpart."""

    def __init__(self, config: Event) -> None:
        model = model_of(config["capacity"])
        self._caches: list[Any] = [
            caches.MultiModalProcessorOnlyCache(model) for _ in range(config["servers"])
        ]
        for one in self._caches:
            end_endless_evictions(one._cache)
        self._processors = [Processor(one) for one in self._caches]

    def process(self, asked: Asked) -> tuple[Any, list[str | None]]:
        payload = self._processors[asked.server].process(asked)
        return payload, [_text_of(item) for item in payload]

    def withdraw(self, message: Message) -> None:
        """What is kept stays."""

    def receive(self, message: Message, worker: int) -> list[str]:
        return [_text_of(item) for item in message.payload]

    def close(self) -> None:
        """It is this process's alone."""

    def forget(self, names: Sequence[str]) -> None:
        """Nothing is lacking."""

    def reset(self, half: str, server: int) -> None:
        if half != "receiver":
            self._caches[server].clear_cache()

    def state(self) -> list[tuple[list[str], int]]:
        first, *others = map(_kept_by, self._caches)
        return [first, ([], 0), *others]


class SharedCaches:
    """A sender of this release that writes into shared memory, and its workers' readers."""

    def __init__(self, config: Event) -> None:
        if _SHARED_SENDER is None:
            raise Illegal(f"vLLM {vllm.__version__} keeps no processed media in shared memory")
        name = f"cacheproof_{os.getpid()}_{next(_numbers)}"
        os.environ[_NAME_OF_MEMORY] = name
        if hasattr(caches, _NAME_OF_MEMORY):
            setattr(caches, _NAME_OF_MEMORY, name)
        media = SimpleNamespace(
            mm_processor_cache_gb=config["capacity"] / _GIB,
            mm_shm_cache_max_object_size_mb=config["largest"] / _MIB,
        )
        made: Any = SimpleNamespace(
            parallel_config=SimpleNamespace(world_size=config["workers"]),
            model_config=SimpleNamespace(
                get_multimodal_config=lambda: media, multimodal_config=media
            ),
        )
        lock: Any = threading.Lock()
        self._sender: Any = _SHARED_SENDER(made)
        self._readers: list[Any] = [_SHARED_RECEIVER(made, lock) for _ in range(config["workers"])]
        for one in (self._sender, *self._readers):
            one._shm_cache.ser_de = _AsText()
        self._processor = Processor(self._sender)

    def process(self, asked: Asked) -> tuple[Any, list[str | None]]:
        payload = self._processor.process(asked)
        return payload, [None if "address" in item else _text_of(item) for item in payload]

    def withdraw(self, message: Message) -> None:
        """No release takes back that a message will be read."""

    def receive(self, message: Message, worker: int) -> list[str]:
        try:
            told = self._readers[worker].get_and_update_features(_features(message))
        except ValueError as error:
            raise KeyError from error
        return [_text_of(feature.data) for feature in told]

    def forget(self, names: Sequence[str]) -> None:
        """No worker says that it lacks an item."""

    def reset(self, half: str, server: int) -> None:
        if half != "receiver":
            self._sender.clear_cache()
        if half != "sender":
            for reader in self._readers:
                reader.clear_cache()

    def state(self) -> list[tuple[list[str], int]]:
        store = self._sender._shm_cache
        ring = store.ring_buffer
        chunks = []
        for chunk, address in ring.metadata.items():
            if chunk not in store.id_index:
                continue  # 0.11.0 begins with a number that nothing is written under yet
            with ring.access_buf(address) as (data, _):
                read = ring.byte2int(data[: store.flag_bytes])
            due = store.writer_flag[chunk] * store.n_readers
            chunks.append(f"{store.id_index[chunk]} {read} of {due}")
        used = ring.data_buffer_end - ring.data_buffer_start
        return [(list(store.key_index), used), (chunks, 0)]

    def close(self) -> None:
        with suppress(FileNotFoundError):
            self._sender._shm_cache.ring_buffer.shared_memory.unlink()
        for one in (self._sender, *self._readers):
            one._shm_cache.ring_buffer.shared_memory.close()


class _AsText:
    """Items in shared memory as what they say, in so many bytes: what msgpack makes of a tensor
    has other sizes in other releases, which no trace knows."""

    def serialize(self, item: MultiModalKwargsItem) -> tuple[bytes, int, bytes, int]:
        data = _text_of(item).encode().ljust(_tensor_of(item).nbytes, b".")
        return data, len(data), b"", 0

    def deserialize(self, data: memoryview) -> MultiModalKwargsItem:
        return item_of((bytes(data).rstrip(b".").decode(errors="replace"), len(data)))


CACHES = {"lru": ReleaseCaches, "shm": SharedCaches, "processor": ProcessorOnlyCaches}


def model_of(capacity: int) -> Any:
    """What a release's caches ask of a model's configuration."""
    media = SimpleNamespace(mm_processor_cache_gb=capacity / _GIB)
    return SimpleNamespace(get_multimodal_config=lambda: media, multimodal_config=media)


def _kept_by(half: Any) -> tuple[list[str], int]:
    """The names that it keeps, what was used longest ago first, and the bytes that it counts."""
    cache = half._cache
    return [name for name in cache.order if name in cache], int(cache.currsize)


def end_endless_evictions(cache: Any) -> None:
    """Raise NeverEnds where the cache evicts what makes no room, as it would do again."""
    evict = cache.popitem

    def evict_once(**how: bool) -> object:
        before = len(cache), next(iter(cache.order), None)
        evicted: object = evict(**how)
        if (len(cache), next(iter(cache.order), None)) == before:
            raise NeverEnds
        return evicted

    cache.popitem = evict_once


def item_of(content: Content) -> MultiModalKwargsItem:
    """A processed picture: its text, in so many bytes."""
    field = field_of(_IMAGE)
    values = {
        "modality": _IMAGE,
        "key": field,
        "data": tensor_of(content),
        "field": MultiModalBatchedField(),
    }
    element = MultiModalFieldElem(**{name: values[name] for name in _OF_ELEMENT})
    if hasattr(MultiModalKwargsItem, "from_elems"):
        item: MultiModalKwargsItem = MultiModalKwargsItem.from_elems([element])
        return item
    return MultiModalKwargsItem({field: element})


def _tensor_of(item: MultiModalKwargsItem) -> Any:
    (element,) = item.values()
    return element.data


def _text_of(item: MultiModalKwargsItem) -> str:
    text: str = _tensor_of(item)._cacheproof_text
    return text


def _features(message: Message) -> list[MultiModalFeatureSpec]:
    """A message as it reaches an engine core, or a worker."""
    asked = message.asked
    each = zip(asked.names, asked.modalities, message.payload, strict=True)
    features = []
    for at, (name, modality, data) in enumerate(each):
        values = {
            "data": data,
            "modality": modality,
            "identifier": name,
            "mm_position": PlaceholderRange(offset=at, length=1),
            "mm_hash": name,
        }
        features.append(
            MultiModalFeatureSpec(**{key: values[key] for key in _OF_FEATURE & values.keys()})
        )
    return features
