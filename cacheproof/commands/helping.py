"""How `--help` looks: commands and options in groups, in two columns of which nothing is cut."""

import os
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, ClassVar, TypeVar

import typer
from typer.core import TyperArgument, TyperCommand, TyperGroup, TyperOption

from cacheproof.differential.errors import InputError

if TYPE_CHECKING:
    # what Typer's own classes are declared with; it has no public name for them
    from typer._click.core import Context
    from typer._click.formatting import HelpFormatter

COLUMNS_MAX = 100
NAMES_COLUMNS_MAX = 26
"""Width of the column of names; a longer name has its text in the lines below it."""
ARGUMENTS, OPTIONS, COMMANDS = "Arguments", "Options", "Commands"
SETTINGS = {
    "help_option_names": ["-h", "--help"],
    "max_content_width": COLUMNS_MAX,
    "color": False if os.environ.get("NO_COLOR") else None,
}
Function = TypeVar("Function", bound=Callable[..., None])
Row = tuple[str, str]


def example(*commands: str) -> Callable[[Function], Function]:
    """Commands that a reader can copy, shown below the options; a long one has lines that end in a
    backslash."""

    def given(function: Function) -> Function:
        function.examples = commands  # type: ignore[attr-defined]
        return function

    return given


def add(app: typer.Typer, function: Callable[..., None], panel: str = "", name: str = "") -> None:
    """Make a function a command of the app, in the group of that name."""
    app.command(
        name or None,
        cls=Command,
        epilog="\n".join(getattr(function, "examples", ())),
        rich_help_panel=panel or None,
        context_settings=SETTINGS,
    )(function)


def group(help_text: str) -> typer.Typer:
    """An app whose commands are below one of ours."""
    return typer.Typer(
        help=help_text,
        cls=CommandGroup,
        rich_markup_mode=None,
        context_settings=SETTINGS,
    )


class Command(TyperCommand):
    """A command whose help has its required options in the first line, its options in groups, and
    its examples as they are to be typed."""

    def collect_usage_pieces(self, ctx: "Context") -> list[str]:
        """What is to be typed: required options, arguments, and that there are options."""
        params = [one for one in self.get_params(ctx) if isinstance(one, TyperOption)]
        required = [_names(one) for one in params if one.required]
        arguments = [_usage(one) for one in self.params if isinstance(one, TyperArgument)]
        return [*required, "[OPTIONS]", *arguments]

    def format_options(self, ctx: "Context", formatter: "HelpFormatter") -> None:
        """The groups of arguments and options."""
        _format_params(self, ctx, formatter)

    def format_epilog(self, ctx: "Context", formatter: "HelpFormatter") -> None:
        """The examples."""
        _format_examples(self, formatter)


class CommandGroup(TyperGroup):
    """A command that has commands, listed in groups with the whole first sentence of each."""

    exit_codes: ClassVar[Mapping[str, str]] = {}

    def parse_args(self, ctx: "Context", args: list[str]) -> list[str]:
        """Read what was typed; where that is nothing, the help is what is wanted."""
        if not args and not ctx.resilient_parsing:
            typer.echo(ctx.get_help(), color=ctx.color)
            raise typer.Exit(InputError.exit_code)
        return super().parse_args(ctx, args)

    def collect_usage_pieces(self, ctx: "Context") -> list[str]:
        """What is to be typed."""
        return ["COMMAND", "[OPTIONS]"]

    def format_options(self, ctx: "Context", formatter: "HelpFormatter") -> None:
        """The groups of commands, then the options."""
        panels: dict[str, list[Row]] = {}
        for name in self.list_commands(ctx):
            command = self.get_command(ctx, name)
            assert command is not None
            panel = getattr(command, "rich_help_panel", None) or COMMANDS
            text = (command.help or "").partition("\n\n")[0]
            panels.setdefault(panel, []).append((name, text))
        _format_panels(panels, formatter)
        _format_params(self, ctx, formatter)

    def format_epilog(self, ctx: "Context", formatter: "HelpFormatter") -> None:
        """The examples, then what exit codes mean, if the group says that."""
        _format_examples(self, formatter)
        if self.exit_codes:
            _format_panels({"Exit codes": [*self.exit_codes.items()]}, formatter)


def _format_params(
    command: TyperCommand | TyperGroup, ctx: "Context", formatter: "HelpFormatter"
) -> None:
    """What a command takes, each group under its heading: arguments, options, other groups."""
    panels: dict[str, list[Row]] = {ARGUMENTS: [], OPTIONS: []}
    for param in command.get_params(ctx):
        assert isinstance(param, TyperArgument | TyperOption)
        is_argument = isinstance(param, TyperArgument)
        panel = param.rich_help_panel or (ARGUMENTS if is_argument else OPTIONS)
        if not param.hidden:
            panels.setdefault(panel, []).append((_names(param), _text(param, ctx)))
    _format_panels({panel: rows for panel, rows in panels.items() if rows}, formatter)


def _format_panels(panels: Mapping[str, Sequence[Row]], formatter: "HelpFormatter") -> None:
    """Each group under its heading, the second columns of all below one another."""
    widest = max(len(names) for rows in panels.values() for names, _ in rows)
    width = min(widest, NAMES_COLUMNS_MAX)
    for panel, rows in panels.items():
        _format_heading(panel, formatter)
        shown = [(typer.style(names.ljust(width), fg="cyan"), text) for names, text in rows]
        formatter.indent()
        formatter.write_dl(shown, col_max=NAMES_COLUMNS_MAX)
        formatter.dedent()


def _format_heading(heading: str, formatter: "HelpFormatter") -> None:
    formatter.write_paragraph()
    formatter.write(typer.style(f"{heading}:", bold=True) + "\n")


def _format_examples(command: TyperCommand | TyperGroup, formatter: "HelpFormatter") -> None:
    """The examples, each line as it is to be typed."""
    if command.epilog:
        _format_heading("Examples", formatter)
        formatter.write("".join(f"  {line}\n" for line in command.epilog.splitlines()))


def _names(param: TyperArgument | TyperOption) -> str:
    """How a parameter is given: `--seeds A:B`, `--[no-]prefix-caching`, `FILE`."""
    if isinstance(param, TyperArgument):
        return _usage(param)
    names = ", ".join(sorted(param.opts, key=len))
    if param.secondary_opts:
        return names.replace("--", "--[no-]", 1)
    return names if param.is_flag else f"{names} {param.metavar or param.name.upper()}"


def _usage(argument: TyperArgument) -> str:
    """An argument, in brackets where it may be left out."""
    name = argument.metavar or argument.name.upper()
    return name if argument.required else f"[{name}]"


def _text(param: TyperArgument | TyperOption, ctx: "Context") -> str:
    """What a parameter does, and what it is where it is not given."""
    default = param.get_default(ctx, call=False)
    text = param.help or ""
    if param.required or default is None or default is False:
        return text
    if default is True:
        default = "on"
    return f"{text} [default: {default}]".lstrip()
