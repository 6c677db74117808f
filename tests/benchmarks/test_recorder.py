"""A real engine of 0.32.0 is recorded, and its record is audited: every step, and its worker's
store after each of them."""

from pathlib import Path
from types import ModuleType

import pytest

from cacheproof.differential.audit.audit import Audit
from cacheproof.differential.audit.auditor import Auditor
from cacheproof.differential.targets.resolve import resolve

pytestmark = pytest.mark.full


@pytest.fixture(scope="module", autouse=True)
def provisioned() -> None:
    """The engine is there."""
    resolve("engine@0.32.0", report=print).close()


def audited(folder: Path) -> Auditor:
    audit = Audit(str(folder))
    audit.look(last=True)
    (auditor,) = audit.auditors.values()
    return auditor


def test_every_step_and_every_store_of_a_real_engine_is_judged_and_nothing_is_broken(
    script: ModuleType, tmp_path: Path
) -> None:
    engine = script.Engine("0.32.0", tmp_path)
    _, steps = engine.turn(0)
    engine.close()
    account = audited(tmp_path).account
    assert account.steps == account.judged_steps == account.stores >= steps > 100
    assert account.requests == 48
    assert account.gaps == []
    assert account.broken == {}
    assert account.closed


def test_every_call_of_a_kv_cache_that_hardly_suffices_is_judged_and_nothing_is_broken(
    script: ModuleType, tmp_path: Path
) -> None:
    engine = script.Engine("0.32.0", tmp_path, kind="scarce", with_kv=True)
    _, steps = engine.turn(0)
    engine.close()
    ended = audited(tmp_path)
    assert ended.kv.calls == ended.kv.judged > 2 * steps
    assert ended.account.gaps == []
    assert {contract for contract, _ in ended.account.broken} <= {"EC-8b"}


def test_the_script_prints_the_paired_ratio(
    script: ModuleType, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.argv", ["recorder.py", "--rounds", "2"])
    script.main()
    assert "times (quartiles " in capsys.readouterr().out
