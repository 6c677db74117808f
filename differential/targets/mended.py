"""A release with listed faults mended, as a tree of its own: links to the release's files, and
files that the mends change."""

import hashlib
import os
import shutil
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from cacheproof.differential.errors import InputError
from cacheproof.differential.provision.cache import Cache, Report
from cacheproof.differential.provision.releases import InstalledRelease
from cacheproof.differential.texts import mends

DIGITS = 16
KEPT_SECONDS = 30 * 24 * 3600
"""A tree that was not asked for this long is removed when the next one is made."""
MARK = "+mended"
BUT = "-but"


class Sources(dict[str, str]):
    """The text of a tree's modules, by path, each read when it is asked for."""

    def __init__(self, tree: Path) -> None:
        super().__init__()
        self._tree = tree

    def __missing__(self, path: str) -> str:
        if not (self._tree / path).is_file():
            raise ValueError(f"no {path}")
        return (self._tree / path).read_text()


def chosen(which: str, release: str) -> tuple[str, ...]:
    """The faults that are to be mended in a release, by what stands behind its name: all that can
    be where that is `+mended`, all but some where it is `+mended-but:NAME,NAME`, those that
    `+mended:NAME,NAME` names.

    Raises:
        InputError: it names no fault that has a mend for the release.
    """
    can_be = mends.mended_in(release)
    if not can_be:
        raise InputError(f"no listed fault has a mend for vLLM {release}; see docs/how-to/mends.md")
    word, colon, listed = which.partition(":")
    names = listed.split(",") if colon else []
    strange = [name for name in names if name not in can_be]
    if word not in (MARK, MARK + BUT) or strange or (word == MARK + BUT and not colon):
        what = f"{strange[0]!r} has no mend for vLLM {release}" if strange else repr(which)
        raise InputError(
            f"{what}; expected {MARK}, {MARK}:NAME,NAME or {MARK}{BUT}:NAME,NAME of "
            f"{', '.join(can_be)}"
        )
    is_named = word == MARK and bool(colon)
    return tuple(name for name in can_be if (name in names) == is_named)


def tree_of(
    release: InstalledRelease, names: Sequence[str], *, report: Report, cache: Cache | None = None
) -> InstalledRelease:
    """The release with faults mended; made where it is not there yet.

    Raises:
        InputError: a mend is of another text than the release's.
        SetupError: the cache folder cannot be written.
    """
    cache = cache or Cache.locate()
    changed = mends.apply(names, release.version, Sources(release.tree))
    digest = hashlib.sha256(f"{release.tree}\0{sorted(changed.items())}".encode())
    folder = cache.mended / digest.hexdigest()[:DIGITS]
    if not folder.is_dir():
        with (
            cache.writing(),
            cache.alone(f"mended-{folder.name}", report),
            cache.workspace() as workspace,
        ):
            draft = workspace.path / "tree"
            link_tree(release.tree, draft, changed)
            if not folder.is_dir():
                draft.rename(folder)
            _sweep(cache.mended)
    with suppress(OSError):  # of another user, who then made it lately or will make it again
        os.utime(folder)
    metadata = folder if release.metadata == release.tree else release.metadata
    return replace(release, tree=folder, metadata=metadata)


def _sweep(folder: Path) -> None:
    """Remove the trees that nobody has asked for lately."""
    for tree in folder.iterdir():
        if time.time() - tree.stat().st_mtime > KEPT_SECONDS:
            shutil.rmtree(tree, ignore_errors=True)


def link_tree(tree: Path, folder: Path, changed: dict[str, str]) -> None:
    """Make a folder of links to the tree's entries, except for the changed files and the folders
    that lead to them."""
    folder.mkdir()
    inner: dict[str, dict[str, str]] = {}
    for path, text in changed.items():
        head, _, rest = path.partition("/")
        if rest:
            inner.setdefault(head, {})[rest] = text
        else:
            (folder / head).write_text(text)
    for entry in tree.iterdir():
        if entry.name in inner:
            link_tree(entry, folder / entry.name, inner[entry.name])
        elif entry.name not in changed and entry.name != "__pycache__":
            (folder / entry.name).symlink_to(entry)
