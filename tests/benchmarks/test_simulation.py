"""A row for each tenth of the requests."""

import pytest


def test_the_table_has_a_row_for_each_tenth(script, capsys: pytest.CaptureFixture[str]) -> None:
    script.main("chat", 40, 128)
    _, _, *rows = capsys.readouterr().out.splitlines()
    done = [int(row.split("|")[1]) for row in rows]
    assert len(done) <= script.PARTS
    assert done == sorted(done)
    assert done[-1] == 40
