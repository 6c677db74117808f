"""A pytest plug-in: plants a fault of differential/targets/host/faults.py into vLLM's managers of
encoder outputs, at their classes, before anyone else gets hold of them.

CACHEPROOF_PLANTED_FAULT names the fault.
"""

import os
from types import MethodType
from typing import Any

import pytest

from cacheproof.differential.targets.host.faults import FAULTS
from cacheproof.differential.targets.host.recorder import OPERATIONS

PLANTED = "_planted"


def plant(owner: Any, fault: str) -> None:
    """Let every manager of the class have the fault: what it puts in the place of a manager's
    methods is what the methods of the class then call."""
    methods = {name: getattr(owner, name) for name in OPERATIONS if hasattr(owner, name)}
    begin = owner.__init__

    def init(self: Any, *args: Any, **kwargs: Any) -> None:
        begin(self, *args, **kwargs)
        vars(self).update({name: MethodType(method, self) for name, method in methods.items()})
        FAULTS[fault](self)
        vars(self)[PLANTED] = {name: vars(self).pop(name) for name in methods}

    def planted(name: str) -> Any:
        def method(self: Any, *args: Any, **kwargs: Any) -> Any:
            of_class = MethodType(methods[name], self)
            return vars(self).get(PLANTED, {}).get(name, of_class)(*args, **kwargs)

        return method

    owner.__init__ = init
    for name in methods:
        setattr(owner, name, planted(name))


@pytest.hookimpl(tryfirst=True)
def pytest_configure() -> None:
    """Plant it before the contracts are attached."""
    from vllm.v1.core import encoder_cache_manager as module

    fault = os.environ["CACHEPROOF_PLANTED_FAULT"]
    is_decoders = "decoder" in fault
    plant(module.EncoderDecoderCacheManager if is_decoders else module.EncoderCacheManager, fault)
