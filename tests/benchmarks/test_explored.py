"""The timing of explorations: transitions per second, and the CPU time of each."""

from cacheproof.differential.search.explore.scopes import SMALL


def test_a_row_has_the_transitions_of_a_subject_and_how_fast_they_are(
    script, monkeypatch, capsys
) -> None:
    scope = next(one for one in SMALL if one.subject == "encoder_decoder")
    monkeypatch.setattr(script, "SCOPES", {"small": (scope,)})
    monkeypatch.setattr(script, "SUBJECTS", ["encoder_decoder"])
    monkeypatch.setattr("sys.argv", ["explored.py", "--target", "reference"])
    script.main()
    cells = [cell.strip() for cell in capsys.readouterr().out.splitlines()[-1].split("|")[1:-1]]
    assert cells[:3] == ["reference", "encoder_decoder", "5,987"]
    assert all(int(cell.replace(",", "")) > 0 for cell in cells[3:5])
    assert cells[5] == "0"
