"""Kernels of a CPU's worker in the place of a GPU's: what some releases forget about them."""

import functools
import importlib
import inspect
from collections.abc import Callable
from types import FunctionType

from vllm.platforms import current_platform
from vllm.v1.sample import rejection_sampler
from vllm.v1.spec_decode import utils as spec_decode_utils

from ..protocol import HostError


def register_kernels_once() -> None:
    """Let the second engine of a process leave kernels as the first has registered them: the
    release looks through all modules for more, and fails at one of numba's, which prompt lookup
    imports."""
    platform = type(current_platform)
    register = getattr(platform, "register_triton_kernel_overrides", None)
    if register is not None:
        platform.register_triton_kernel_overrides = staticmethod(functools.cache(register))


def mend_kernels_of_drafts() -> None:
    """Give kernels that propose and verify drafts the arguments that they know, before 0.25.0, and
    put them where 0.30.0 calls them. As they are, no draft is ever verified on a CPU there. Other
    releases are left alone."""
    kernels = importlib.import_module("vllm.utils.cpu_triton_utils")
    for module in (rejection_sampler, spec_decode_utils):
        launchers = [one for one in vars(module).values() if _own(one) is not None]
        for name, own in list(vars(module).items()):
            wrapped = getattr(getattr(kernels, name, None), "func", None)
            if wrapped is None or not isinstance(own, FunctionType):
                continue
            mended = _Mended(wrapped, own)
            if mended.lacks_arguments or launchers:
                setattr(kernels, name, mended)
            for launcher in launchers:
                if _own(launcher) is own:
                    launcher.kernel = mended


def _own(launcher: object) -> FunctionType | None:
    """The kernel for GPUs behind a launcher; None where there is none."""
    kernel = vars(launcher).get("kernel") if hasattr(launcher, "__dict__") else None
    return kernel if isinstance(kernel, FunctionType) else None


class _Mended:
    """A kernel for CPUs that is called as the release's own is. A flag that it does not know is
    off."""

    def __init__(self, kernel: Callable[..., None], own: FunctionType) -> None:
        self.arg_names = tuple(inspect.signature(own).parameters)
        self._kernel, self._name = kernel, own.__name__
        self._known = tuple(inspect.signature(kernel).parameters)

    @property
    def lacks_arguments(self) -> bool:
        """Whether the release's own kernel takes more arguments."""
        return len(self._known) < len(self.arg_names)

    def __getitem__(self, grid: object) -> Callable[..., None]:
        return self._called

    def _called(self, *arguments: object, **settings: object) -> None:
        names = self._known
        if self.lacks_arguments:
            names = tuple(name.removesuffix("_ptr") for name in self.arg_names)
        renamed = dict(zip(self.arg_names, names, strict=True))
        told = dict(zip(self.arg_names, arguments, strict=False)) | settings
        told = {renamed[name]: value for name, value in told.items()}
        unknown = [name for name in told if name not in self._known]
        if any(told[name] is True for name in unknown):
            raise HostError(f"the kernel {self._name} of CPUs does not know {unknown}")
        self._kernel(**{name: told[name] for name in told if name not in unknown})
