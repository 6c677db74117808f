"""What was found of an operation is told of a text that reads alike there, and of no other."""

import ast
import random
from collections.abc import Callable, Iterator, Mapping, MutableMapping
from contextlib import contextmanager
from dataclasses import replace
from functools import cache
from multiprocessing import Manager
from multiprocessing.managers import SyncManager
from pathlib import Path

import pytest

from cacheproof.proofs.symbolic.deciding import subject as subjects
from cacheproof.proofs.symbolic.deciding.answers import OperationAnswers
from cacheproof.proofs.symbolic.deciding.play import Play
from cacheproof.proofs.symbolic.deciding.subject import Operation, Subject
from cacheproof.proofs.symbolic.evidence import prove_texts
from cacheproof.proofs.symbolic.reading.source import Source
from cacheproof.proofs.symbolic.subjects.calls import Assumption
from cacheproof.proofs.symbolic.subjects.entry_table import CLASS, of_reference
from cacheproof.proofs.symbolic.texts import ClassText
from cacheproof.proving.kept import KeptAnswers, KeptProofs
from cacheproof.spec.evidence import Evidence, Outcome

TABLE = of_reference().sources["m"]
HELPERS = {"_rest": ["publish", "unpin"], "_drop": ["begin", "clear", "remove"]}
"""Methods, and the operations that run them without being told of it by their own texts."""


class Shared:
    """Answers of this process and of its forks."""

    def __init__(self, kept: Mapping[str, bytes] | None = None) -> None:
        self.kept: MutableMapping[str, bytes] = _manager().dict(kept or {})

    def read(self, digest: str) -> bytes | None:
        return self.kept.get(digest)

    def write(self, digest: str, answer: bytes) -> None:
        self.kept[digest] = answer


@cache
def _manager() -> SyncManager:
    return Manager()


def rows_of(source: Source, store: Shared | KeptAnswers | None = None) -> list[Evidence]:
    """What is proved of a table of entries, whatever time and work it took: the solver's hangs on
    what it did before."""

    def subject(_text: ClassText, assumptions: tuple[Assumption, ...] = ()) -> Subject:
        reference = of_reference(assumptions)
        return replace(reference, sources={**reference.sources, "m": source})

    text = ClassText(CLASS, ("a table",), source, None)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ClassText, "subject", subject)
        return [replace(row, seconds=0, work_max=0) for row in prove_texts([text], 0, store)]


def outcomes(rows: list[Evidence]) -> dict[str, Outcome]:
    return {row.contract: row.outcome for row in rows}


@contextmanager
def played(monkeypatch: pytest.MonkeyPatch) -> Iterator[set[str]]:
    """The operations that are run over unbounded sorts, to be proved."""
    found: set[str] = set()
    run: Callable[..., None] = Play.__init__

    def noted(
        self: Play, subject: Subject, operation: Operation, language: object, **options: bool
    ) -> None:
        run(self, subject, operation, language, **options)
        if self.universe.elements is None:
            found.add(operation.name)

    with monkeypatch.context() as patch:
        patch.setattr(Play, "__init__", noted)
        yield found


@pytest.fixture(scope="module")
def found() -> tuple[Shared, list[Evidence]]:
    """What a run has kept of the table, and its rows."""
    store = Shared()
    return store, rows_of(TABLE, store)


@pytest.fixture
def rows(found: tuple[Shared, list[Evidence]]) -> list[Evidence]:
    return found[1]


@pytest.fixture
def store(found: tuple[Shared, list[Evidence]]) -> Shared:
    return Shared(dict(found[0].kept))


def changed(method: str, change: Callable[[list[ast.stmt]], None]) -> Source:
    """The table with another method."""
    (definition,) = ast.parse(ast.unparse(TABLE.methods[method])).body
    assert isinstance(definition, ast.FunctionDef)
    change(definition.body)
    return replace(TABLE, methods={**TABLE.methods, method: ast.fix_missing_locations(definition)})


def swapped(body: list[ast.stmt]) -> None:
    """Its last two statements, which are of one another's concern in no way."""
    body[-2:] = reversed(body[-2:])


def failing(body: list[ast.stmt]) -> None:
    body.insert(0, ast.parse("assert False").body[0])


def test_the_same_text_is_told_and_not_run(
    store: Shared, rows: list[Evidence], monkeypatch: pytest.MonkeyPatch
) -> None:
    with played(monkeypatch) as ran:
        assert rows_of(TABLE, store) == rows
    assert not ran


@pytest.mark.parametrize("method", HELPERS)
def test_a_change_is_seen_by_all_that_run_it_and_by_no_others(
    store: Shared, rows: list[Evidence], monkeypatch: pytest.MonkeyPatch, method: str
) -> None:
    with played(monkeypatch) as ran:
        told = rows_of(changed(method, swapped), store)
    assert ran == {*HELPERS[method]}
    assert outcomes(told) == outcomes(rows)


@pytest.mark.full
@pytest.mark.parametrize("change", [swapped, failing])
@pytest.mark.parametrize("method", HELPERS)
def test_what_is_told_beside_a_change_is_what_is_found_without(
    store: Shared, method: str, change: Callable[[list[ast.stmt]], None]
) -> None:
    other = changed(method, change)
    told, afresh = rows_of(other, store), rows_of(other)
    assert outcomes(told) == outcomes(afresh)
    if change is swapped:  # of what does not hold another counterexample may be found first
        assert told == afresh


@pytest.mark.full
def test_a_reading_that_leaves_out_what_is_called_would_be_noticed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def own_alone(method: str, sources: object) -> frozenset[str]:
        return frozenset({method})

    monkeypatch.setattr(subjects, "reached_from", own_alone)
    store = Shared()
    rows_of(TABLE, store)
    told = rows_of(changed("_rest", failing), store)
    monkeypatch.undo()
    assert outcomes(told) != outcomes(rows_of(changed("_rest", failing)))


@pytest.mark.full
@pytest.mark.parametrize("share", [0.5, 0.95])
def test_answers_that_are_lost_are_found_again(
    store: Shared, rows: list[Evidence], share: float
) -> None:
    """And conditions that two runs numbered are not mixed: what is told after that is the same."""
    draw = random.Random(0)
    left = Shared({k: v for k, v in sorted(store.kept.items()) if draw.random() < share})
    for _ in range(2):
        assert rows_of(TABLE, left) == rows


class OfThisProcess(Shared):
    """Those of this process alone: what a fork keeps is lost with it."""

    def __init__(self) -> None:
        self.kept = {}


@pytest.mark.full
def test_what_a_fork_finds_is_kept_too(store: Shared, rows: list[Evidence]) -> None:
    own = OfThisProcess()
    assert rows_of(TABLE, own) == rows
    assert 0 < len(own.kept) < len(store.kept)


def test_nothing_is_asked_twice(store: Shared, rows: list[Evidence]) -> None:
    before = dict(store.kept)
    assert rows_of(TABLE, store) == rows
    assert dict(store.kept) == before


def test_an_answer_is_of_one_question_of_one_kind_promise_and_seed() -> None:
    store = Shared()
    about = ("a kind", "a promise", "0")
    OperationAnswers(store, *about).keep(("what", 1), True)
    assert OperationAnswers(store, *about).known(("what", 1), bool) == (True,)
    assert OperationAnswers(store, *about).known(("what", 2), bool) is None
    for number in range(3):
        other = [*about]
        other[number] += "1"
        assert OperationAnswers(store, *other).known(("what", 1), bool) is None
    assert OperationAnswers().known(("what", 1), bool) is None


def test_an_answer_is_asked_for_once() -> None:
    answers, asked = OperationAnswers(Shared()), []
    for _ in range(2):
        assert answers.once(("what",), bool | None, lambda: asked.append(1)) is None
    assert len(asked) == 1


def test_answers_are_kept_in_a_file_and_changed_ones_are_none(tmp_path: Path) -> None:
    kept = KeptProofs(tmp_path, print)
    first = kept.answers()
    assert first is not None
    first.write("a", b"[true]")
    first.write("b", b"[false]")
    again = kept.answers()
    assert again is not None
    assert (again.read("a"), again.read("b"), again.read("c")) == (b"[true]", b"[false]", None)
    first._file.execute("UPDATE answers SET answer = ? WHERE digest = 'a'", (b"[false]",))
    assert (again.read("a"), again.read("b")) == (None, b"[false]")
    first._file.execute("UPDATE answers SET digest = 'd' WHERE digest = 'b'")
    assert again.read("d") is None
    afresh = kept.answers(reads=False)
    assert afresh is not None
    afresh.write("a", b"[true]")
    assert afresh.read("a") is None
    assert again.read("a") == b"[true]"


def test_a_file_that_is_none_of_answers_is_left_alone(tmp_path: Path) -> None:
    kept = KeptProofs(tmp_path, print)
    first = kept.answers()
    assert first is not None
    (path,) = tmp_path.rglob("answers.sqlite")
    first._file.close()
    path.write_bytes(b"no database " * 100)
    assert kept.answers() is None
