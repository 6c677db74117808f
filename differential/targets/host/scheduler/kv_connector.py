"""Puts the scripted KV connector into a release: a subclass of its KVConnectorBase_V1, made by its
own factory from a configuration that its own validation accepts."""

from inspect import signature

from torch import Tensor
from vllm.config import KVTransferConfig
from vllm.distributed.kv_transfer.kv_connector.factory import KVConnectorFactory
from vllm.distributed.kv_transfer.kv_connector.v1.base import KVConnectorBase_V1

from ..protocol import HostError, Illegal
from ..vllm_objects.requests import Request
from .kv_transfers import KVTransfers

try:
    from vllm.distributed.kv_transfer.kv_connector.v1.base import SupportsHMA
except ImportError:  # before 0.12 every connector has one group of blocks

    class SupportsHMA:  # type: ignore[no-redef]
        """Marks connectors that know groups, in releases without the mark."""


class ScriptedKVConnector(KVTransfers, KVConnectorBase_V1, SupportsHMA):
    """The scheduler's side; workers are played by the session."""

    def __init__(self, *arguments: object) -> None:
        KVConnectorBase_V1.__init__(self, *arguments)
        KVTransfers.__init__(self)

    def request_finished_all_groups(
        self, request: Request, block_ids: tuple[list[int], ...]
    ) -> tuple[bool, None]:
        (of_the_group,) = block_ids
        return self.request_finished(request, of_the_group)

    def start_load_kv(self, forward_context: object, **kwargs: object) -> None:
        raise HostError("no worker runs at scheduler depth")

    def wait_for_layer_load(self, layer_name: str) -> None:
        raise HostError("no worker runs at scheduler depth")

    def save_kv_layer(
        self, layer_name: str, kv_layer: Tensor, attn_metadata: object, **kwargs: object
    ) -> None:
        raise HostError("no worker runs at scheduler depth")

    def wait_for_save(self) -> None:
        raise HostError("no worker runs at scheduler depth")


def kv_transfer_config(policy: str) -> KVTransferConfig:
    """The release's configuration of a consumer of KV through that connector; `policy` says what
    becomes of a request whose load fails. Raises Illegal where the release has no such policy."""
    policies = {}
    if "kv_load_failure_policy" in signature(KVTransferConfig).parameters:
        policies = {"kv_load_failure_policy": policy}
    elif policy != "recompute":
        raise Illegal("requests whose load failed are always computed again")
    return KVTransferConfig(
        kv_connector=ScriptedKVConnector.__name__, kv_role="kv_consumer", **policies
    )


KVConnectorFactory.register_connector(
    ScriptedKVConnector.__name__, __name__, ScriptedKVConnector.__name__
)
