"""The table of listed faults, below which it says how to read of one."""

from types import SimpleNamespace

import pytest

from cacheproof.differential.search.known import Cause, KnownFault
from cacheproof.output.console import CommandOutput
from cacheproof.search.fault_table import ShownFault, print_faults


def met(name: str, page: str | None, *cause: str) -> ShownFault:
    """A fault that one search met, on a trace of two events."""
    causes = (Cause(cause, ("EC-6",)),) if cause else ()
    fault = KnownFault(name, "a title", "safety", page=page, cause=causes)
    finding = SimpleNamespace(target="vllm@0.28.0", events=("one", "other"))
    return ShownFault(fault, ["EC-6"], ["vllm@0.28.0"], [finding])


@pytest.mark.parametrize(
    ("page", "line"),
    [("faults/a/page.md", "; to read of one: cacheproof explain NAME"), (None, "")],
)
def test_it_is_said_how_to_read_of_a_fault_that_has_a_page(
    capsys: pytest.CaptureFixture[str], page: str | None, line: str
) -> None:
    print_faults(CommandOutput(None), [met("a-fault", page, "a.flag")], ["vllm@0.28.0"])
    _, _, row, last = capsys.readouterr().out.splitlines()
    assert row.split() == ["a-fault", "2", "EC-6"]
    assert last == f"numbers are events of a trace{line}"


def test_a_fault_without_a_cause_is_marked(capsys: pytest.CaptureFixture[str]) -> None:
    print_faults(
        CommandOutput(None), [met("with", None, "a.flag"), met("without", None)], ["vllm@0.28.0"]
    )
    out = capsys.readouterr().out
    assert [name in out for name in ("with ", "with*", "without*")] == [True, False, True]
    assert "* no cause of it is known: told by what it breaks alone" in out
