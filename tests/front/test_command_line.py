"""What `--help` shows of every command, where a wrong word is sent, and how fast it answers."""

import io
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from contextlib import redirect_stdout
from typing import Annotated

import pytest
import typer
from typer.core import TyperCommand, TyperGroup

from cacheproof.cli import APPS, COMMANDS, app
from cacheproof.commands.helping import CommandGroup, add, example
from tests.front.conftest import Run

ROOT = typer.main.get_command(app)
assert isinstance(ROOT, TyperGroup)
HEAVY = (
    "cacheproof.output.console",
    "cacheproof.differential.judges",
    "cacheproof.differential.search.",
    "cacheproof.differential.provision.releases",
    "cacheproof.proofs",
    "jinja2",
    "msgspec",
    "rich",
)
"""What `--help`, `--version` and completion have no need of."""
LIGHT = "import sys, {module}; print(*sys.modules, sep='\\n')"


def commands(
    group: TyperGroup, words: tuple[str, ...] = ()
) -> Iterator[tuple[tuple[str, ...], TyperCommand]]:
    """The words and the command of everything that can be called."""
    for name, command in group.commands.items():
        if hasattr(command, "commands"):
            yield from commands(command, (*words, name))
        else:
            yield (*words, name), command


ALL = dict(commands(ROOT))
NAMES = [" ".join(words) for words in ALL]


def help_of(words: tuple[str, ...], columns: int, monkeypatch: pytest.MonkeyPatch) -> str:
    """What `--help` prints in a terminal of that width."""
    monkeypatch.setenv("COLUMNS", str(columns))
    written = io.StringIO()
    with redirect_stdout(written):
        ROOT.main([*words, "--help"], standalone_mode=False, prog_name="cacheproof")
    return written.getvalue()


def complaints(text: str, command: TyperCommand, columns: int) -> list[str]:
    """What is cut, broken or unsaid in a command's help."""
    found = [f"too wide: {line}" for line in text.splitlines() if len(line) > columns]
    found += [f"cut: {line}" for line in text.splitlines() if "…" in line]
    words = f" {' '.join(text.split())} "
    for param in command.params:
        is_argument = param.param_type_name == "argument"
        named = [param.metavar] if is_argument else param.opts
        if is_argument and not param.required:
            named = [f"[{param.metavar}]"]
        if param.secondary_opts:
            named = [one.replace("--", "--[no-]") for one in named]
        found += [f"cut: {name}" for name in named if f" {name} " not in words]
        if not (param.help or "").endswith(".") or len((param.help or "").split()) < 3:
            found.append(f"no sentence: {named[0]}: {param.help}")
    lines = (command.epilog or "").splitlines()
    return found + [f"broken: {line}" for line in lines if f"  {line}\n" not in text]


def refused(examples: str) -> list[str]:
    """Examples that the command line does not take. Nothing is run."""
    found = []
    for line in examples.replace("\\\n", " ").splitlines():
        name, *words = shlex.split(line.partition(" > ")[0])
        group, path = ROOT, name
        try:
            assert name == "cacheproof", "begins with another word"
            while hasattr(group, "commands"):
                path, *words = words
                group = group.commands[path]
            group.make_context(path, words)
        except Exception as error:
            found.append(f"{line}: {error!r}")
    return found


@pytest.mark.parametrize("columns", [80, 60])
@pytest.mark.parametrize("name", NAMES)
def test_help_says_of_everything_what_it_does_and_cuts_nothing(
    name: str, columns: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = tuple(name.split())
    text = help_of(words, columns, monkeypatch)
    assert complaints(text, ALL[words], columns) == []


def test_help_that_is_cut_or_silent_is_noticed() -> None:
    toy = typer.Typer(cls=CommandGroup, rich_markup_mode=None, add_completion=False)

    @example("cacheproof toy --a-very-long-option 1")
    def silent(
        a_very_long_option: Annotated[int, typer.Option(help="The solver's.")] = 1,
        other: Annotated[int, typer.Option()] = 1,
    ) -> None:
        """A toy."""

    add(toy, silent)
    command = typer.main.get_command(toy)
    text = "--a-very-long-opt…\n" + "x" * 61 + "\ncacheproof toy\n"
    kinds = [one.partition(":")[0] for one in complaints(text, command, 60)]
    silent_ones = ["cut", "no sentence", "cut", "no sentence"]
    assert kinds == ["too wide", "cut", *silent_ones, "broken"]


@pytest.mark.parametrize("name", NAMES)
def test_each_command_has_an_example_that_the_command_line_takes(name: str) -> None:
    epilog = ALL[tuple(name.split())].epilog
    assert f"cacheproof {name}" in epilog
    assert refused(epilog) == []


def test_an_example_that_is_wrong_is_noticed() -> None:
    wrong = "cacheproof fuzz --seconds 60\ncacheproof fzz\nfuzz\ncacheproof vllm install"
    assert len(refused(wrong)) == 4
    assert refused(ROOT.epilog) == []


def test_commands_stand_in_groups_with_check_first(monkeypatch: pytest.MonkeyPatch) -> None:
    text = help_of((), 80, monkeypatch)
    headings = re.findall(r"^(\S.*):$", text, re.MULTILINE)
    assert headings[: len(COMMANDS)] == [*COMMANDS]
    listed = re.findall(r"^  ([a-z]+)  ", text, re.MULTILINE)
    assert listed[0] == "check"
    assert sorted(listed[: len(ROOT.commands)]) == sorted(ROOT.commands)
    assert APPS.keys() <= {*listed}


@pytest.mark.parametrize(
    ("words", "where"),
    [
        (["fuzz"], "cacheproof fuzz --help"),
        (["fuzz", "--targett", "x"], "cacheproof fuzz --help"),
        (["replay"], "cacheproof replay --help"),
        (["replay", "x", "--times", "no"], "cacheproof replay --help"),
        (["vllm", "install"], "cacheproof vllm install --help"),
        (["vllm", "instal"], "cacheproof vllm --help"),
        (["chek"], "cacheproof --help"),
    ],
)
def test_a_wrong_word_is_sent_to_the_help_of_its_own_command(
    run: Run, words: list[str], where: str
) -> None:
    assert re.search(rf"(; see|\? See) {where}$", run(*words).refusal)


@pytest.mark.parametrize(
    ("words", "meant"),
    [(["chek"], "check"), (["fuzz", "--targett", "x"], "--target"), (["vllm", "lst"], "list")],
)
def test_a_word_that_is_nearly_right_is_guessed(run: Run, words: list[str], meant: str) -> None:
    assert meant in run(*words).refusal


def test_a_short_h_is_help(run: Run) -> None:
    assert run("fuzz", "-h").out == run("fuzz", "--help").out
    assert run("-h").out.startswith("Usage: cacheproof COMMAND")


def heavy(module: str) -> set[str]:
    """The modules that an import brings along, of those that are heavy."""
    script = LIGHT.format(module=module)
    ran = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    return {one for one in ran.stdout.split() if one.startswith(HEAVY)}


def test_nothing_is_imported_that_help_and_completion_do_not_need() -> None:
    assert heavy("cacheproof.cli") == set()


def test_a_module_that_imports_what_it_runs_is_noticed() -> None:
    assert {"cacheproof.output.console", "rich"} <= heavy("cacheproof.search.searching")
