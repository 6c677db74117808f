"""The text of the managers: which one is checked, and how it becomes a class.

Of a module the named classes are loaded, unmodified, and its imports, except those from vLLM: no
method may need what they bring. Annotations are not evaluated.
"""

import __future__

import ast
import builtins
import dis
import types
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec

from cacheproof.spec.evidence import digest_of

ENCODER_CACHE = "EncoderCacheManager"
ENCODER_DECODER_CACHE = "EncoderDecoderCacheManager"
REFERENCE = Path(__file__).parents[2] / "reference"
MODULE_OF_RELEASES = Path("vllm", "v1", "core", "encoder_cache_manager.py")

Change = Callable[[ast.ClassDef], None]
"""Changes a class in place. Raises ValueError where there is nothing to change."""


class Unloadable(Exception):
    """A text is not as expected; the message names the file, what was found and expected."""


class ManagerText(msgspec.Struct, frozen=True):
    """The text of one class of managers.

    Attributes:
        target: "reference", or a release, such as "vllm@0.33.0".
        release: its version; None for the reference.
        classes: (file, name of a class) of the subject, last, and of what it builds on.
    """

    target: str
    release: str | None
    classes: tuple[tuple[str, str], ...]

    @property
    def subject(self) -> str:
        """The name of the class."""
        return self.classes[-1][1]

    def digest(self) -> str:
        """The digest of the text of the classes, as the files hold it."""
        return digest_of([segment for _, segment in self._parsed()])

    def load(self, change: Change | None = None) -> type:
        """The class, changed where asked.

        Raises:
            Unloadable: a class is missing, or needs what is not loaded.
        """
        namespace: dict[str, Any] = {"__name__": f"text of {self.target}"}
        for (path, name), (module, _) in zip(self.classes, self._parsed(), strict=True):
            if change is not None and name == self.subject:
                change(_class_of(module, path, name))
            flag = __future__.annotations.compiler_flag
            code = compile(ast.fix_missing_locations(module), path, "exec", flag, True)
            try:
                exec(code, namespace)
            except (ImportError, NameError) as error:
                raise Unloadable(f"{path}: {name}: {error}") from None
            # a missing name would raise on the path that reads it, as if the class broke a contract
            missing = set(_globals_of(code)) - namespace.keys() - vars(builtins).keys()
            if missing:
                raise Unloadable(f"{path}: {name} needs {min(missing)}, which is not loaded")
        loaded: type = namespace[self.subject]
        return loaded

    def _parsed(self) -> Iterator[tuple[ast.Module, str]]:
        """For each class, a module of it and of the imports that it may need, and its text."""
        for path, name in self.classes:
            source = Path(path).read_text()
            tree = ast.parse(source, path)
            found = _class_of(tree, path, name)
            imports = [one for one in tree.body if _is_loaded(one)]
            module = ast.Module([*imports, found], type_ignores=[])
            yield module, ast.get_source_segment(source, found) or ""


def of_reference(subject: str) -> ManagerText:
    """The reference manager of that name."""
    classes = [(str(REFERENCE / "encoder_cache.py"), ENCODER_CACHE)]
    if subject == ENCODER_DECODER_CACHE:
        classes.append((str(REFERENCE / "encoder_decoder_cache.py"), subject))
    return ManagerText("reference", None, tuple(classes))


def of_release(version: str, tree: Path, subject: str) -> ManagerText | None:
    """The manager of that name in an unpacked release; None where it has none."""
    path = tree / MODULE_OF_RELEASES
    names = [one.name for one in ast.parse(path.read_text()).body if isinstance(one, ast.ClassDef)]
    if subject not in names:
        return None
    needed = (ENCODER_CACHE, subject) if subject == ENCODER_DECODER_CACHE else (subject,)
    return ManagerText(f"vllm@{version}", version, tuple((str(path), name) for name in needed))


def _class_of(tree: ast.Module, path: str, name: str) -> ast.ClassDef:
    for one in tree.body:
        if isinstance(one, ast.ClassDef) and one.name == name:
            return one
    raise Unloadable(f"{path}: no class {name}")


def _is_loaded(statement: ast.stmt) -> bool:
    """Whether a statement of a module is an import that is made here too."""
    match statement:
        case ast.ImportFrom(module=str(module)):
            return module.partition(".")[0] != "vllm"
        case ast.Import(names=names):
            return all(one.name.partition(".")[0] != "vllm" for one in names)
    return False


def _globals_of(code: types.CodeType) -> Iterator[str]:
    """The global names that the functions of a piece of code read."""
    for instruction in dis.get_instructions(code):
        if instruction.opname == "LOAD_GLOBAL":
            yield instruction.argval
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _globals_of(constant)
