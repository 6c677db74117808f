"""The function that a flag names is there in vLLM, and changes in the releases that it names."""

import ast
from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest

from cacheproof.reference.releases import MODELLED
from cacheproof.reference.semantics import CHANGES
from cacheproof.reference.semantics.change import Change

FOLDERS = (
    "v1/core",
    "v1/engine",
    "v1/worker",
    "multimodal",
    "renderers",
    "utils",
    "distributed/device_communicators",
)
FILES = (
    *("v1/request.py", "v1/kv_cache_interface.py"),
    "model_executor/models/deepseek_vl2.py",
)
Texts = frozenset[str]
"""Of all functions or classes of one name, each as its syntax tree."""


@cache
def trees_of(module: Path) -> dict[str, str]:
    """The functions, classes and methods of a module, by their names."""
    found: dict[str, str] = {}
    for node in ast.parse(module.read_text()).body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            found[node.name] = ast.dump(node)
        if isinstance(node, ast.ClassDef):
            for inner in node.body:
                if isinstance(inner, ast.FunctionDef):
                    found[f"{node.name}.{inner.name}"] = ast.dump(inner)
    return found


@cache
def texts_of(tree: Path, function: str) -> Texts:
    package = tree / "vllm"
    modules = [*map(package.joinpath, FILES)]
    for folder in FOLDERS:
        modules += sorted((package / folder).rglob("*.py"))
    outer = function.partition(".")[0]
    named = (f"def {outer}(", f"class {outer}(", f"class {outer}:")
    return frozenset(
        trees_of(module)[function]
        for module in modules
        if any(name in module.read_text() for name in named) and function in trees_of(module)
    )


def complaints(change: Change, trees: Mapping[str, Path]) -> list[str]:
    """What the installed releases say against it. Skips: none of them was asked."""
    asked, found = 0, []
    turns = [change.first or MODELLED[-1], change.again]
    if change.last is not None:
        turns.append(MODELLED[MODELLED.index(change.last) + 1])
    for release in filter(None, turns):
        before = MODELLED[max(MODELLED.index(release) - 1, 0)]
        if not {release, before} <= trees.keys():
            continue
        asked += 1
        then, now = (texts_of(trees[one], change.function) for one in (before, release))
        if not then | now:
            found.append(f"{change.function} is neither in {before} nor in {release}")
        elif then == now and change.first is not None and release != MODELLED[0]:
            found.append(f"{change.function} of {release} is that of {before}")
    if not asked:
        pytest.skip("not installed: the releases that it names, and those before them")
    return found


@pytest.mark.full
@pytest.mark.parametrize("flag", CHANGES)
def test_the_function_that_a_flag_names_changes_when_the_flag_does(
    flag: str, trees: dict[str, Path]
) -> None:
    assert complaints(CHANGES[flag], trees) == []


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"function": "Scheduler.absent"}, "Scheduler.absent is neither in 0.32.0 nor in 0.33.0"),
        (
            {"function": "Scheduler.reset_encoder_cache"},
            "Scheduler.reset_encoder_cache of 0.33.0 is that of 0.32.0",
        ),
    ],
)
def test_a_function_that_is_not_there_or_does_not_change_is_complained_of(
    change: dict[str, str], complaint: str, trees: dict[str, Path]
) -> None:
    one = CHANGES["scheduler.caches_processed"]
    assert complaints(one, trees) == []
    assert complaints(replace(one, **change), trees) == [complaint]  # type: ignore[arg-type]
