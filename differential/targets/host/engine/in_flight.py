"""What lets a CPU's worker run two steps in flight, as a GPU's does.

The platform of CPUs turns asynchronous scheduling off, since nothing is gained by it there. The
worker's code is the same class, and is run as it is: the platform's word is taken back, and the
streams and events of CUDA, by which it waits for copies, are ones that have nothing to wait for.
"""

import contextlib
from collections.abc import Iterator

import torch
from vllm.platforms import current_platform
from vllm.v1.worker import cpu_model_runner, cpu_worker  # noqa: F401 (it brings streams too)

from ..vllm_objects.config import VllmConfig


class _Stream:
    """A stream on which everything has already happened."""

    device = torch.device("cpu")

    def __init__(self, *arguments: object, **settings: object) -> None:
        pass

    def wait_stream(self, stream: object) -> None:
        pass

    def wait_event(self, event: object) -> None:
        pass

    def synchronize(self) -> None:
        pass


class _Event:
    """An event that has already happened."""

    def __init__(self, *arguments: object, **settings: object) -> None:
        pass

    def record(self, stream: object = None) -> None:
        pass

    def wait(self, stream: object = None) -> None:
        pass

    def synchronize(self) -> None:
        pass

    def query(self) -> bool:
        return True


_WITHOUT_STREAMS = {
    "_copy_draft_token_ids_to_cpu",
    "_copy_valid_sampled_token_count",
    "_get_draft_token_ids_cpu",
    "_get_valid_sampled_token_count",
}
"""Methods that a CPU's runner has of its own, for want of streams, before 0.25.0."""


def stand_in_for_streams() -> None:
    """Give this process streams and events of CUDA that a CPU can use, for good, and its runner
    what a GPU's does with them. Those that the worker's module brings for the time in which a
    runner is made cannot be waited for."""
    torch.cuda.Stream = _Stream
    torch.cuda.Event = torch.Event = _Event
    torch.cuda.current_stream = lambda device=None: _Stream()
    torch.cuda.stream = lambda stream: contextlib.nullcontext()
    cpu_model_runner._torch_cuda_wrapper = contextlib.nullcontext
    runner = cpu_model_runner.CPUModelRunner
    for name in _WITHOUT_STREAMS & vars(runner).keys():
        delattr(runner, name)


@contextlib.contextmanager
def keeping_async_scheduling() -> Iterator[None]:
    """Let the platform keep the asynchronous scheduling that was asked for, while an engine is
    made."""
    platform = type(current_platform)
    own = platform.__dict__["check_and_update_config"]

    def check_and_update_config(cls: type, vllm_config: VllmConfig) -> None:
        asked = vllm_config.scheduler_config.async_scheduling
        own.__func__(cls, vllm_config)
        vllm_config.scheduler_config.async_scheduling = asked

    platform.check_and_update_config = classmethod(check_and_update_config)
    try:
        yield
    finally:
        platform.check_and_update_config = own
