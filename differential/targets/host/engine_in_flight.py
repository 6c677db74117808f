"""What lets a CPU's worker run two steps in flight, as a GPU's does.

The platform of CPUs turns asynchronous scheduling off, since nothing is gained by it there. The
worker's code is the same class, and is run as it is: the platform's word is taken back, and the
streams and events of CUDA, by which it waits for copies, are ones that have nothing to wait for.
"""

import contextlib
import functools
from collections.abc import Iterator
from typing import Any

import torch
from vllm.platforms import current_platform


class _Stream:
    """One on which everything has already happened."""

    device = torch.device("cpu")

    def __init__(self, *arguments: Any, **settings: Any) -> None:
        pass

    def wait_stream(self, stream: Any) -> None:
        pass

    def wait_event(self, event: Any) -> None:
        pass

    def synchronize(self) -> None:
        pass


class _Event:
    """One that has happened."""

    def __init__(self, *arguments: Any, **settings: Any) -> None:
        pass

    def record(self, stream: Any = None) -> None:
        pass

    def wait(self, stream: Any = None) -> None:
        pass

    def synchronize(self) -> None:
        pass

    def query(self) -> bool:
        return True


def stand_in_for_streams() -> None:
    """Give this process streams and events of CUDA that a CPU can use, for good."""
    torch.cuda.Stream = _Stream
    torch.cuda.Event = torch.Event = _Event
    torch.cuda.current_stream = lambda device=None: _Stream()
    torch.cuda.stream = lambda stream: contextlib.nullcontext()


@contextlib.contextmanager
def keeping_async_scheduling() -> Iterator[None]:
    """While an engine is made, the platform leaves what was asked for."""
    platform = type(current_platform)
    own = platform.__dict__["check_and_update_config"]

    def check_and_update_config(cls: Any, vllm_config: Any) -> None:
        asked = vllm_config.scheduler_config.async_scheduling
        own.__func__(cls, vllm_config)
        vllm_config.scheduler_config.async_scheduling = asked

    platform.check_and_update_config = classmethod(check_and_update_config)
    try:
        yield
    finally:
        platform.check_and_update_config = own


def register_kernels_once() -> None:
    """Let the second engine of a process leave kernels as the first has registered them: the
    release looks through all modules for more, and fails at one of numba's, which prompt lookup
    imports."""
    platform = type(current_platform)
    register = getattr(platform, "register_triton_kernel_overrides", None)
    if register is not None:
        platform.register_triton_kernel_overrides = staticmethod(functools.cache(register))
