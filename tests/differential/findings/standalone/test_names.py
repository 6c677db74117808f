"""A standalone test is Python, whatever names and words its finding has."""

import ast
from functools import cache
from pathlib import Path
from typing import Any

import msgspec
import pytest

from cacheproof.differential.findings import finding_file
from cacheproof.differential.findings.finding import Finding, found_in
from cacheproof.differential.findings.standalone.writing import standalone_test
from cacheproof.differential.judges.examination import examine
from cacheproof.differential.lanes.all_lanes import LANES
from cacheproof.differential.targets.reference import ReferenceTarget
from cacheproof.reference.semantics import Semantics

SCHEDULER = Path(__file__).parents[1] / "data" / "scheduler_finding.json"
NAMES = {
    "NUL": "\0",
    "a lone surrogate": "\ud800",
    "quotes": "'\"",
    "triple quotes": "'''\"\"\"",
    "a backslash at its end": "a\\",
    "a newline": "a\n  b",
    "other ends of lines": "a\r\x0b\x0c\x1c\x85\u2028b",
    "a template": "{{ 7 * 7 }}{% raw %}{# #}",
    "formats": "{0} %s {x!r}",
    "an escape code": "\x1b[2J",
    "from right to left": "\u202eab",
    "no break": "a\xa0b",
    "a letter that Python reads as a": "ª",
    "a comment": "# x",
}
SHOWN = {
    "manager": ("0.28.0", "EC-6a"),
    "encoder-decoder": ("0.33.0", "ED-1"),
    "block keys": ("0.28.0", "BK-2"),
    "KV cache": ("0.28.0", "BP-6"),
    "scheduler": ("0.28.0", "EC-6a"),
}
LANE = {
    "manager": "encoder cache",
    "encoder-decoder": "encoder-decoder",
    "block keys": "block keys",
    "KV cache": "KV cache",
}


@cache
def found(depth: str) -> Finding:
    release, contract = SHOWN[depth]
    if depth == "scheduler":
        stored = finding_file.load(SCHEDULER)
        assert isinstance(stored, Finding)
        return stored
    target = ReferenceTarget(
        Semantics.of_vllm(release), name=f"reference@{release}", release=release
    )
    for seed in range(200):
        trace = LANES[LANE[depth]].trace(seed, release)
        if contract in examine(trace, target.run([trace])[0], target).violations:
            finding = found_in(target, trace, contract, seconds=1.0, times=2)
            assert finding is not None
            return finding
    raise AssertionError(f"{contract} does not break")


def renamed(thing: Any, names: dict[str, str]) -> Any:
    """The same with other names, in whatever it holds."""
    match thing:
        case str():
            return names.get(thing, thing)
        case tuple() if hasattr(thing, "_make"):
            return thing._make(renamed(one, names) for one in thing)
        case list() | tuple():
            return type(thing)(renamed(one, names) for one in thing)
        case dict():
            return {renamed(key, names): renamed(one, names) for key, one in thing.items()}
        case msgspec.Struct():
            fields = {
                field: renamed(getattr(thing, field), names) for field in thing.__struct_fields__
            }
            return type(thing)(**fields)
    return thing


def strings(tree: ast.AST) -> set[str]:
    values = (node.value for node in ast.walk(tree) if isinstance(node, ast.Constant))
    return {value for value in values if isinstance(value, str)}


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("depth", SHOWN)
def test_the_file_is_python_that_names_what_was_found(depth: str, name: str) -> None:
    finding = found(depth)
    requests = {event.request for event in finding.events if hasattr(event, "request")}
    items = {item.identifier for event in finding.events for item in getattr(event, "items", ())}
    new = {one: f"{one}{NAMES[name]}" for one in requests | items}
    words = {"title": f"t{NAMES[name]}", "source": NAMES[name], "sentence": f"s{NAMES[name]}"}
    other = msgspec.structs.replace(renamed(finding, new), **words, known_note=NAMES[name])
    text = standalone_test(other)
    assert text is not None
    tree = ast.parse(text.encode())
    compile(tree, "test_it.py", "exec")
    named = strings(ast.parse(standalone_test(finding) or "")) & new.keys()
    assert named or depth == "block keys"  # whose file has variables for requests
    assert {new[one] for one in named} <= strings(tree)
    assert all(one.isprintable() for one in text.split("\n"))
