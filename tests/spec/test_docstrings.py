"""Public docstrings say what a call raises, and docs/reference/api.md what its example prints."""

import ast
import contextlib
import importlib
import inspect
import io
import pkgutil
import textwrap
from collections.abc import Iterator
from pathlib import Path
from types import FunctionType, ModuleType

import cacheproof.reference
import cacheproof.spec
from cacheproof.spec.registry import contracts

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "api.md"
FILE = PAGE.with_name("judge_a_step.py")

WITHOUT_DOCSTRING = ["FreeKVCacheBlockQueue.num_free_blocks"]
"""Its text is proved as it stands, docstrings included."""


def modules_of(package: ModuleType) -> Iterator[ModuleType]:
    """The modules of a package, in the order of their names."""
    for found in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
        yield importlib.import_module(found.name)


def public(module: ModuleType) -> Iterator[type | FunctionType]:
    """The classes and functions that a module defines for others, contracts' predicates aside."""
    rules = {rule.predicate for rule in contracts()}
    for name, one in vars(module).items():
        is_defined_here = getattr(one, "__module__", "") == module.__name__
        if name.startswith("_") or not is_defined_here or not isinstance(one, type | FunctionType):
            continue
        if one not in rules:
            yield one


def methods_of(owner: type) -> Iterator[tuple[str, FunctionType]]:
    """The public methods and properties that a class itself defines: name, and function."""
    for name, one in vars(owner).items():
        function = inspect.unwrap(getattr(one, "fget", None) or getattr(one, "__func__", one))
        if is_written(function, owner) and not name.startswith("_"):
            yield name, function


def said_of(owner: type, name: str) -> str:
    """The docstring of a class's method: its own, or what it takes over from a base."""
    found = (inspect.getattr_static(one, name, None) for one in owner.__mro__)
    return next(filter(None, (inspect.getdoc(one) for one in found if one is not None)), "")


def is_written(one: object, owner: type) -> bool:
    """Whether it is a function that stands in the file of the class, not one that was made."""
    is_function = isinstance(one, FunctionType)
    return is_function and one.__code__.co_filename == inspect.getfile(owner)


MEMBERS = [
    one
    for package in (cacheproof.spec, cacheproof.reference)
    for module in modules_of(package)
    for one in public(module)
]


def functions(members: list[type | FunctionType]) -> Iterator[tuple[str, FunctionType, str]]:
    """Everything public that can be called: its name, the function, and what is said of it."""
    for one in members:
        if not isinstance(one, type):
            yield one.__name__, one, inspect.getdoc(one) or ""
            continue
        for name in ("__init__", "__post_init__"):
            if is_written(vars(one).get(name), one):
                yield one.__name__, vars(one)[name], inspect.getdoc(one) or ""
        for name, function in methods_of(one):
            yield f"{one.__name__}.{name}", function, said_of(one, name)


def unsaid(members: list[type | FunctionType]) -> list[tuple[str, str]]:
    """What raises an exception by itself of which it does not say so, with the exception."""
    found = []
    for name, function, said in functions(members):
        for node in ast.walk(ast.parse(textwrap.dedent(inspect.getsource(function)))):
            raised = raised_by(node)
            if raised and raised not in said:
                found.append((name, raised))
    return found


def raised_by(node: ast.AST) -> str | None:
    """The exception of a statement; none of those that only a type checker reads."""
    match node:
        case ast.Assert(test=ast.Call(func=ast.Name(id="isinstance"))):
            return None
        case ast.Assert():
            return "AssertionError"
        case ast.Raise(exc=ast.Call(func=ast.Name(id=name)) | ast.Name(id=name)):
            is_class = name[0].isupper() and name != "NotImplementedError"
            return name if is_class else None
    return None


def example(text: str) -> tuple[str, str]:
    """The program of the page, and what the page says that it prints."""
    return text.split("```python\n")[1].split("```")[0], text.split("\nprints\n\n```\n")[1].split(
        "```"
    )[0]


def run(program: str) -> str:
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        exec(compile(program, "example", "exec"), {})
    return printed.getvalue()


def test_the_example_of_the_page_is_the_file_and_prints_what_the_page_says() -> None:
    program, printed = example(PAGE.read_text())
    assert program == FILE.read_text()
    assert run(program) == printed


def test_another_release_prints_something_else() -> None:
    program, printed = example(PAGE.read_text())
    assert "EC-6a: " in printed
    assert "EC-6a: " not in run(program.replace('"0.28.0"', '"0.29.0"'))


def test_everything_public_has_a_docstring() -> None:
    without = [name for name, _, said in functions(MEMBERS) if not said]
    assert without == WITHOUT_DOCSTRING


def test_what_raises_says_so() -> None:
    assert unsaid(MEMBERS) == []


def test_what_raises_and_does_not_say_so_is_found() -> None:
    def refuse(size: int) -> None:
        """Refuse a size."""
        if size < 1:
            raise ValueError(size)
        assert size < 9

    assert set(unsaid([refuse])) == {("refuse", "ValueError"), ("refuse", "AssertionError")}
