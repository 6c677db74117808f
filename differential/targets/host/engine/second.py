"""The real engine with its second model runner."""

from .interpreted import interpret

interpret()  # before vllm is imported

from vllm.v1.worker.gpu.mm import encoder_runner  # noqa: E402

from .engine import HOST  # noqa: E402

__all__ = ["HOST"]

_batch = encoder_runner.group_and_batch_mm_kwargs


def _batch_unpinned(*given: object, **named: object) -> object:
    """Batch without pinning memory: 0.26.0 pins what it encodes as a batch, which fails without a
    GPU."""
    return _batch(*given, **{**named, "pin_memory": False})


encoder_runner.group_and_batch_mm_kwargs = _batch_unpinned
