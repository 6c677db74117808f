"""Every field in which a release's scheduler tells its workers something is accounted for, once."""

import ast
from collections.abc import Iterable, Iterator
from types import SimpleNamespace

import numpy
import pytest

from cacheproof.differential.provision import releases
from cacheproof.differential.targets.host.scheduler.told import UNASKED, told, unasked
from cacheproof.differential.texts.told import NOT_DECISIONS, READ
from cacheproof.reference.request import PromptEmbeds

OUTPUT = "vllm/v1/core/sched/output.py"


def fields(source: str) -> Iterator[tuple[str, str]]:
    """The class and name of each field of the classes that are told."""
    for node in ast.parse(source).body:
        if isinstance(node, ast.ClassDef) and node.name in READ:
            for line in node.body:
                if isinstance(line, ast.AnnAssign) and isinstance(line.target, ast.Name):
                    yield node.name, line.target.id


def unaccounted(found: Iterable[tuple[str, str]]) -> set[tuple[str, str]]:
    """Fields that are not in exactly one of the two tables."""
    return {
        (owner, name)
        for owner, name in found
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
    text = "class SchedulerOutput:\n    finished_req_ids: set[str]\n    made_up: int = 0\n"
    assert unaccounted(fields(text)) == {("SchedulerOutput", "made_up")}


def test_what_must_say_nothing_is_read_by_the_driver() -> None:
    says_nothing = {
        owner: tuple(sorted(name for name, how in READ[owner].items() if "says nothing" in how))
        for owner in READ
    }
    assert says_nothing == UNASKED


@pytest.mark.parametrize(
    ("mask", "says"),
    [(None, []), (numpy.zeros((0, 3)), []), (numpy.zeros((2, 3)), ["grammar_bitmask"])],
)
def test_an_array_says_something_where_it_has_elements(mask: object, says: list[str]) -> None:
    output = SimpleNamespace(
        scheduled_new_reqs=(), scheduled_cached_reqs=SimpleNamespace(), grammar_bitmask=mask
    )
    assert unasked(output, 0) == says


@pytest.mark.parametrize(
    ("new", "prompt", "places"),
    [
        ({"prompt_token_ids": [5, 6]}, [5, 6], []),
        ({"prompt_token_ids": None, "prompt_embeds": numpy.ones((2, 4))}, [0, 0], [0, 1]),
        (
            {
                "prompt_token_ids": [5, 6],
                "prompt_embeds": numpy.ones((2, 4)),
                "prompt_is_token_ids": [True, False],
            },
            [5, 6],
            [1],
        ),
        (
            {
                "prompt_token_ids": [5, 9],
                "prompt_embeds": PromptEmbeds((b"a", b"b"), (False, True)),
            },
            [5, 9],
            [1],
        ),
    ],
)
def test_where_embeddings_are_given_is_told(
    new: dict[str, object], prompt: list[int], places: list[int]
) -> None:
    one = SimpleNamespace(
        req_id="a", num_computed_tokens=0, block_ids=([1],), mm_features=[], **new
    )
    cached = SimpleNamespace(
        req_ids=[], new_block_ids=[], num_computed_tokens=[], resumed_req_ids=set()
    )
    output = SimpleNamespace(
        scheduled_new_reqs=[one],
        scheduled_cached_reqs=cached,
        scheduled_encoder_inputs={},
        free_encoder_mm_hashes=[],
        finished_req_ids=set(),
        total_num_scheduled_tokens=2,
    )
    said = told(output, {"a": SimpleNamespace(mm_features=[])}, 0)
    assert said["prompts"] == {"a": prompt}
    assert said.get("embedded", {}) == ({"a": places} if places else {})
    assert "unasked" not in said
