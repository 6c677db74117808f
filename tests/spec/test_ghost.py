"""The ghost follows requests through an item's life, and sees nothing of a manager."""

import ast
import inspect

import pytest

from cacheproof.spec import ghost as ghost_module
from cacheproof.spec.ghost import Ghost

MAY_IMPORT = {"dataclasses"}
MAY_MENTION = {"str", "int", "bool", "None", "tuple", "dict", "set", "self"}


def trespasses(source: str) -> list[str]:
    """Imports and parameters through which a ghost could see a manager or a record of one."""
    found = []
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.Import(names=names):
                found += [alias.name for alias in names if alias.name not in MAY_IMPORT]
            case ast.ImportFrom(module=module) if module not in MAY_IMPORT:
                found.append(f"from {module}")
            case ast.Call(func=ast.Name(id="__import__" | "getattr" | "vars" | "eval" | "exec")):
                found.append(ast.unparse(node))
            case ast.arg(arg="self", annotation=None):
                pass
            case ast.arg(arg=name, annotation=None):
                found.append(f"{name} without a type")
            case ast.arg(arg=name, annotation=annotation):
                mentioned = {
                    part.id if isinstance(part, ast.Name) else ast.unparse(part)
                    for part in ast.walk(annotation)
                    if isinstance(part, ast.Name | ast.Attribute)
                    or (isinstance(part, ast.Constant) and isinstance(part.value, str))
                }
                if mentioned - MAY_MENTION:
                    found.append(f"{name}: {ast.unparse(annotation)}")
    return found


def test_no_function_of_the_ghost_could_see_a_manager() -> None:
    assert trespasses(inspect.getsource(ghost_module)) == []


@pytest.mark.parametrize(
    "source",
    [
        "from cacheproof.spec.records import EncoderCacheState",
        "import cacheproof.reference.encoder_cache",
        "import sys",
        "def step(self, state: EncoderCacheState) -> None: ...",
        "def step(self, state: 'EncoderCacheState') -> None: ...",
        "def step(self, state: records.EncoderCacheState) -> None: ...",
        "def step(self, states: tuple[object, ...]) -> None: ...",
        "def step(self, state) -> None: ...",
        "def step(self, *states: Any) -> None: ...",
        "def step(self, name: str) -> None: getattr(self, name)",
    ],
)
def test_what_could_see_a_manager_is_noticed(source: str) -> None:
    assert trespasses(source)


def test_an_entry_is_needed_from_its_claim_until_progress_passes_it() -> None:
    ghost = Ghost()
    ghost.claim("r1", "h", end=10)
    assert ghost.needed == {"h": {"r1"}}
    ghost.consume("r1", 9)
    assert ghost.needed == {"h": {"r1"}}
    ghost.consume("r1", 10)
    assert ghost.needed == {}
    assert set(ghost.idle_since) == {"h"}


def test_a_repeated_item_is_needed_until_its_last_claimed_occurrence() -> None:
    ghost = Ghost()
    ghost.claim("r1", "h", end=20)
    ghost.claim("r1", "h", end=10)
    ghost.consume("r1", 10)
    assert ghost.needed == {"h": {"r1"}}
    ghost.consume("r1", 20)
    assert ghost.needed == {}


def test_a_shared_entry_is_needed_until_its_last_request_is_done() -> None:
    ghost = Ghost()
    ghost.claim("r1", "h", end=5)
    ghost.claim("r2", "h", end=5)
    ghost.consume("r1", 5)
    assert ghost.needed == {"h": {"r2"}}
    assert ghost.idle_since == {}
    ghost.withdraw("r2")
    assert ghost.needed == {}
    assert set(ghost.idle_since) == {"h"}


def test_a_claim_ends_idleness() -> None:
    ghost = Ghost()
    ghost.claim("r1", "h", end=5)
    ghost.withdraw("r1")
    ghost.claim("r2", "h", end=5)
    assert ghost.idle_since == {}


def test_entries_idle_since_one_event_are_unordered_and_later_ones_come_after() -> None:
    ghost = Ghost()
    for request, identifiers in (("r1", ("a", "b")), ("r2", ("c",))):
        for identifier in identifiers:
            ghost.claim(request, identifier, end=5)
    ghost.withdraw("r1")
    ghost.consume("r2", 5)
    assert ghost.idle_since["a"] == ghost.idle_since["b"] < ghost.idle_since["c"]


def test_who_claimed_nothing_changes_nothing() -> None:
    ghost = Ghost()
    ghost.consume("r1", 10)
    ghost.withdraw("r1")
    assert ghost == Ghost()


def test_a_debit_lasts_until_it_is_released_once() -> None:
    ghost = Ghost()
    ghost.encode("r1", 0, "h", 7)
    assert (ghost.debits, ghost.size) == ({("r1", 0): 7}, {"h": 7})
    ghost.release("r1", 0)
    ghost.release("r1", 0)
    assert (ghost.debits, ghost.size) == ({}, {"h": 7})


def test_a_worker_drops_what_is_reported_before_it_encodes() -> None:
    ghost = Ghost()
    ghost.step((), {"a": 2, "b": 3})
    ghost.step(("a", "b", "never seen"), {"a": 2})
    assert ghost.stored == {"a": 2}


def test_steps_are_counted_since_an_entry_was_last_encoded() -> None:
    ghost = Ghost()
    ghost.step((), {"a": 2, "b": 3})
    ghost.step((), {"b": 3})
    ghost.step((), {})
    assert ghost.steps_since_encode == {"a": 2, "b": 1}


def test_a_reset_forgets_everything_and_later_claims_count_afresh() -> None:
    ghost = Ghost()
    ghost.claim("r1", "h", end=5)
    ghost.encode("r1", 0, "h", 5)
    ghost.step((), {"h": 5})
    ghost.reset()
    assert ghost == Ghost()
    ghost.consume("r1", 5)
    assert ghost == Ghost()
