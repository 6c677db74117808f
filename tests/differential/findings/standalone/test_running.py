"""What a standalone test comes to, in the interpreter of a release: here in this one, without any
vLLM."""

import sys
from pathlib import Path

import pytest

from cacheproof.differential.errors import HarnessError
from cacheproof.differential.findings.standalone import running
from cacheproof.differential.findings.standalone.running import outcomes
from cacheproof.differential.provision.releases import InstalledRelease

PASSES = "def test_it(tmp_path):\n    assert not list(tmp_path.iterdir())\n"
FAILS = "def two():\n    return 2\n\n\ndef test_it():\n    assert two() == 3  # no\n"


@pytest.fixture
def release(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> InstalledRelease:
    monkeypatch.setenv("CACHEPROOF_HOME", str(tmp_path / "cache"))
    python = Path(sys.executable)
    return InstalledRelease("0.33.0", tmp_path, tmp_path, python, (), "sdist", "", "", pinned=False)


def written(folder: Path, *texts: str) -> list[Path]:
    files = [folder / f"test_{number}.py" for number in range(len(texts))]
    for file, text in zip(files, texts, strict=True):
        file.write_text(text)
    return files


def test_a_test_that_fails_is_told_from_one_that_passes(
    release: InstalledRelease, tmp_path: Path
) -> None:
    passed, failed = outcomes(written(tmp_path, PASSES, FAILS), release)
    assert passed.passes
    assert (failed.error, failed.line) == ("AssertionError", "assert two() == 3  # no")
    assert not failed.passes


def test_a_setting_of_one_test_is_gone_in_the_next(
    release: InstalledRelease, tmp_path: Path
) -> None:
    sets = (
        "import os\n\n\ndef test_it(monkeypatch):\n    monkeypatch.setenv('A_SETTING', '1')\n"
        "    assert os.environ['A_SETTING'] == '1'\n"
    )
    looks = "import os\n\n\ndef test_it():\n    assert 'A_SETTING' not in os.environ\n"
    assert all(one.passes for one in outcomes(written(tmp_path, sets, looks), release))


@pytest.mark.parametrize("text", ["import no_such_module\n", "x = 1\n", "def test_it(:\n"])
def test_a_file_that_is_no_test_passes_never(
    release: InstalledRelease, tmp_path: Path, text: str
) -> None:
    (told,) = outcomes(written(tmp_path, text), release)
    assert not told.passes


def test_a_test_that_ends_the_interpreter_is_no_outcome(
    release: InstalledRelease, tmp_path: Path
) -> None:
    files = written(tmp_path, "import os\n\n\ndef test_it():\n    os._exit(7)\n")
    with pytest.raises(HarnessError, match=r"test_0.py ended .* vLLM 0.33.0 with exit status 7"):
        outcomes(files, release)


def test_a_test_that_does_not_end_is_no_outcome(
    release: InstalledRelease, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(running, "SECONDS_MAX", 0.01)
    with pytest.raises(HarnessError, match=r"was still running on vLLM 0\.33\.0"):
        outcomes(written(tmp_path, PASSES), release)
