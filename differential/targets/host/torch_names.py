"""Names that releases ask of torch, and that today's torch has elsewhere.

One torch serves all releases. A release that was written for another one may ask, while it is
imported, for a function that has moved since; it is answered here, by name, with today's function.
"""

from collections.abc import Callable
from importlib.util import find_spec

ASKED = "torch lacks"
"""Beginning of a line of `tell`."""

_OWNER = "torch._C._cpu"
_MOVED = (
    "_is_amx_tile_supported",
    "_is_avx2_supported",
    "_is_avx512_bf16_supported",
    "_is_avx512_supported",
    "_is_vnni_supported",
)
"""Names that 0.17.0 and 0.17.1 ask of `torch._C._cpu`; today they are in `torch.cpu`."""

_asked: dict[str, None] = {}


def answer() -> None:
    """Give torch, if there is one, the names that it lacks. What it has stays as it is."""
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


def _answering(name: str, today: Callable[[], object]) -> Callable[[], object]:
    def answering() -> object:
        _asked[name] = None
        return today()

    return answering
