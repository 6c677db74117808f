"""Makes the target that a user writes after --target."""

import json
from pathlib import Path

from cacheproof.differential.errors import InputError
from cacheproof.differential.provision import checkouts, connectors, releases
from cacheproof.differential.provision.cache import Cache, Report
from cacheproof.differential.provision.releases import InstalledRelease
from cacheproof.differential.provision.versions import FIRST_ENGINE, order, runs_hasher_alone
from cacheproof.differential.targets.base import Target
from cacheproof.differential.targets.both_runners import EngineTarget
from cacheproof.differential.targets.host.engine.limits import MODELS_SETTING
from cacheproof.differential.targets.host.managers.media_hash_alone import REFERENCE_SETTING
from cacheproof.differential.targets.mended import MARK, tree_of
from cacheproof.differential.targets.named import (
    DEPTHS_OF_A_HASHER,
    DEPTHS_OF_AN_ENGINE,
    DEPTHS_OF_LMCACHE,
    ENGINE,
    MEDIA_HASH,
    TargetKind,
    named,
    semantics_of,
)
from cacheproof.differential.targets.process import HostTarget
from cacheproof.differential.targets.reference import ReferenceTarget
from cacheproof.differential.texts import known_texts, mends
from cacheproof.differential.texts.known_texts import KnownTexts, Reading
from cacheproof.reference.releases import FIRST_MODELLED
from cacheproof.reference.semantics import NotModelled, Semantics
from cacheproof.spec.versions import release_key

FIRST_V1 = (0, 8)
ENGINE_MODULE = "host.engine.engine"
RUNNER_MODULE = "host.engine.runner"
HASHER_ALONE = "host.managers.media_hash_alone"
LMCACHE_MODULE = "host.connectors.lmcache"


def resolve(text: str, *, report: Report) -> Target:
    """The target that `text` names; provisions a release that is not there yet.

    Raises:
        InputError: the text names nothing that can be run.
        SetupError: a release cannot be provisioned.
    """
    one = named(text)
    version = one.version
    match one.kind:
        case TargetKind.REFERENCE:
            semantics = semantics_of(version) if version else None
            return ReferenceTarget(semantics, name=text, release=version or None)
        case TargetKind.RELEASE:
            release = releases.install(version, report=report)
            return host_of(release, text, mended=one.mended, report=report)
        case TargetKind.ENGINE:
            if one.place:
                return _engine_of_checkout(Path(one.place), text, report=report)
            engine = releases.install(version, report=report, kind=releases.ENGINE)
            return engine_of(engine, text, mended=one.mended, report=report)
        case TargetKind.WHEEL:
            wheel = releases.install(version, report=report, kind=releases.WHEEL)
            return engine_of(wheel, text)
        case TargetKind.LMCACHE:
            return lmcache_of(connectors.install(version, report=report), version, text)
        case TargetKind.CHECKOUT:
            return host_of(checkouts.for_path(Path(one.place), report=report), text)
        case TargetKind.PLUG_IN:
            return host_of(releases.install(version, report=report), text, plug_in=one.place)


def tree_here(text: str) -> Path | None:
    """The folder that holds the package vllm of a target, where it is on this machine. Provisions
    nothing."""
    if text.removeprefix(f"{ENGINE}@").startswith(TargetKind.CHECKOUT.value):
        place = text.removeprefix(f"{ENGINE}@").removeprefix(TargetKind.CHECKOUT.value)
        tree = Path(place).expanduser().absolute()
        return tree if (tree / "vllm").is_dir() else None
    kind, at, version = text.partition(MARK)[0].partition("@")
    kinds = {one: one for one in (releases.VLLM, releases.ENGINE, releases.WHEEL)}
    found = releases.find(version, kind=kinds[kind]) if at and kind in kinds else None
    return None if found is None else found.tree


def host_of(
    release: InstalledRelease,
    name: str,
    *,
    plug_in: str | None = None,
    mended: tuple[str, ...] = (),
    report: Report = print,
) -> HostTarget:
    """A host process for a release, in which listed faults are `mended`; a plug-in is imported from
    the current folder, from the tree, or from cacheproof.reference.

    Raises:
        InputError: a mend is of another text than the release's.
    """
    if mended:
        release = tree_of(release, mended, report=report)
    command, environment = releases.host_command(release)
    if runs_hasher_alone(release.version) and plug_in is None:
        return HostTarget(
            name,
            stated_release(release.version),
            command,
            environment,
            tree=release.tree,
            module=HASHER_ALONE,
            depths=DEPTHS_OF_A_HASHER,
        )
    reading = None if mended else reading_of(release)
    return HostTarget(
        name,
        _promised(release, reading),
        command,
        environment,
        reading=reading,
        tree=None if plug_in else release.tree,
        plug_in=plug_in,
        mended=mended,
        is_forked=True,
    )


def engine_of(
    engine: InstalledRelease, name: str, *, mended: tuple[str, ...] = (), report: Report = print
) -> EngineTarget:
    """Host processes for an engine, with its scheduler, a worker and a model, one for each model
    runner; `mended` as for a release."""
    if mended:
        engine = tree_of(engine, mended, report=report)
    reading = None if mended else reading_of(engine)
    command, environment = releases.host_command(engine)
    environment |= {MODELS_SETTING: str(Cache.locate().models)}
    return EngineTarget(
        name,
        _promised(engine, reading),
        command,
        environment,
        reading=reading,
        tree=engine.tree,
        mended=mended,
        module=ENGINE_MODULE,
        depths=DEPTHS_OF_AN_ENGINE,
    )


def _engine_of_checkout(directory: Path, name: str, *, report: Report) -> EngineTarget:
    """A checkout as an engine, with the libraries of the release that it is nearest to.

    Raises:
        InputError: it is older than any engine that can run here.
    """
    tree = checkouts.tree_of(directory)
    stated = stated_release(checkouts.version_of(tree))
    reading = known_texts.load().read(tree, stated)
    nearest = stated if reading is None else reading.nearest
    if nearest is None or order(nearest) < order(FIRST_ENGINE):
        raise InputError(
            f"{name}: reads like vLLM {nearest or 'of no release'}, and no engine before "
            f"{FIRST_ENGINE} runs here; expected a checkout of {FIRST_ENGINE} or newer"
        )
    return engine_of(checkouts.for_path(directory, report=report, engine_like=nearest), name)


def _promised(release: InstalledRelease, reading: Reading | None) -> str | None:
    """The release whose promises are kept: the one that it says it is, else that it reads like."""
    stated = stated_release(release.version)
    return reading.nearest if stated is None and reading is not None else stated


def lmcache_of(release: InstalledRelease, version: str, name: str) -> HostTarget:
    """A host process for LMCache's connector, beside the release of vLLM whose base class it
    has."""
    command, environment = releases.host_command(release)
    return HostTarget(
        name,
        version,
        command,
        environment,
        module=LMCACHE_MODULE,
        depths=DEPTHS_OF_LMCACHE,
        is_forked=True,
        project=connectors.LMCACHE,
    )


def reading_of(release: InstalledRelease, known: KnownTexts | None = None) -> Reading | None:
    """How the text of a release, or of a checkout, compares with the modelled ones; None where it
    is older than all of them, or has none of it. `known` replaces the table that is shipped.

    Raises:
        InputError: it is not Python that can be read here.
    """
    stated = stated_release(release.version)
    if stated is not None and release_key(stated) < release_key(FIRST_MODELLED):
        return None
    return (known or known_texts.load()).read(release.tree, stated)


def stated_release(version: str) -> str | None:
    """The release that a version names; None for the version of a checkout without tags."""
    try:
        return version if release_key(version) >= FIRST_V1 else None
    except ValueError:
        return None


def reference_for(target: Target) -> ReferenceTarget | None:
    """The reference under the semantics of the release that is the target's model; None where it
    is not modelled.

    Its media hash, or for an engine its runner, runs in the target's interpreter, with the
    libraries that the target has. It is to be closed.
    """
    semantics = semantics_beside(target)
    if semantics is None:
        return None
    name = f"reference@{target.model}"
    hasher = runner = None
    if isinstance(target, HostTarget) and target.runs_depth(ENGINE):
        runner = target.beside("torch runner", RUNNER_MODULE, (ENGINE,), _flags(semantics))
    elif isinstance(target, HostTarget):
        hasher = hasher_beside(target, semantics)
    return ReferenceTarget(
        semantics,
        target.protocol,
        name=name,
        release=target.model,
        media_hash=hasher,
        runner=runner,
    )


def semantics_beside(target: Target) -> Semantics | None:
    """Semantics of the release that is the target's model, with mended faults taken away; None
    where it is not modelled."""
    if target.model is None or "vllm" not in target.projects:
        return None
    try:
        return Semantics.of_vllm(target.model).changed(mends.flags_of(target.mended))
    except NotModelled:
        return None


def share_libraries(one: Target, other: Target) -> None:
    """Where one of two targets is the reference, let it hash media with the other's libraries."""
    for reference, host in ((one, other), (other, one)):
        if isinstance(reference, ReferenceTarget) and isinstance(host, HostTarget):
            reference.hash_media_in(hasher_beside(host, reference.semantics))


def hasher_beside(target: HostTarget, semantics: Semantics) -> HostTarget:
    """A host that hashes media as the reference does, with the libraries of the target."""
    return target.beside("reference hasher", HASHER_ALONE, (MEDIA_HASH,), _flags(semantics))


def _flags(semantics: Semantics) -> dict[str, str]:
    return {REFERENCE_SETTING: json.dumps(semantics.flags)}
