"""The store as an external encoder cache of vLLM: an `ECConnectorBase` out of its tree.

    ECTransferConfig(
        ec_connector="EncoderConnector",
        ec_connector_module_path="cacheproof.gpu_runner.encoder_connector.vllm_connector",
        ec_role="ec_both",
        ec_connector_extra_config={"disk_path": "/var/cache/encoder", "disk_bytes": "64GiB"},
    )

The engine cannot be told that a load failed: what was promised and is not there ends it. So the
scheduler's side reads and pins an entry before it promises it, and the worker's side loads the file
that was pinned.
"""

import logging
import os
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from vllm.distributed.ec_transfer.ec_connector.base import (
    ECConnectorBase,
    ECConnectorMetadata,
    ECConnectorRole,
)

from cacheproof.gpu_runner.encoder_connector import entry_file
from cacheproof.reference.encoder_connector.config import StoreConfig
from cacheproof.reference.encoder_connector.entry_key import EntryKey
from cacheproof.reference.encoder_connector.tiers import Promise, Tiers

if TYPE_CHECKING:
    import torch
    from vllm.config import VllmConfig
    from vllm.v1.core.sched.output import SchedulerOutput
    from vllm.v1.outputs import ECConnectorOutput
    from vllm.v1.request import Request

logger = logging.getLogger(__name__)


@dataclass
class Loads(ECConnectorMetadata):
    """What a step's workers load: the pinned file of each identifier."""

    files: dict[str, str] = field(default_factory=dict)


class EncoderConnector(ECConnectorBase):
    """Saves what its engine encodes, and promises what the store holds whole."""

    def __init__(self, vllm_config: "VllmConfig", role: ECConnectorRole) -> None:
        super().__init__(vllm_config, role)
        transfer, model = vllm_config.ec_transfer_config, vllm_config.model_config
        config = StoreConfig.read(transfer.ec_connector_extra_config, os.environ)
        self._store = Tiers(config.tiers, entry_file.fault_of)
        self._of_key = {
            "model": model.model,
            "revision": model.revision or "",
            "weights": config.weights,
            "dtype": entry_file.dtype_name(model.dtype),
            "hidden_size": model.get_inputs_embeds_size(),
        }
        self._promised: dict[str, Promise] = {}
        self._to_load: dict[str, Promise] = {}
        self._in_flight: dict[str, list[Promise]] = {}
        self._loaded: set[str] = set()
        self._told: set[str] = set()

    def key_of(self, identifier: str) -> EntryKey:
        """The key of a media item in this engine."""
        return EntryKey(identifier=identifier, **self._of_key)

    # the scheduler's side

    def has_cache_item(self, identifier: str) -> bool:
        """Whether the store has it: read, found whole, and pinned until it is loaded."""
        if not self.is_consumer:
            return False
        if identifier not in self._promised and identifier not in self._to_load:
            promise = self._store.promise(self.key_of(identifier))
            if promise is None:
                return False
            self._promised[identifier] = promise
        return True

    def update_state_after_alloc(self, request: "Request", index: int) -> None:
        """An item has got its place: what is promised of it is loaded in this step."""
        identifier = request.mm_features[index].identifier
        if identifier in self._promised:
            self._to_load[identifier] = self._promised.pop(identifier)

    def build_connector_meta(self, scheduler_output: "SchedulerOutput") -> Loads:
        """What the step loads; promises that nobody took are given back."""
        for promise in self._promised.values():
            self._store.give_back(promise)
        self._promised.clear()
        loads = Loads({name: str(promise.file) for name, promise in self._to_load.items()})
        for name, promise in self._to_load.items():
            self._in_flight.setdefault(name, []).append(promise)
        self._to_load.clear()
        return loads

    def update_connector_output(self, connector_output: "ECConnectorOutput") -> None:
        """The workers have loaded: the oldest pin of each item is given back."""
        for name in connector_output.finished_recving or ():
            promises = self._in_flight.get(name, [])
            if promises:
                self._store.give_back(promises.pop(0))
            if not promises:
                self._in_flight.pop(name, None)

    # the worker's side

    def start_load_caches(self, encoder_cache: dict[str, "torch.Tensor"], **_: Any) -> None:
        """Load what the step's metadata names.

        Raises:
            Torn: a pinned file was changed in place, which no engine does.
        """
        from vllm.platforms import current_platform

        metadata = self._get_connector_metadata()
        assert isinstance(metadata, Loads)
        for name, file in metadata.files.items():
            if name not in encoder_cache:
                with open(file, "rb", buffering=0) as entry:
                    rows = entry_file.load(entry, self.key_of(name))
                encoder_cache[name] = rows.to(current_platform.device_type)
            self._loaded.add(name)

    def save_caches(self, encoder_cache: dict[str, "torch.Tensor"], mm_hash: str, **_: Any) -> None:
        """Keep what was encoded, in the first tier that takes it."""
        key = self.key_of(mm_hash)
        if not self.is_producer:
            return
        try:
            parts = entry_file.parts_of(encoder_cache[mm_hash], key)
        except ValueError as error:
            if str(error) not in self._told:
                self._told.add(str(error))
                logger.warning("encoder cache: %.200r is not kept: %s", mm_hash, error)
            return
        self._store.put(key, parts)

    def get_finished(self, finished_req_ids: set[str]) -> tuple[set[str] | None, set[str] | None]:
        """What was loaded since the last time."""
        loaded, self._loaded = self._loaded, set()
        return None, loaded or None

    def shutdown(self) -> None:
        """Give every pin back."""
        self._store.close()
