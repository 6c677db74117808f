"""Puts the scripted connector into a release: a subclass of its ECConnectorBase, made by its own
factory from a configuration that its own validation accepts."""

from typing import Any

from vllm.config.ec_transfer import ECTransferConfig
from vllm.distributed.ec_transfer.ec_connector.base import ECConnectorBase
from vllm.distributed.ec_transfer.ec_connector.factory import ECConnectorFactory

from ..protocol import HostError
from .encoder_transfers import EncoderTransfers


class ScriptedConnector(EncoderTransfers, ECConnectorBase):
    """The scheduler's side; workers are played by whoever reads the trace."""

    def __init__(self, vllm_config: Any, role: Any) -> None:
        ECConnectorBase.__init__(self, vllm_config, role)
        EncoderTransfers.__init__(self)

    def start_load_caches(self, encoder_cache: Any, **kwargs: Any) -> None:
        raise HostError("no worker runs at scheduler depth")

    def save_caches(self, encoder_cache: Any, mm_hash: str, **kwargs: Any) -> None:
        raise HostError("no worker runs at scheduler depth")


def transfer_config() -> Any:
    """The release's configuration of a consumer of encoder outputs through that connector."""
    return ECTransferConfig(ec_connector=ScriptedConnector.__name__, ec_role="ec_consumer")


ECConnectorFactory.register_connector(
    ScriptedConnector.__name__, __name__, ScriptedConnector.__name__
)
