"""A host's side of a media-hash search: `Release` runs traces of hashed calls, and nothing else.

Started as `PYTHON <this folder> host.media_hash_lane` beside a release, of any age, or with the
setting CACHEPROOF_REFERENCE=<release or "ideal"> as the reference in a release's environment, which
has the libraries that arrays, tensors and images come from.
"""

import functools
import hashlib
import importlib
import inspect
import os
import sys
import types
from importlib import metadata
from pathlib import Path
from typing import Any

from . import media_hash
from .media_values import Wrapper, limited
from .protocol import Illegal, Protocol
from .session import run_events

REFERENCE_SETTING = "CACHEPROOF_REFERENCE"


class Release:
    """Runs media-hash traces on this interpreter's vLLM, or on the reference."""

    def __init__(self) -> None:
        self._reference = os.environ.get(REFERENCE_SETTING)

    def hello(self, plug_in: str | None) -> dict[str, Any]:
        """Versions, and digests of the functions that the reference models."""
        return {
            "python": sys.version.split()[0],
            "vllm": "none" if self._reference else metadata.version("vllm"),
            "protocol": Protocol()._asdict(),
            "sources": {} if self._reference else _sources(),
        }

    def run(self, request: dict[str, Any]) -> list[dict[str, Any]]:
        """One result per trace of the batch."""
        fault = request.get("fault")
        return [self._run_trace(trace, fault) for trace in request["traces"]]

    def _run_trace(self, trace: dict[str, Any], fault: str | None) -> dict[str, Any]:
        algorithm = trace["header"]["config"]["algorithm"]
        try:
            if self._reference:
                parts = of_reference(self._reference, algorithm)
                session = media_hash.MediaHashSession(*parts, fault=fault)
            else:
                session = media_hash.of_release(algorithm, fault)
            return {"records": run_events(session, trace["events"])}
        except Illegal as reason:
            return {"records": [], "illegal": str(reason)}


@functools.cache
def of_reference(release: str, algorithm: str) -> tuple[Any, Wrapper | None, tuple[Any, ...]]:
    """What a session on the reference is made of; `release` may be "ideal".

    Raises:
        Illegal: the release offers no such algorithm.
    """
    package = sys.modules.setdefault("cacheproof", types.ModuleType("cacheproof"))
    if not hasattr(package, "__path__"):  # the front door's libraries need not be here
        package.__path__ = [str(Path(__file__).parents[3])]
    modules = (f"cacheproof.reference.{name}" for name in ("semantics", "media_hash"))
    semantics_module, hash_module = map(importlib.import_module, modules)
    semantics_class = semantics_module.Semantics
    semantics = semantics_class.ideal() if release == "ideal" else semantics_class.of_vllm(release)
    hasher = hash_module.MultiModalHasher(semantics)
    try:
        hasher.hash_kwargs(algorithm)
    except ValueError as reason:
        raise Illegal(str(reason)) from None
    kinds = hash_module.media_kinds(semantics)
    wrapper = limited(hash_module.MediaWithBytes, kinds, semantics.hashes_decode_settings)
    return (
        lambda arguments: hasher.hash_kwargs(algorithm, **arguments),
        wrapper if kinds else None,
        (hash_module.Indeterminate,),
    )


def _sources() -> dict[str, str]:
    hasher = media_hash.hasher_module().MultiModalHasher
    names = ("serialize_item", "iter_item_to_bytes", "iter_value_to_bytes", "hash_kwargs")
    return {
        f"MultiModalHasher.{name}": hashlib.sha256(
            inspect.getsource(getattr(hasher, name)).encode()
        ).hexdigest()[:16]
        for name in names
        if hasattr(hasher, name)
    }
