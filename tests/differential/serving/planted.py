"""A plug-in of vLLM that lets a worker's store read, now and then, every row from the place before
it: what a server then answers is wrong."""

from typing import Any

from cacheproof.differential.targets.after_import import after_import
from cacheproof.differential.targets.host.engine_faults import ReadsTheRowBefore


def register() -> None:
    """Plant it in every model runner of this process."""
    after_import("vllm.v1.worker.gpu_model_runner", plant)


def plant(module: Any) -> None:
    """Let model runners begin with such a store."""
    begin = module.GPUModelRunner.__init__

    def init(self: Any, *args: Any, **kwargs: Any) -> None:
        begin(self, *args, **kwargs)
        self.encoder_cache = ReadsTheRowBefore(self.encoder_cache)

    module.GPUModelRunner.__init__ = init
