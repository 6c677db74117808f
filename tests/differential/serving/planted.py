"""A plug-in of vLLM that lets a worker's store read, now and then, one row in the place of all.

What a server then answers is wrong, of a decoder that attends to all rows as well.
"""

from typing import Any

from cacheproof.differential.targets.after_import import after_import
from cacheproof.differential.targets.host.faults.engine.engine import ReadsOneRow


def register() -> None:
    """Plant it in every model runner of this process."""
    after_import("vllm.v1.worker.gpu_model_runner", plant)


def plant(module: Any) -> None:
    """Let model runners begin with such a store, and read from it."""
    runner = module.GPUModelRunner
    begin, encode = runner.__init__, runner._execute_mm_encoder

    def init(self: Any, *args: Any, **kwargs: Any) -> None:
        begin(self, *args, **kwargs)
        self.encoder_cache = ReadsOneRow(self.encoder_cache)

    def read(self: Any, decided: Any) -> Any:
        encoded = encode(self, decided)
        if not self.model_config.is_encoder_decoder:
            return encoded
        return [  # such a worker hands on what it encoded, and never looks it up
            self.encoder_cache.get(self.requests[name].mm_features[number].identifier)
            for name, numbers in decided.scheduled_encoder_inputs.items()
            for number in numbers
        ]

    runner.__init__, runner._execute_mm_encoder = init, read
