"""Every field in which a release's scheduler tells its workers something is accounted for, once."""

import ast
from collections.abc import Iterable, Iterator

import pytest

from cacheproof.differential.targets import releases
from cacheproof.differential.targets.host.scheduler_told import UNASKED
from cacheproof.differential.targets.told import NOT_DECISIONS, READ

OUTPUT = "vllm/v1/core/sched/output.py"


def fields(source: str) -> Iterator[tuple[str, str]]:
    """The class and name of each field of the classes that are told."""
    for node in ast.parse(source).body:
        if isinstance(node, ast.ClassDef) and node.name in READ:
            for line in node.body:
                if isinstance(line, ast.AnnAssign) and isinstance(line.target, ast.Name):
                    yield node.name, line.target.id


def unaccounted(told: Iterable[tuple[str, str]]) -> set[tuple[str, str]]:
    """Fields that are not in exactly one of the two tables."""
    return {
        (owner, name)
        for owner, name in told
        if (name in READ[owner]) == (name in NOT_DECISIONS[owner])
    }


@pytest.fixture(scope="module")
def outputs() -> dict[str, str]:
    """What each installed release's scheduler tells its workers, as source text."""
    releases.install("0.33.0", report=print)
    found = {release.version: release.tree / OUTPUT for release in releases.list_installed()}
    return {version: path.read_text() for version, path in found.items() if path.exists()}


def test_every_field_of_every_installed_release_is_in_exactly_one_table(
    outputs: dict[str, str],
) -> None:
    assert "0.33.0" in outputs
    strange = {version: unaccounted(fields(text)) for version, text in outputs.items()}
    assert not any(strange.values()), strange


def test_a_field_that_nobody_has_thought_of_is_found() -> None:
    told = "class SchedulerOutput:\n    finished_req_ids: set[str]\n    made_up: int = 0\n"
    assert unaccounted(fields(told)) == {("SchedulerOutput", "made_up")}


def test_what_must_say_nothing_is_read_by_the_driver() -> None:
    says_nothing = {
        owner: tuple(sorted(name for name, how in READ[owner].items() if "says nothing" in how))
        for owner in READ
    }
    assert says_nothing == UNASKED
