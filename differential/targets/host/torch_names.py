"""What releases ask of torch that today's torch has under another name.

One torch serves all releases. A release that was written for another one may ask, while it is
imported, for a function that has moved since; it is answered here, by name, with today's function.
"""

from collections.abc import Callable
from importlib.util import find_spec
from typing import Any

ASKED = "torch lacks"
"""Begins a line of `tell`."""

_OWNER = "torch._C._cpu"
_MOVED = (
    "_is_amx_tile_supported",
    "_is_avx2_supported",
    "_is_avx512_bf16_supported",
    "_is_avx512_supported",
    "_is_vnni_supported",
)
"""Asked of `torch._C._cpu` by 0.17.0 and 0.17.1; of `torch.cpu` today."""

_asked: dict[str, None] = {}


def answer() -> None:
    """Let torch, where there is one, have what it lacks. What it has stays as it is."""
    if find_spec("torch") is None:
        return
    import torch.cpu

    for name in _MOVED:
        if not hasattr(torch._C._cpu, name):
            setattr(torch._C._cpu, name, _answering(name, getattr(torch.cpu, name)))


def tell() -> None:
    """Print a line for each name that was asked for and that torch lacks."""
    for name in _asked:
        print(f"{ASKED} {_OWNER}.{name}, which the release asks for: torch.cpu.{name} answers")


def _answering(name: str, today: Callable[[], Any]) -> Callable[[], Any]:
    def answering() -> Any:
        _asked[name] = None
        return today()

    return answering
