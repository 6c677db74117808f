"""Asks one hasher of media for the digests of described calls.

Each call is built and hashed twice, both objects alive, so that a digest that leans on where an
object lies in memory shows. A value that the release cannot be given is a no-op.
"""

import functools
import importlib
import importlib.util
import inspect
import os
import re
import sys
import types
from collections.abc import Callable, Mapping
from importlib import metadata

from ..faults.media_hash import MEDIA_HASH_FAULTS, HashArguments
from ..protocol import Event, Illegal, Json
from ..session import NoCalls
from .media_values import Builder, Unbuildable, Wrapper, limited

ALGORITHM_SETTING = "VLLM_MM_HASHER_ALGORITHM"
WITHOUT_PACKAGES = ("0.8.", "0.9.")
MEDIA_KINDS = {"image": "Image.Image", "array": "np.ndarray", "tensor": "torch.Tensor"}


class MediaHashSession:
    """One trace's hasher. `apply` takes an event and returns its outcome, None for a no-op.

    The outcome is {"digest": hexadecimal}, {"raises": type} or {"unstable": true}: two builds of
    the call have two digests. `indeterminate` is what a reference raises in the last case; `fault`
    names one of `faults.media_hash`.
    """

    def __init__(
        self,
        hash_arguments: HashArguments,
        wrapper: Wrapper | None,
        indeterminate: tuple[type[Exception], ...] = (),
        *,
        fault: str | None = None,
    ) -> None:
        self.recorder = NoCalls()
        self._hash = hash_arguments if fault is None else MEDIA_HASH_FAULTS[fault](hash_arguments)
        self._builder = Builder(wrapper)
        self._indeterminate = indeterminate

    def apply(self, event: Event) -> dict[str, Json] | None:
        try:
            first = self._builder.arguments(event["value"])
            second = self._builder.arguments(event["value"])
        except Unbuildable:
            return None
        try:
            digests = {self._hash(first), self._hash(second)}
        except self._indeterminate:
            return {"unstable": True}
        except Exception as error:
            return {"raises": type(error).__name__}
        return {"digest": digests.pop()} if len(digests) == 1 else {"unstable": True}


def of_release(algorithm: str, fault: str | None = None) -> MediaHashSession:
    """A session on this interpreter's vLLM, with a fault of `faults.media_hash` or none.

    Raises:
        Illegal: the release offers no such algorithm.
    """
    return MediaHashSession(*_parts_of_release(algorithm), fault=fault)


@functools.cache
def _parts_of_release(algorithm: str) -> tuple[HashArguments, Wrapper | None]:
    hasher = hasher_module()
    return _hash_of_release(hasher, algorithm), _wrapper_of_release(hasher)


@functools.cache
def hasher_module() -> types.ModuleType:
    """The release's hasher module; loaded alone where its packages import what newer libraries
    lack."""
    if metadata.version("vllm").startswith(WITHOUT_PACKAGES):
        for name in ("vllm", "vllm.multimodal"):
            found = importlib.util.find_spec(name)
            assert found is not None
            package = types.ModuleType(name)
            package.__path__ = list(found.submodule_search_locations or ())
            sys.modules[name] = package
    return importlib.import_module("vllm.multimodal.hasher")


def _hash_of_release(hasher: types.ModuleType, algorithm: str) -> HashArguments:
    hash_kwargs = hasher.MultiModalHasher.hash_kwargs
    first = next(iter(inspect.signature(hash_kwargs).parameters.values()))
    if first.kind is inspect.Parameter.POSITIONAL_ONLY:
        return lambda arguments: hash_kwargs(algorithm, **arguments)  # type: ignore[no-any-return]
    if hasattr(hasher, "envs"):
        return lambda arguments: _hash_with_setting(hash_kwargs, algorithm, arguments)
    if algorithm != "blake3":
        raise Illegal(f"this release hashes media with blake3 alone, not {algorithm}")
    return lambda arguments: hash_kwargs(**arguments)  # type: ignore[no-any-return]


def _hash_with_setting(
    hash_kwargs: Callable[..., str], algorithm: str, arguments: Mapping[str, object]
) -> str:
    """Hash with an algorithm that is a setting of the process, set for each call."""
    os.environ[ALGORITHM_SETTING] = algorithm
    return hash_kwargs(**arguments)


def _wrapper_of_release(hasher: types.ModuleType) -> Wrapper | None:
    """A maker of media with their original bytes, of the kinds that the hasher looks for; of all
    where it looks for none."""
    wrapper = getattr(hasher, "MediaWithBytes", None)
    if wrapper is None:
        return None
    source = inspect.getsource(hasher.MultiModalHasher.serialize_item)
    looked_for = " ".join(re.findall(r"obj\.media,\s*\(?([^)]*)\)", source))
    kinds = {kind for kind, name in MEDIA_KINDS.items() if name in looked_for} or set(MEDIA_KINDS)
    return limited(wrapper, kinds, "io_config" in inspect.signature(wrapper).parameters)
