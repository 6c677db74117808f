"""The command that explains a listed fault to somebody who has read nothing else."""

from collections.abc import Sequence
from dataclasses import dataclass

from rich.console import RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from cacheproof.differential.search.known import KnownFault
from cacheproof.differential.search.verdict import HOLDS
from cacheproof.differential.traces.wording import visible, visible_line
from cacheproof.listed.facts import fault_called, fault_rows, listed_by_name, showing
from cacheproof.listed.pages import paragraphs_of
from cacheproof.output.conclusion import Conclusion
from cacheproof.output.console import CommandOutput
from cacheproof.output.verdict_line import VerdictLine
from cacheproof.spec.registry import by_id

Rows = Sequence[tuple[str, str]]


def explain_fault(output: CommandOutput, name: str) -> None:
    """What a listed fault is, why and where it happens, how to avoid and how to see it.

    Raises:
        InputError: no listed fault has that name.
    """
    fault = fault_called(name)
    facts, commands = list(fault_rows(fault)), list(showing(fault))
    told = what_happens(fault)
    broken = [(rule, by_id(rule).title) for rule in fault.contracts]
    print_parts(
        output,
        rows_part(f"{fault.name}: {fault.title}", facts),
        text_part("what happens", "\n\n".join(told)),
        rows_part("contracts that it breaks", broken),
        ScreenPart("see it", commands),
    )
    about = {
        "fault": fault.name,
        "title": fault.title,
        "facts": dict(facts),
        "why": told,
        "contracts": dict(broken),
        "commands": commands,
    }
    output.tell(Conclusion(HOLDS, _verdict_of(fault, commands), about))


def list_faults(output: CommandOutput) -> None:
    """Every listed fault by its name and title."""
    faults = listed_by_name().values()
    print_parts(output, rows_part("known faults", [(one.name, _title(one)) for one in faults]))
    line = VerdictLine(
        f"{len(faults)} faults of real releases are known by name.",
        "read about one",
        "cacheproof explain repeated-item",
    )
    output.tell(Conclusion(HOLDS, line, {"faults": {one.name: _title(one) for one in faults}}))


def _title(fault: KnownFault) -> str:
    return fault.title


def what_happens(fault: KnownFault) -> list[str]:
    """How a fault comes about: as its page says, else as each of its faces is noted."""
    return paragraphs_of(fault.name) or [f"{fault.title}."]


def _verdict_of(fault: KnownFault, commands: Sequence[str]) -> VerdictLine:
    step = ("see it", commands[0]) if commands else ("", "")
    whose = f"{fault.product} beside vLLM" if fault.product else "vLLM"
    where = f"was seen in {whose} {fault.seen}" if fault.seen else f"is a fault of {whose}"
    mended = f"{fault.mended_in} mends it" if fault.mended_in else "no release is known to mend it"
    return VerdictLine(f"{fault.name} {where}; {mended}.", *step)


@dataclass(frozen=True)
class ScreenPart:
    """A part of a screen below its title: something to be rendered, or commands to be copied. One
    without either is not shown."""

    title: str
    body: RenderableType | list[str] | None


def rows_part(title: str, rows: Rows) -> ScreenPart:
    """Rows of a name and a text each."""
    table = Table.grid(padding=(0, 2, 0, 0))
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    for name, text in rows:
        table.add_row(name, Text(visible_line(text)))
    return ScreenPart(title, table if rows else None)


def text_part(title: str, text: str) -> ScreenPart:
    """Prose, or lines of Python."""
    return ScreenPart(title, Text(visible(text)) if text else None)


def print_parts(output: CommandOutput, *parts: ScreenPart) -> None:
    """Print what there is, an empty line between two parts."""
    for number, part in enumerate(one for one in parts if one.body):
        if number:
            output.line("")
        output.report.print(Text(visible_line(part.title), style="bold"))
        if isinstance(part.body, list):
            for command in part.body:
                output.command(f"  {command}")
        elif part.body is not None:
            output.report.print(Padding(part.body, (0, 0, 0, 2), expand=False))
