"""A host that hashes media and does nothing else.

Started as `PYTHON <this folder> host.managers.media_hash_alone` beside a release that is too old
for the other depths, or with the setting CACHEPROOF_REFERENCE (the flags of its semantics, as JSON)
as the reference in a release's environment, which has the libraries that arrays, tensors and images
come from.
"""

import functools
import json
import os
import sys
from importlib import metadata
from typing import TYPE_CHECKING

from ..faults.media_hash import HashArguments
from ..package import ours
from ..protocol import Event, HostError, Illegal, Json, Plain, Protocol
from ..session import run_events
from . import media_hash
from .media_values import Wrapper, limited

if TYPE_CHECKING:
    from cacheproof.reference.semantics.media import MediaSemantics

REFERENCE_SETTING = "CACHEPROOF_REFERENCE"


class HasherHost:
    """Runs media-hash traces on this interpreter's vLLM, or on the reference."""

    def __init__(self) -> None:
        flags = os.environ.get(REFERENCE_SETTING)
        self._flags: dict[str, bool] | None = None if flags is None else json.loads(flags)

    def hello(self, plug_in: str | None) -> dict[str, Json]:
        """Versions of what runs here."""
        is_reference = self._flags is not None
        return {
            "python": sys.version.split()[0],
            "vllm": "none" if is_reference else metadata.version("vllm"),
            "protocol": Protocol()._asdict(),
        }

    def run(self, request: Plain) -> list[dict[str, object]]:
        """One result per trace of the batch, in order; on the reference under changed flags, where
        the request has some."""
        fault = request.get("fault")
        flags = self._flags and self._flags | (request.get("flags") or {})
        semantics = None if flags is None else _semantics(flags)
        return [self._run_trace(trace, semantics, fault) for trace in request["traces"]]

    def _run_trace(
        self, trace: Event, semantics: "MediaSemantics | None", fault: str | None
    ) -> dict[str, object]:
        header = trace["header"]
        if header["depth"] != "media_hash":
            raise HostError(f"a {header['depth']}-depth trace for a hasher alone")
        algorithm = header["config"]["algorithm"]
        try:
            if semantics is None:
                session = media_hash.of_release(algorithm, fault)
            else:
                session = of_reference(semantics, algorithm, fault)
            return {"records": run_events(session, trace["events"])}
        except Illegal as reason:
            return {"records": [], "illegal": str(reason)}


def of_reference(
    semantics: "MediaSemantics", algorithm: str, fault: str | None = None
) -> media_hash.MediaHashSession:
    """A session on the reference, with the libraries of this interpreter.

    Raises:
        Illegal: under those semantics there is no such algorithm.
    """
    return media_hash.MediaHashSession(*_parts(semantics, algorithm), fault=fault)


@functools.cache
def _parts(
    semantics: "MediaSemantics", algorithm: str
) -> tuple[HashArguments, Wrapper | None, tuple[type[Exception], ...]]:
    module = ours("reference.media_hash")
    hasher = module.MultiModalHasher(semantics)
    try:
        hasher.hash_kwargs(algorithm)
    except ValueError as reason:
        raise Illegal(str(reason)) from None
    kinds = module.media_kinds(semantics)
    wrapper = limited(module.MediaWithBytes, kinds, semantics.hashes_decode_settings)
    return (
        lambda arguments: hasher.hash_kwargs(algorithm, **arguments),
        wrapper if kinds else None,
        (module.Indeterminate,),
    )


def _semantics(flags: dict[str, bool]) -> "MediaSemantics":
    return ours("reference.semantics").Semantics.ideal().changed(flags).media


HOST = HasherHost
