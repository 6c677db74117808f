"""Mends: the smallest change of a release's own text that takes a listed fault away.

A mend is written in `faults/NAME/mend.toml` as edits of statements. Its `flags` are those of
`reference/semantics` that are true of a release with it, so that it decides as the reference does
with them. It is for some releases, and refused where their text is another. docs/how-to/mends.md
says how one is written.
"""

import ast
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from importlib import resources

import msgspec

from cacheproof.differential.errors import InputError
from cacheproof.differential.texts.edits import Edit, edited
from cacheproof.reference.semantics import CHANGES
from cacheproof.spec.versions import Versions

FILE = "mend.toml"


class MendText(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The edits of a mend for some releases, in order, and `functions` that the module of the first
    one gets."""

    releases: str
    edit: tuple[Edit, ...]
    functions: str = ""


class Mend(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a mend `does`, in one line; the flags that are true with it, and those that are no more
    (`without`); the kinds of break of its fault that it `leaves`; its text, by release. Where it is
    `same_as` another fault's, it has none of its own."""

    does: str = ""
    flags: tuple[str, ...] = ()
    without: tuple[str, ...] = ()
    leaves: tuple[str, ...] = ()
    text: tuple[MendText, ...] = ()
    same_as: str = ""

    def for_release(self, release: str) -> MendText | None:
        """The mend's text for a release, None if it has none."""
        return next((one for one in self.text if release in Versions(one.releases)), None)


@cache
def mends() -> Mapping[str, Mend]:
    """Fault -> its mend, of all listed faults that have one.

    Raises:
        InputError: a file is none.
    """
    folder = resources.files("cacheproof") / "faults"
    found = {
        one.name: parse((one / FILE).read_text(), f"faults/{one.name}/{FILE}")
        for one in sorted(folder.iterdir(), key=lambda one: one.name)
        if (one / FILE).is_file()
    }
    for name, mend in found.items():
        if mend.same_as and not found.get(mend.same_as, mend).text:
            raise InputError(
                f"faults/{name}/{FILE}: {mend.same_as!r} has no mend of its own; expected a fault "
                "that has one"
            )
    return {name: found[mend.same_as] if mend.same_as else mend for name, mend in found.items()}


def parse(text: str, source: str) -> Mend:
    """The mend in a text.

    Raises:
        InputError: it is none.
    """
    try:
        mend = msgspec.convert(tomllib.loads(text), Mend)
        for one in mend.text:
            Versions(one.releases)
    except ValueError as error:
        raise InputError(
            f"{source}: {str(error).splitlines()[0]}; expected a mend, see docs/how-to/mends.md"
        ) from None
    if strange := {*mend.flags, *mend.without} - CHANGES.keys():
        raise InputError(
            f"{source}: {min(strange)!r} is no flag of the semantics; expected one of those in "
            "reference/semantics"
        )
    if bool(mend.text) == bool(mend.same_as):
        raise InputError(f"{source}: expected either texts or the fault that it is the same as")
    return mend


def mended_in(release: str) -> list[str]:
    """The faults that have a mend for a release, by name."""
    return [name for name, mend in mends().items() if mend.for_release(release) is not None]


def flags_of(names: Iterable[str]) -> dict[str, bool]:
    """The flags that are otherwise than they may be of a release with mends, and how they are."""
    applied = [mends()[name] for name in names]
    true = dict.fromkeys((flag for mend in applied for flag in mend.flags), True)
    return true | dict.fromkeys((flag for mend in applied for flag in mend.without), False)


def modules_of(names: Iterable[str], release: str) -> list[str]:
    """The modules that mends change in a release, by name."""
    texts = (mends()[name].for_release(release) for name in names)
    paths = {edit.path for text in texts if text is not None for edit in text.edit}
    return sorted(
        path.removesuffix(".py").removesuffix("/__init__").replace("/", ".") for path in paths
    )


def apply(names: Sequence[str], release: str, sources: Mapping[str, str]) -> dict[str, str]:
    """The modules that mends change, by path: each with all edits, in the order of the names.
    `sources` has what the release's modules read; of two mends that are the same one is done.

    Raises:
        InputError: the release's text is another than that of a mend, or mends do not go together.
    """
    changed: dict[str, str] = {}
    done: list[Mend] = []
    for name in names:
        mend = mends()[name]
        text = mend.for_release(release)
        if text is None:
            raise InputError(
                f"{name} has no mend for vLLM {release}; expected one of "
                f"{', '.join(mended_in(release)) or 'none: no fault has one'}"
            )
        if mend in done:
            continue
        done.append(mend)
        try:
            for edit in text.edit:
                changed[edit.path] = edited(changed.get(edit.path) or sources[edit.path], edit)
            first = text.edit[0].path
            changed[first] = _with_functions(changed[first], text.functions)
        except (KeyError, ValueError, SyntaxError) as error:
            raise InputError(
                f"faults/{name}/{FILE}: {error}: it is of another text than vLLM {release}, or "
                f"than that with the mends before it ({', '.join(names[: names.index(name)])})"
            ) from None
    return changed


def _with_functions(source: str, functions: str) -> str:
    """A module with further functions at its end.

    Raises:
        ValueError: it has one of that name.
    """
    if not functions:
        return source
    new = {one.name for one in ast.parse(functions).body if isinstance(one, ast.FunctionDef)}
    old = {one.name for one in ast.parse(source).body if isinstance(one, ast.FunctionDef)}
    if twice := new & old:
        raise ValueError(f"the module has a function {min(twice)} already")
    return f"{source.rstrip()}\n\n\n{functions.strip()}\n"
