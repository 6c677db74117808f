"""A pytest plug-in: plants a fault of differential/targets/host/ into vLLM's managers of encoder
outputs, KV cache managers or schedulers, at their classes, before anyone else gets hold of them.

CACHEPROOF_PLANTED_FAULT says what has the fault, one of PLANTED, and which: `kv_cache:nothing`.
"""

import functools
import os
from collections.abc import Callable, Iterable, Mapping
from importlib import import_module
from types import MethodType
from typing import Any, NamedTuple

import pytest

from cacheproof.differential.audit.scheduler_watch import SCHEDULERS
from cacheproof.differential.targets.attached import (
    ENCODER_MANAGERS,
    KV_CACHE_MANAGERS,
    WatchedClasses,
)
from cacheproof.differential.targets.host.faults.kv_cache import KV_CACHE_FAULTS
from cacheproof.differential.targets.host.faults.manager import FAULTS
from cacheproof.differential.targets.host.faults.scheduler import SCHEDULER_FAULTS

STORED = "_planted"
Fault = Callable[[Any], None]


class Planted(NamedTuple):
    """Classes that a fault is planted in, and the faults."""

    watched: WatchedClasses
    faults: Mapping[str, Fault]


PLANTED = {
    "encoder": Planted(ENCODER_MANAGERS, FAULTS),
    "kv_cache": Planted(KV_CACHE_MANAGERS, KV_CACHE_FAULTS),
    "scheduler": Planted(SCHEDULERS, SCHEDULER_FAULTS),
}


def plant(owner: Any, fault: Fault, names: Iterable[str]) -> None:
    """Let every object of the class have the fault: what it puts in the place of an object's
    methods is what the methods of the class then call."""
    methods = {name: getattr(owner, name) for name in names if hasattr(owner, name)}
    begin = owner.__init__

    @functools.wraps(begin)
    def init(self: Any, *args: Any, **kwargs: Any) -> None:
        begin(self, *args, **kwargs)
        vars(self).update({name: MethodType(method, self) for name, method in methods.items()})
        fault(self)
        vars(self)[STORED] = {name: vars(self).pop(name) for name in methods}

    def planted(name: str) -> Any:
        @functools.wraps(methods[name])
        def method(self: Any, *args: Any, **kwargs: Any) -> Any:
            of_class = MethodType(methods[name], self)
            return vars(self).get(STORED, {}).get(name, of_class)(*args, **kwargs)

        return method

    owner.__init__ = init
    for name in methods:
        setattr(owner, name, planted(name))


@pytest.hookimpl(tryfirst=True)
def pytest_configure() -> None:
    """Plant it before the contracts are attached."""
    kind, _, name = os.environ["CACHEPROOF_PLANTED_FAULT"].partition(":")
    watched, faults = PLANTED[kind]
    module = import_module(watched.module)
    of_decoders = "decoder" in name and kind == "encoder"
    owner = getattr(module, watched.classes[of_decoders])
    plant(owner, faults[name], watched.operations)
