"""The timing of a long page runs: a browser pans it, and every view has its frames."""

import re
import shutil
from types import ModuleType

import pytest

pytestmark = [
    pytest.mark.full,
    pytest.mark.skipif(
        shutil.which("chromium") is None,
        reason="no chromium on PATH; install Debian's package of that name",
    ),
]


def test_each_view_has_its_frames(
    script: ModuleType, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.argv", ["timeline.py", "--steps", "40"])
    script.main()
    printed = capsys.readouterr().out
    assert printed.startswith("40 steps, 90 events, ")
    for view in script.VIEWS:
        row = rf"\| {view} \| {script.FRAMES} \| \d+ ms \| \d+ ms \| \d+ ms \|"
        assert re.search(row, printed)
