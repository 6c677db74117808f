"""Lets a CPU's worker run the second model runner, whose kernels are Triton's: interpreted.

Imported before vllm, in a process with TRITON_INTERPRET=1 and the package `triton` of the index,
which has no backend for CPUs. A CPU build of vLLM takes Triton only where it has one.
"""

import os
from typing import Any

INTERPRET_SETTING = "TRITON_INTERPRET"


class _Idle:
    """A driver of no device."""

    @staticmethod
    def is_active() -> bool:
        return False


class _Backend:
    """What vLLM looks for; the interpreter needs none."""

    driver = _Idle
    compiler = None


class _Kept:
    """What a launch has changed, which is not changed back."""

    def restore(self) -> None:
        pass


def interpret() -> None:
    """Make Triton's interpreter what a CPU's worker launches."""
    from triton.backends import backends

    if os.environ.get(INTERPRET_SETTING) != "1":
        raise RuntimeError(f"{INTERPRET_SETTING} must be 1: there is nothing to compile for")
    backends.setdefault("cpu", _Backend)
    # What models have torch compile asks Triton for the driver of a device.
    os.environ.setdefault("TORCHDYNAMO_DISABLE", "1")
    _patch_once()
    _keep_conditions()


def _keep_conditions() -> None:
    """Let a condition of one number be one still where it meets a block: the interpreter makes
    integers of it, and takes no mask of those (findings/triton-interpreted-condition.sh)."""
    from triton.runtime import interpreter

    builder = interpreter.InterpreterBuilder
    own = builder.create_splat

    def splat(self: Any, kind: Any, given: Any) -> Any:
        made = own(self, kind, given)
        if given.data.dtype == bool:
            made.data = made.data.astype(bool)
        return made

    builder.create_splat = splat


def _patch_once() -> None:
    """Let the interpreter change `triton.language` at the first launch, for each module of kernels,
    and leave it so: done and undone at every launch, this takes a quarter of a step."""
    from triton.runtime import interpreter

    own, patched = interpreter._patch_lang, set()

    def patch(kernel: Any) -> _Kept:
        module = id(kernel.__globals__)
        if module not in patched:
            own(kernel)
            patched.add(module)
        return _Kept()

    interpreter._patch_lang = patch
