"""What a case of the splice is, and that one is measured."""

import pytest


@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize(("items", "tokens", "window"), [(1, 40, 40), (3, 40, 7), (2, 17, 1)])
def test_rows_are_as_many_as_tokens_that_receive_one(
    script, items: int, tokens: int, window: int, sparse: bool
) -> None:
    case = script.Case(items, tokens, window, sparse)
    mask = case.is_embed() or (True,) * tokens
    assert case.rows == sum(mask)
    assert case.rows_read == items * sum(mask[case.first : case.first + window])
    assert case.bytes_read == case.rows_read * 3584 * 2


@pytest.mark.full
def test_a_round_times_copy_and_splice(script, monkeypatch, capsys) -> None:
    cases = [script.Case(2, 40, 20, sparse) for sparse in (False, True)]
    monkeypatch.setattr(script, "CASES", cases)
    monkeypatch.setattr("sys.argv", ["splice.py", "--rounds", "1"])
    script.main()
    *_, dense, sparse = capsys.readouterr().out.splitlines()
    assert dense.startswith("| 2 x 40 | 20 | dense | 0.3 |")
    assert sparse.startswith("| 2 x 40 | 20 | sparse | 0.3 |")
