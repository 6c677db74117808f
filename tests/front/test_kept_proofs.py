"""What was proved before is told again as it was, or not at all."""

import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path

import msgspec
import pytest

from cacheproof.output.console import CommandOutput
from cacheproof.proving import jobs as proof_jobs
from cacheproof.proving import kept as kept_proofs
from cacheproof.proving import proving
from cacheproof.proving.kept import PROVERS, KeptProofs, digest_of
from cacheproof.spec.evidence import Evidence, Outcome, RedTwin, Witness
from cacheproof.work.workplace import Workplace

TWIN = RedTwin("a change", refuted=True)
ROW = Evidence(
    "EC-1", "reference", "EncoderCacheManager", "proof", "unbounded", Outcome.HOLDS, "", "d", 0.5,
    (TWIN,), 0.25, (Witness("exploration", "30 calls", "", TWIN),),
)  # fmt: skip
FALLEN = replace(ROW, contract="EC-2", outcome=Outcome.REFUTED, twins=(), witnesses=())
PIECE = digest_of("a text")


@pytest.fixture
def said() -> list[str]:
    return []


@pytest.fixture
def kept(tmp_path: Path, said: list[str]) -> KeptProofs:
    return KeptProofs(tmp_path / "proofs", said.append)


def file_of(kept: KeptProofs) -> Path:
    (found,) = kept.folder.rglob("*.json")
    return found


def test_rows_come_back_as_they_were(kept: KeptProofs, said: list[str]) -> None:
    assert kept.rows(PIECE) is None
    kept.keep(PIECE, [ROW, FALLEN])
    assert kept.rows(PIECE) == [ROW, FALLEN]
    assert kept.rows(digest_of("another text")) is None
    assert said == []


def changed(text: str) -> Iterator[str]:
    """What somebody may make of a file."""
    yield text.replace("refuted", "holds")
    yield text.replace("holds", "refuted")
    yield text.replace("EC-1", "EC-9")
    yield text.replace('"seal":"', '"seal":"0')
    yield text[:-2]
    yield text[: len(text) // 2]
    yield ""
    yield "{}"
    yield "[]"
    yield msgspec.json.encode({"rows": "[]", "seal": ""}).decode()


@pytest.mark.parametrize("number", range(10))
def test_rows_that_were_tampered_with_are_said_and_not_told(
    kept: KeptProofs, said: list[str], number: int
) -> None:
    kept.keep(PIECE, [ROW, FALLEN])
    path = file_of(kept)
    text = path.read_text()
    other = list(changed(text))[number]
    assert other != text
    path.write_text(other)
    assert kept.rows(PIECE) is None
    (line,) = said
    assert line.startswith(f"{path}: not as it was kept (")
    assert line.endswith("; proved anew")
    kept.keep(PIECE, [ROW, FALLEN])
    assert kept.rows(PIECE) == [ROW, FALLEN]


def test_rows_of_another_text_another_cache_or_another_version_are_not_told(
    kept: KeptProofs, said: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept.keep(PIECE, [ROW])
    path = file_of(kept)
    moved = digest_of("another text")
    path.with_name(f"{moved}.json").write_bytes(path.read_bytes())
    assert kept.rows(moved) is None

    other = KeptProofs(tmp_path / "elsewhere", said.append)
    other.keep(moved, [ROW])
    file_of(other).with_name(f"{PIECE}.json").write_bytes(path.read_bytes())
    assert other.rows(PIECE) is None
    assert len(said) == 2

    monkeypatch.setattr(kept_proofs, "engine", lambda: "0" * 32)
    later = KeptProofs(kept.folder, said.append)
    assert later.rows(PIECE) is None
    path.rename(kept.folder / "moved")
    (kept.folder / ("0" * 32)).mkdir()
    (kept.folder / "moved").rename(kept.folder / ("0" * 32) / path.name)
    assert later.rows(PIECE) is None
    assert len(said) == 3


@pytest.mark.parametrize(
    "row",
    [
        *(replace(ROW, outcome=one) for one in Outcome if one not in kept_proofs.SETTLED),
        replace(ROW, twins=()),
        replace(ROW, twins=(replace(TWIN, refuted=False),)),
    ],
    ids=lambda row: f"{row.outcome}, {row.counts}",
)
def test_what_is_not_settled_is_proved_again(kept: KeptProofs, row: Evidence) -> None:
    kept.keep(PIECE, [ROW])
    assert kept.rows(PIECE) == [ROW]
    kept.keep(PIECE, [ROW, row])
    assert kept.rows(PIECE) is None


def test_a_folder_that_takes_nothing_costs_a_line(
    kept: KeptProofs, said: list[str], tmp_path: Path
) -> None:
    (tmp_path / "proofs").write_text("in the way")
    kept.keep(PIECE, [ROW])
    assert kept.rows(PIECE) is None
    (line,) = said
    assert "cannot be kept" in line


def test_proofs_of_old_versions_go(
    kept: KeptProofs, said: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(kept_proofs.ENGINES_MAX + 2):
        name = f"{number:032}"
        monkeypatch.setattr(kept_proofs, "engine", lambda name=name: name)
        KeptProofs(kept.folder, said.append).keep(PIECE, [ROW])
    left = [path for path in kept.folder.iterdir() if path.is_dir()]
    assert len(left) == kept_proofs.ENGINES_MAX


def test_the_digest_of_what_proves_covers_all_that_it_imports() -> None:
    text = (
        "import sys\n"
        "from cacheproof.proofs.crosshair import __main__, text, witness\n"
        "from cacheproof.proofs.keys.prove import prove_keys\n"
        "from cacheproof.proofs.symbolic.evidence import prove_texts\n"
        "from cacheproof.proofs.symbolic.deciding.lemmas import prove_lemmas\n"
        "print(*{one.split('.')[1] for one in sys.modules if one.startswith('cacheproof.')})\n"
    )
    done = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, check=True)
    assert set(done.stdout.split()) <= {*PROVERS}


def test_a_second_run_tells_what_the_first_one_proved(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("CACHEPROOF_HOME", str(tmp_path / "home"))
    pieces = (proof_jobs.Piece(digest_of("lemmas", "0")),)
    work = proof_jobs.ProofJob("lemmas", 1, partial(proof_jobs._prove_lemmas, 0), pieces)
    monkeypatch.setattr(proving, "jobs_for", lambda wanted, seed, *, fresh: iter([work]))

    def run(name: str, *, fresh: bool = False) -> dict[str, object]:
        path = tmp_path / f"{name}.json"
        code = proving.prove(
            CommandOutput(str(path)),
            ["reference"],
            [],
            seed=0,
            markdown=False,
            fresh=fresh,
            place=Workplace(),
        )
        assert code == 0
        found = msgspec.json.decode(path.read_bytes())
        assert isinstance(found, dict)
        return found

    first, second, third = run("first"), run("second"), run("third", fresh=True)
    assert first["proved_before"] == third["proved_before"] == 0
    assert second["proved_before"] == len(first["evidence"])  # type: ignore[arg-type]
    assert second["evidence"] == first["evidence"]
    capsys.readouterr()
    (path,) = (tmp_path / "home" / "proofs").rglob("*.json")
    path.write_text(path.read_text().replace("by induction", "by hand"))
    assert run("fourth")["proved_before"] == 0
    assert "not as it was kept" in capsys.readouterr().err
