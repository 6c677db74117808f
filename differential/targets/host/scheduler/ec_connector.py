"""Puts the scripted connector into a release: a subclass of its ECConnectorBase, made by its own
factory from a configuration that its own validation accepts."""

from vllm.config.ec_transfer import ECTransferConfig
from vllm.distributed.ec_transfer.ec_connector.base import ECConnectorBase, ECConnectorRole
from vllm.distributed.ec_transfer.ec_connector.factory import ECConnectorFactory

from ..protocol import HostError
from ..vllm_objects.config import VllmConfig
from ..vllm_objects.worker import EncoderOutputs
from .encoder_transfers import EncoderTransfers


class ScriptedConnector(EncoderTransfers, ECConnectorBase):
    """The scheduler's side; workers are played by whoever reads the trace."""

    def __init__(self, vllm_config: VllmConfig, role: ECConnectorRole) -> None:
        ECConnectorBase.__init__(self, vllm_config, role)
        EncoderTransfers.__init__(self)

    def start_load_caches(self, encoder_cache: EncoderOutputs, **kwargs: object) -> None:
        raise HostError("no worker runs at scheduler depth")

    def save_caches(self, encoder_cache: EncoderOutputs, mm_hash: str, **kwargs: object) -> None:
        raise HostError("no worker runs at scheduler depth")


def transfer_config() -> ECTransferConfig:
    """The release's configuration of a consumer of encoder outputs through that connector."""
    return ECTransferConfig(ec_connector=ScriptedConnector.__name__, ec_role="ec_consumer")


ECConnectorFactory.register_connector(
    ScriptedConnector.__name__, __name__, ScriptedConnector.__name__
)
