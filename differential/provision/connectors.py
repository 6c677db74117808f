"""Connectors of encoder caches that are not vLLM's own, each in a version and beside a release."""

from dataclasses import replace

from cacheproof.differential.errors import InputError
from cacheproof.differential.provision import environment, releases
from cacheproof.differential.provision.cache import Cache, Report
from cacheproof.differential.provision.releases import InstalledRelease
from cacheproof.differential.provision.versions import order, parse
from cacheproof.reference.releases import NEWEST

LMCACHE = "lmcache"
FIRST = "0.5.6"
"""The first LMCache whose connector of encoder caches is played."""


def install(version: str, *, report: Report, cache: Cache | None = None) -> InstalledRelease:
    """Install an LMCache version beside the newest release of vLLM, where either is missing.

    Raises:
        InputError: no version number, or one before the first that has such a connector.
        SetupError: no such version, no network, disk full, unwritable cache folder, or pip failed.
    """
    cache = cache or Cache.locate()
    require_played(version)
    release = releases.install(NEWEST, report=report, cache=cache)
    with cache.writing():
        libraries = environment.ensure(cache, environment.lmcache(version), report=report)
    return replace(release, overlays=(*libraries.overlays, *release.overlays))


def require_played(version: str) -> None:
    """Require an LMCache version with a connector that is played.

    Raises:
        InputError: no version number, or one before the first.
    """
    if order(version) < order(FIRST):
        raise InputError(
            f"lmcache {version[:60]!r} is no version with a connector of encoder caches; expected "
            f"{FIRST} or newer"
        )
    parse(version, f"{LMCACHE}@")


def list_installed(*, cache: Cache | None = None) -> list[str]:
    """The versions of LMCache that are installed, from old to new."""
    cache = cache or Cache.locate()
    names = {path.name.split("-")[1] for path in cache.environments.glob(f"{LMCACHE}-*")}
    found = (one for one in names if environment.locate(cache, environment.lmcache(one)))
    return sorted(found, key=order)
