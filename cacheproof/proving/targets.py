"""What can be proved by its text: the reference, releases, checkouts, and classes of plug-ins."""

import itertools
import math
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import cached_property
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from cacheproof.differential.errors import InputError
from cacheproof.differential.lanes.all_lanes import LANES
from cacheproof.differential.provision import checkouts, releases
from cacheproof.differential.targets import mended
from cacheproof.differential.targets.named import NamedTarget, TargetKind, named
from cacheproof.differential.targets.process import HostTarget
from cacheproof.differential.targets.resolve import reading_of, resolve, stated_release
from cacheproof.differential.texts.known_texts import Reading
from cacheproof.output.announcing import as_json
from cacheproof.output.console import CommandOutput
from cacheproof.reference.releases import NEWEST
from cacheproof.spec.versions import Versions
from cacheproof.work.extras import install_line

if TYPE_CHECKING:
    from cacheproof.proofs.symbolic.texts import ReadClass


REFERENCE = "reference"
CHECKOUT = "path:"
MANAGERS = "vllm/v1/core/encoder_cache_manager.py"
SCHEDULER = "vllm.v1.core.sched.scheduler"
PLUGGED = "EncoderCacheManager"
"""The class whose place a plug-in takes."""
KEYED_SINCE = "0.10.2"
"""Managers of releases before know requests, not identifiers; their text is not proved."""
CLASSES = {
    "EncoderCacheManager": Versions("all"),
    "EncoderDecoderCacheManager": Versions(">=0.13.0"),
}
"""The releases that have each class of the module; of none the block pool is read."""
BUILT_SEEDS = range(20)
"""Seeds of the traces, in each lane, whose schedulers are looked at."""
_EXTENSIONS = (".pyd", ".so")
_PROVABLE = (TargetKind.REFERENCE, TargetKind.RELEASE, TargetKind.CHECKOUT, TargetKind.PLUG_IN)


@dataclass(frozen=True)
class Tree:
    """A release or a checkout, by the name that the user gives it; or the class of a `plug_in`, by
    its file and name, in the place of the release's encoder cache manager."""

    name: str
    release: releases.InstalledRelease
    plug_in: tuple[Path, str] | None = None

    def place_of(self, kind: str) -> tuple[Path, str] | None:
        """The file and the name of a class of that kind; None where a plug-in has none."""
        if self.plug_in is None:
            return self.release.tree / MANAGERS, kind
        return self.plug_in if kind == PLUGGED else None

    @property
    def is_release(self) -> bool:
        """Whether it is a release as it was installed: no checkout of one, nothing mended."""
        is_changed = self.name.startswith(CHECKOUT) or mended.MARK in self.name
        return self.plug_in is None and not is_changed

    @cached_property
    def reading(self) -> Reading | None:
        """How its text stands to that of the modelled releases."""
        return reading_of(self.release)

    @property
    def promises(self) -> str:
        """The release whose contracts it is asked to keep: its own, or the one that it is nearest
        to.

        Raises:
            InputError: it is near to none.
        """
        stated = stated_release(self.release.version)
        if stated is not None:
            return stated
        reading = self.reading
        if reading is None:
            raise InputError(
                f"--target {self.name}: it does not say of which release it is, and reads like "
                "none; tag it, or write its version into vllm/_version.py"
            )
        return reading.nearest


def listing_release(tree: Tree | None, subject: str) -> str | None:
    """The release whose listed faults a class of a tree may show: the one that it promises, where
    the class reads as there. A changed class breaks what it breaks for a cause of its own."""
    if tree is None or tree.is_release:
        return None if tree is None else tree.promises
    reading = tree.reading
    if tree.plug_in is not None or reading is None or reading.nearest != tree.promises:
        return None
    changed = {name.partition(".")[0] for name in reading.differing}
    return None if subject in changed else tree.promises


def wanted_trees(targets: Sequence[str] | None, output: CommandOutput) -> list[Tree | None]:
    """The releases and checkouts to prove, and None for the reference."""
    if missing := [tool for tool in ("z3", "crosshair") if find_spec(tool) is None]:
        raise InputError(
            f"prove needs {' and '.join(missing)}, which this Python has not; expected what "
            f"{install_line('proofs')} brings"
        )
    if targets is None:
        installed = releases.list_installed()
        keyed = [one for one in installed if _is_keyed(one.version)]
        return [None, *(Tree(f"vllm@{one.version}", one) for one in keyed)]
    wanted = [_provable(target) for target in targets]
    return [None if one.kind is TargetKind.REFERENCE else _tree(one, output) for one in wanted]


def _provable(target: str) -> NamedTarget:
    """What is named, if it can be proved. Nothing is fetched before all that are named are known
    to be.

    Raises:
        InputError: it names nothing, or something whose text is not proved.
    """
    one = named(target)
    if one.kind not in _PROVABLE or (one.kind is TargetKind.REFERENCE and one.version):
        raise InputError(
            f"--target {target}: expected {REFERENCE}, vllm@VERSION, {CHECKOUT}DIR or "
            "MODULE:CLASS[@VERSION]"
        )
    if one.kind is TargetKind.RELEASE and not _is_keyed(one.version):
        raise InputError(
            f"--target {target}: its manager knows requests, not identifiers, and is not "
            f"proved; expected {KEYED_SINCE} or later"
        )
    return one


def _tree(one: NamedTarget, output: CommandOutput) -> Tree:
    if one.kind is TargetKind.CHECKOUT:
        return Tree(one.name, checkouts.for_path(Path(one.place), report=output.say))
    release = releases.install(one.version, report=output.say)
    if one.mended:
        return Tree(one.name, mended.tree_of(release, one.mended, report=output.say))
    if one.kind is TargetKind.RELEASE:
        return Tree(f"vllm@{release.version}", release)
    module, _, own_name = one.place.partition(":")
    path = file_of(module, release.tree)
    if path is None:
        raise InputError(
            f"--target {one.name}: no file of a module {module} in the current folder, in "
            "vLLM or in what is installed here; expected MODULE:CLASS"
        )
    return Tree(one.name, release, (path, own_name))


def file_of(module: str, tree: Path) -> Path | None:
    """The file of a module, which is not run: it may need what is not installed here."""
    place = Path(*module.split("."))
    for folder in (Path.cwd(), tree, *map(Path, sys.path)):
        for path in (folder / place.with_suffix(".py"), folder / place / "__init__.py"):
            if path.is_file():
                return path
    return None


def _is_keyed(version: str) -> bool:
    return releases.order(version) >= releases.order(KEYED_SINCE)


def sources(name: str, wanted: Sequence[Tree | None]) -> Iterator["ReadClass"]:
    """The class in each tree that has it, the newest release first.

    Raises:
        InputError: a tree has no such file or class, its Python cannot be read here, or Python
            imports something else in its place.
    """
    from cacheproof.proofs.symbolic.reading.source import source_of
    from cacheproof.proofs.symbolic.texts import ReadClass

    for one in reversed(wanted):
        place = None if one is None else one.place_of(name)
        if one is not None and place is not None:
            path, own_name = place
            within = one.name.replace("@", " ")
            if (other := _in_place_of(path)) is not None:
                raise InputError(
                    f"--target {one.name}: Python imports {other}; expected {path} in its place"
                )
            if path.exists() and not path.is_file():
                raise InputError(
                    f"--target {one.name}: {path} is no file; expected the managers' module"
                )
            try:
                yield ReadClass(one.name, one.promises, source_of(path, own_name, within))
            except LookupError as error:
                if one.plug_in is not None or one.promises in CLASSES.get(name, ()):
                    expected = one.promises if one.plug_in is None else "MODULE:CLASS"
                    raise InputError(
                        f"--target {one.name}: {path}: no class {own_name}; expected that of "
                        f"{expected}"
                    ) from error
            except (OSError, SyntaxError, ValueError) as error:
                raise InputError(
                    f"--target {one.name}: {path}: {error}; expected the managers' module, as "
                    "this Python reads it"
                ) from error


def _in_place_of(module: Path) -> Path | None:
    """What Python imports by the module's name though a module stands there: a package or an
    extension of that name."""
    package = module.with_suffix("").glob("__init__.*")
    extensions = (
        one for one in module.parent.glob(f"{module.stem}.*") if one.suffix in _EXTENSIONS
    )
    return next(itertools.chain(package, extensions), None)


class Beside:
    """Does something in a thread of its own, which an interruption need not wait for."""

    def __init__(self, run: Callable[[], None]) -> None:
        self._run = run
        self._failure: Exception | None = None
        self._thread = threading.Thread(target=self._do, daemon=True)
        self._thread.start()

    def _do(self) -> None:
        try:
            self._run()
        except Exception as failure:
            self._failure = failure

    @property
    def has_ended(self) -> bool:
        """Whether it is done."""
        return not self._thread.is_alive()

    def check(self) -> None:
        """Raise what it has raised until now."""
        if self._failure is not None:
            raise self._failure

    def end(self, until: float = math.inf) -> bool:
        """Wait until it is done, or until a moment of the monotonic clock; raise what it has
        raised. Returns whether it is done."""
        self._thread.join(None if until == math.inf else max(0.0, until - time.monotonic()))
        self.check()
        return self.has_ended


def refuse_changed(tree: Tree) -> None:
    """Refuse a checkout of which another module changes a class that is proved, or whose scheduler
    builds something else in its place.

    Raises:
        InputError: it does; or the checkout cannot be read.
        HarnessError: it cannot be imported, or its scheduler cannot be driven.
    """
    read = [one.source for name in CLASSES for one in sources(name, [tree])]
    names = [one.name for one in read]
    with closing(resolve(tree.name, report=silent)) as target:
        assert isinstance(target, HostTarget)
        refuse_changed_on_import(target, read[0].module, names)
        refuse_otherwise_built(target, names)


def refuse_changed_on_import(target: HostTarget, text: str, names: Sequence[str]) -> None:
    """Refuse a target in which what a scheduler imports changes the classes of managers of these
    names, whose module reads so, or what their text calls by a builtin's name.

    Raises:
        InputError: it does.
        HarnessError: the target cannot be imported.
    """
    module = ".".join(Path(MANAGERS).with_suffix("").parts)
    found = target.imported_otherwise([module, SCHEDULER], module, text, names)
    if found:
        raise InputError(
            f"--target {target.name}: {found[0]} is not what {module} says, once {SCHEDULER} is "
            "imported; expected a module whose classes nothing else changes"
        )


def refuse_all_changed(trees: Iterable[Tree | None]) -> None:
    """Refuse the checkouts among them of which another module changes a class that is proved.

    Raises:
        InputError: it does; or the checkout cannot be read.
        HarnessError: one cannot be imported, or its scheduler cannot be driven.
    """
    for one in trees:
        if one is not None and one.name.startswith(CHECKOUT):
            refuse_changed(one)


def refuse_otherwise_built(target: HostTarget, names: Sequence[str]) -> None:
    """Refuse a target whose scheduler builds, or makes, something else of the classes of managers
    of these names than their text says, in any of some traces of each lane.

    Raises:
        InputError: it does, or none could be built.
        HarnessError: the target breaks.
    """
    release = target.model or NEWEST
    lanes = [lane for lane in LANES.values() if lane.depth == "scheduler"]
    traces = [lane.trace(seed, release) for lane in lanes for seed in BUILT_SEEDS]
    told = target.built(traces)
    expected = f"expected one that asks {' or '.join(names)} of {MANAGERS}, which is what is proved"
    if told.otherwise:
        raise InputError(
            f"--target {target.name}: what is proved is not what its scheduler asks: "
            f"{told.otherwise[0]}; {expected}"
        )
    if unbuilt := [name for name in names if not told.built.get(name)]:
        raise InputError(
            f"--target {target.name}: its scheduler builds no {' and no '.join(unbuilt)} in "
            f"{len(traces)} workloads; {expected}"
        )


def silent(_line: str) -> None:
    """Report nothing: the tree is there, since its text was read before."""


def announced(tree: Tree, say: Callable[[str], None]) -> dict[str, object]:
    """Say how the text that is proved stands to those of the modelled releases, unless it is one.
    Returns it as JSON has it."""
    reading = tree.reading
    lines = [] if reading is None else reading.announcement(tree.name)
    for line in lines:
        say(line)
    return as_json(lines, reading)
