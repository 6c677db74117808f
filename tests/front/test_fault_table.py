"""The table of listed faults, below which it says where their pages lie."""

from types import SimpleNamespace
from typing import Any

import pytest

from cacheproof.console import Output
from cacheproof.differential.search.known import Cause, KnownFault
from cacheproof.fault_table import ShownFault, print_faults


def met(name: str, page: str | None, *cause: str) -> ShownFault:
    """A fault that one search met, on a trace of two events."""
    causes = (Cause(cause, ("EC-6",)),) if cause else ()
    fault = KnownFault(name, "a title", "safety", page=page, cause=causes)
    finding: Any = SimpleNamespace(target="vllm@0.28.0", events=("one", "other"))
    return ShownFault(fault, ["EC-6"], ["vllm@0.28.0"], [finding])


@pytest.mark.parametrize(
    ("pages", "cells", "line"),
    [
        (["findings/a.md"], [["a"]], "; pages: docs/findings/PAGE.md"),
        (
            ["rediscovery.md#b", "findings/a.md#c"],
            [["rediscovery"], ["a"]],
            "; pages: docs/findings/PAGE.md, docs/rediscovery.md",
        ),
        ([None], [[]], ""),
    ],
)
def test_the_page_of_each_fault_can_be_found(
    capsys: pytest.CaptureFixture[str], pages: list[str | None], cells: list[list[str]], line: str
) -> None:
    shown = [met(f"fault-{place}", page, "a.flag") for place, page in enumerate(pages)]
    print_faults(Output(None), shown, ["vllm@0.28.0"])
    _, _, *rows, last = capsys.readouterr().out.splitlines()
    assert [row.split()[3:] for row in rows] == cells
    assert last == f"numbers are events of a trace{line}"


def test_a_fault_without_a_cause_is_marked(capsys: pytest.CaptureFixture[str]) -> None:
    print_faults(Output(None), [met("with", None, "a.flag"), met("without", None)], ["vllm@0.28.0"])
    out = capsys.readouterr().out
    assert [name in out for name in ("with ", "with*", "without*")] == [True, False, True]
    assert "* no cause of it is known: told by what it breaks alone" in out
