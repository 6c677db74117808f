"""The exit code of prove says whether all that is told holds."""

from dataclasses import replace
from pathlib import Path

import pytest

from cacheproof.console import Output
from cacheproof.differential.errors import InputError
from cacheproof.differential.verdict import HOLDS, UNLISTED, VOID
from cacheproof.proofs.evidence import Evidence, Outcome, RedTwin
from cacheproof.proving import _sources, _wanted, exit_code

ROW = Evidence(
    "EC-1", "reference", "EncoderCacheManager", "proof", "unbounded", Outcome.HOLDS, "", "d", 0.0,
    (RedTwin("a change", refuted=True),),
)  # fmt: skip


@pytest.mark.parametrize(
    ("outcome", "code"),
    [
        (Outcome.HOLDS, HOLDS),
        (Outcome.REFUTED, UNLISTED),
        (Outcome.UNKNOWN, VOID),
        (Outcome.ALONE, VOID),
        (Outcome.DISAGREE, VOID),
        (Outcome.VACUOUS, VOID),
    ],
)
def test_one_row_decides(outcome: Outcome, code: int) -> None:
    assert exit_code([ROW, replace(ROW, outcome=outcome)], []) == code


def test_a_check_that_no_change_was_seen_to_fail_is_void() -> None:
    assert exit_code([replace(ROW, twins=())], []) == VOID
    assert exit_code([], []) == VOID


PLUG_IN = """
class Mine:
    def __init__(self, cache_size):
        self.cache_size = cache_size
"""


@pytest.fixture
def plug_ins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder, with a module that cannot be imported here."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "company").mkdir()
    (tmp_path / "company" / "plug_in.py").write_text("import their_accelerator\n" + PLUG_IN)
    return tmp_path


def test_a_plug_in_is_read_where_it_lies_in_the_place_of_a_manager(plug_ins: Path) -> None:
    wanted = _wanted(["company.plug_in:Mine", "company.plug_in:Mine@0.28.0"], Output(None))
    assert [one.promises for one in wanted if one is not None] == ["0.33.0", "0.28.0"]
    (newest, older) = (read for read in _sources("EncoderCacheManager", wanted))
    assert (newest.target, older.target) == ("company.plug_in:Mine@0.28.0", "company.plug_in:Mine")
    assert newest.source.name == "Mine"
    assert list(newest.source.methods) == ["__init__"]
    assert list(_sources("EncoderDecoderCacheManager", wanted)) == []


@pytest.mark.parametrize(
    ("target", "line"),
    [
        ("company.plug_in:Theirs", r"plug_in\.py has no class Theirs; expected MODULE:CLASS with"),
        ("company.nothing:Mine", r"no file of a module company\.nothing in the current folder"),
        ("company:", r"expected reference, vllm@VERSION, path:DIR or MODULE:CLASS\[@VERSION\]"),
        ("company.plug_in:a-b", r"expected reference, vllm@VERSION, path:DIR or MODULE:CLASS"),
    ],
)
def test_a_plug_in_that_is_not_there_costs_a_line(plug_ins: Path, target: str, line: str) -> None:
    with pytest.raises(InputError, match=line):
        list(_sources("EncoderCacheManager", _wanted([target], Output(None))))
