"""docs/api.md is what the docstrings say, and they say what a call raises."""

import ast
import inspect
import textwrap
from collections.abc import Iterator
from typing import Any

import pytest

import cacheproof.reference
import cacheproof.spec
from cacheproof import api_page
from cacheproof.api_page import PAGE, is_written, methods_of, modules_of, page, public, said_of
from cacheproof.reference.encoder_cache import EncoderCacheManager

MEMBERS = [
    one
    for package in (cacheproof.spec, cacheproof.reference)
    for module in modules_of(package)
    for one in public(module)
]
WITHOUT_DOCSTRING = ["FreeKVCacheBlockQueue.num_free_blocks"]
"""Its text is proved as it stands, docstrings included."""


def printed(text: str) -> str:
    """What a page says that its example prints."""
    return text.split("\nprints\n\n```\n")[1].split("```")[0]


def functions(members: list[Any]) -> Iterator[tuple[str, Any, str]]:
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


def unsaid(members: list[Any]) -> list[tuple[str, str]]:
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


def test_the_page_is_that_of_the_docstrings() -> None:
    assert PAGE.read_text() == page(), "run .venv/bin/python -m cacheproof.api_page"


def test_a_changed_docstring_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(EncoderCacheManager.reset, "__doc__", "Forget half of the entries.")
    assert PAGE.read_text() != page()


def test_what_the_example_prints_is_noticed(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    example = tmp_path / "example.py"
    example.write_text(api_page.EXAMPLE.read_text().replace('"0.28.0"', '"0.29.0"'))
    monkeypatch.setattr(api_page, "EXAMPLE", example)
    assert "EC-6a: " in printed(PAGE.read_text())
    assert "EC-6a: " not in printed(page())


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
