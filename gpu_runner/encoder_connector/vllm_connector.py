"""The store as an external encoder cache of vLLM: an `ECConnectorBase` out of its tree.

ECTransferConfig(
    ec_connector="EncoderConnector",
    ec_connector_module_path="cacheproof.gpu_runner.encoder_connector.vllm_connector",
    ec_role="ec_both",
    ec_connector_extra_config={"disk_path": "/var/cache/encoder", "disk_bytes": "64GiB"},
)
"""

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING

from vllm.distributed.ec_transfer.ec_connector.base import (
    ECConnectorBase,
    ECConnectorMetadata,
    ECConnectorRole,
)

from cacheproof.gpu_runner.encoder_connector.entry_file import TensorCodec, dtype_name
from cacheproof.reference.encoder_connector.config import StoreConfig
from cacheproof.reference.encoder_connector.connector import ConnectorMetadata, StoreConnector

if TYPE_CHECKING:
    import torch
    from vllm.config import VllmConfig
    from vllm.v1.core.sched.output import SchedulerOutput


@dataclass
class StepMetadata(ConnectorMetadata, ECConnectorMetadata):
    """The metadata of a step, for its workers."""


class EncoderConnector(StoreConnector, ECConnectorBase):
    """The store behind vLLM's calls, with tensors."""

    def __init__(self, vllm_config: "VllmConfig", role: ECConnectorRole) -> None:
        from vllm.platforms import current_platform

        ECConnectorBase.__init__(self, vllm_config, role)
        transfer, model = vllm_config.ec_transfer_config, vllm_config.model_config
        config = StoreConfig.read(transfer.ec_connector_extra_config, os.environ)
        of_key = {
            "model": model.model,
            "revision": model.revision or "",
            "weights": config.weights,
            "dtype": dtype_name(model.dtype),
            "hidden_size": model.get_inputs_embeds_size(),
        }
        StoreConnector.__init__(
            self,
            config,
            of_key,
            TensorCodec(current_platform.device_type),
            saves=self.is_producer,
            loads=self.is_consumer,
        )

    def build_connector_meta(self, scheduler_output: "SchedulerOutput") -> StepMetadata:
        """The metadata of this step, for the workers."""
        step = self.take_step()
        return StepMetadata(step.files, step.resets)

    def start_load_caches(self, encoder_cache: dict[str, "torch.Tensor"], **_: object) -> None:
        """Load what the step's metadata names, on the device of this worker.

        Raises:
            Torn: a pinned file was changed in place, which no engine does.
            OSError: it cannot be read.
        """
        metadata = self._get_connector_metadata()
        assert isinstance(metadata, StepMetadata)
        self.load(metadata, encoder_cache)
