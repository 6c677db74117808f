"""What can be checked without a target is checked before anything is fetched, in every command."""

import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NoReturn

import pytest
import typer
from typer.core import TyperCommand, TyperGroup

from cacheproof.campaign import run as campaign_run
from cacheproof.cli import app
from cacheproof.differential.provision.cache import Cache
from cacheproof.differential.search.campaigns.plan_file import CampaignPlan
from cacheproof.differential.search.campaigns.store import CampaignStore, CampaignTarget
from cacheproof.listed.pages import kept_traces
from tests.front.conftest import Run

Command = tuple[str, ...]
Arguments = Mapping[str, str]
TRACE = str(kept_traces()["reused-media-id"])

FETCHING: Mapping[Command, Arguments] = {
    ("check",): {},
    ("fuzz",): {"--target": "vllm@0.33.0"},
    ("diff",): {"left": "vllm@0.28.0", "right": "vllm@0.33.0"},
    ("report",): {"fault": "phantom-entry"},
    ("review",): {"--base": "vllm@0.28.0", "--head": "vllm@0.33.0"},
    ("explore",): {"--target": "vllm@0.33.0"},
    ("prove",): {"--target": "vllm@0.33.0"},
    ("replay",): {"file": TRACE, "--target": "vllm@0.33.0"},
    ("bisect",): {"what": TRACE, "--all": ""},
    ("http",): {"--target": "engine@0.32.0"},
    ("generate",): {"--prompt": "w1"},
    ("campaign", "start"): {"plan": "plan.toml", "--store": "new"},
    ("campaign", "resume"): {"--store": "begun"},
    ("vllm", "install"): {"versions": "0.33.0"},
    ("connector", "install"): {"names": "lmcache@0.5.6"},
}
"""Commands that fetch what is missing, with arguments that are right: on an empty cache they do."""

OTHERS: Mapping[Command, Arguments] = {
    ("minimise",): {"where": "no record"},
    ("contracts",): {},
    ("explain",): {},
    ("assess",): {"release": "0.33.0"},
    ("gallery",): {},
    ("record",): {"folder": "records", "command": "true"},
    ("audit",): {"where": "no record"},
    ("simulate",): {},
    ("campaign", "status"): {"--store": "begun"},
    ("campaign", "report"): {"--store": "begun"},
    ("campaign", "merge"): {"first": "begun", "second": "another"},
    ("campaign", "serve"): {"--store": "begun"},
    ("vllm", "list"): {},
    ("vllm", "texts"): {},
    ("vllm", "remove"): {"versions": "0.33.0"},
    ("connector", "list"): {},
}
"""`minimise` fetches too, behind a record in which something is broken: it is to refuse what is
wrong before it says that there is none."""

NO_FILE = "/no/such/folder/file"
BAD: Mapping[str, tuple[str, str]] = {
    **dict.fromkeys(("--target", "--base", "--head", "left", "right"), ("nope", "nope")),
    "--component": ("nope", "--component nope"),
    **dict.fromkeys(("file", "what", "where", "plan", "first", "second"), (NO_FILE, NO_FILE)),
    **{
        name: (NO_FILE, name)
        for name in ("--json", "--junit", "--sarif", "--html", "--perfetto", "--toml")
    },
    **{
        name: ("0", name)
        for name in (
            "--workers", "--seconds", "--times", "--window", "--requests", "--clients", "--mib",
            "--encoder-cache", "--encoder-budget", "--tokens-per-step", "--requests-at-once",
            "--blocks", "--block-size", "--hidden-size", "--max-tokens", "--model-length",
            "--api-servers", "--engines",
        )
    },
    "versions": ("0.33", "0.33 names no release; did you mean 0.33.0?"),
    "names": ("lmcache@0.6", "did you mean lmcache@0.6.0?"),
    "release": ("0.33", "did you mean 0.33.0?"),
    "fault": ("nope", "nope: no listed fault"),
    "contract": ("XX-1", "XX-1: no contract"),
    "--for": ("money", "--for"),
    "folder": ("/dev/null/records", "DIR /dev/null/records: cannot be made"),
    "command": (NO_FILE, NO_FILE),
    "--budget": ("huge", "--budget"),
    "--slice": ("0/0", "--slice"),
    "--release": ("0.33", "did you mean --release 0.33.0?"),
    "--known": (NO_FILE, NO_FILE),
    "--runner": ("third", "--runner third: expected first or second"),
    "--register": (NO_FILE, NO_FILE),
    "--findings": ("/dev/null/findings", "/dev/null/findings"),
    "--records": ("/dev/null/records", "--records /dev/null/records"),
    "--cluster": ("127.0.0.1:1", "--cluster"),
    "--against": ("nothing", "--against"),
    "--depth": ("deep", "--depth"),
    "--seeds": ("5:5", "--seeds"),
    "--seed": ("-1", "--seed"),
    "--scope": ("huge", "--scope"),
    "--contract": ("XX-1", "--contract XX-1"),
    "--checkout": (NO_FILE, "--checkout"),
    "--good": ("v0.1", "--good"),
    "--bad": ("v0.1", "--bad"),
    "--model": ("gpt", "gpt"),
    "--task": ("rank", "--task rank: expected one of generate, embed"),
    "--prompt": ("<image>", "<image>"),
    "--image": (NO_FILE, "--image"),
    "--video": (NO_FILE, "--video"),
    "--audio": (NO_FILE, "--audio"),
    "--device": ("tpu", "tpu"),
    "--traffic": ("walking", "--traffic"),
    "--dtype": ("int3", "--dtype"),
    "--metrics-port": ("70000", "--metrics-port"),
    "--store": ("/dev/null/store", "/dev/null/store"),
    "--into": ("/dev/null/store", "/dev/null/store"),
    "--port": ("70000", "--port"),
    "--host": ("no address", "--host"),
}  # fmt: skip
"""For each option and argument a value that no command can take, and words of its refusal."""

ONLY_READ = {("replay",), ("bisect",), ("campaign", "serve")}
"""Their folder of findings need not be there."""


class Fetched(BaseException):
    """Something was about to be fetched."""


def commands() -> Iterator[tuple[Command, TyperCommand | TyperGroup]]:
    """All of the command line."""
    waiting: list[tuple[Command, TyperCommand | TyperGroup]] = [((), typer.main.get_command(app))]
    while waiting:
        name, one = waiting.pop()
        if not hasattr(one, "commands"):
            yield name, one
            continue
        waiting += [((*name, word), inner) for word, inner in one.commands.items()]


ALL = dict(commands())
CASES = [
    (command, parameter.opts[0])
    for command, one in ALL.items()
    for parameter in one.params
    if not getattr(parameter, "is_flag", False)
    and not (command in ONLY_READ and parameter.opts[0] == "--findings")
]


def words(command: Command, arguments: Arguments) -> list[str]:
    """The command line: options first, then arguments in their order."""
    places = [parameter.opts[0] for parameter in ALL[command].params]
    said = list(command)
    for name in sorted(arguments, key=places.index):
        if name.startswith("-"):
            said += [name, arguments[name]] if arguments[name] else [name]
    return said + [arguments[name] for name in places if name in arguments and name[0] != "-"]


@pytest.fixture(autouse=True)
def empty_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is installed, and whoever goes on to change that is caught: all do so through here.
    A campaign that has begun is there, and the plan of another."""
    monkeypatch.setenv("CACHEPROOF_HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)
    plan = CampaignPlan(targets=("vllm@0.33.0",), seeds="0:5")
    about = CampaignTarget("vllm@0.33.0", "0.33.0", "", False, False, ("encoder cache",))
    for store in ("begun", "another"):
        CampaignStore.create(store, plan, "", campaign_run.made_by(), [about], 0.0).close()
    Path("plan.toml").write_text('targets = ["vllm@0.33.0"]\nseeds = "0:5"\n')

    def fetch(cache: Cache) -> NoReturn:
        raise Fetched

    def execute(*_: object) -> None:
        raise Fetched

    monkeypatch.setattr(Cache, "writing", fetch)
    monkeypatch.setattr(os, "execv", execute)


def test_every_command_and_every_option_is_thought_of() -> None:
    assert FETCHING.keys() | OTHERS.keys() == ALL.keys()
    assert BAD.keys() == {name for _, name in CASES}


@pytest.mark.parametrize("command", FETCHING, ids=" ".join)
def test_a_command_whose_arguments_are_right_fetches(run: Run, command: Command) -> None:
    """Else nothing would be said by one that fetches nothing for what is wrong."""
    with pytest.raises(Fetched):
        run(*words(command, FETCHING[command]))


@pytest.mark.parametrize(("command", "name"), CASES, ids=str)
def test_what_is_wrong_is_refused_before_anything_is_fetched(
    run: Run, command: Command, name: str
) -> None:
    value, told = BAD[name]
    right = FETCHING.get(command) or OTHERS.get(command, {})
    assert told in run(*words(command, {**right, name: value})).refusal


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("check", "--release", "0.33.0", "--release", "0.33"), "did you mean --release 0.33.0?"),
        (("prove", "--target", "vllm@0.33.0", "--target", "nope"), "target 'nope'"),
        (("explore", "--target", "vllm@0.33.0", "--target", "nope"), "target 'nope'"),
        (("vllm", "install", "0.33.0", "0.33"), "did you mean 0.33.0?"),
        (("connector", "install", "lmcache@0.5.6", "redis"), "expected lmcache@VERSION"),
        (("diff", "vllm@0.33.0", "lmcache@0.5.6"), "no lane in common"),
        (("review", "--base", "vllm@0.33.0", "--head", "engine@0.32.0"), "no lane in common"),
        (("fuzz", "--target", "vllm@0.11.2", "--depth", "kv_cache"), "needs vllm@0.14.0 or later"),
        (("fuzz", "--target", "vllm@0.33.0", "--depth", "engine"), "engine@VERSION runs it"),
        (
            ("fuzz", "--target", "vllm@0.9.2", "--depth", "manager"),
            "it needs vllm@0.10.0 or later; expected depth media_hash, or another target",
        ),
        (("fuzz", "--target", "engine@0.32.0", "--depth", "manager"), "vllm@VERSION runs it"),
        (("fuzz", "--target", "lmcache@0.5.6", "--depth", "manager"), "only vllm has it"),
        (("generate", "--prompt", "w1", "--prompt", " "), "prompt 2 has no tokens"),
        (("fuzz", "--target", "no.such.module:Class"), "no module no.such.module in "),
        (("prove", "--target", "no.such.module:Class"), "no module no.such.module in "),
        (("explore", "--target", "lmcache@0.5.6"), "expected depth encoder_connector"),
        (("replay", TRACE, "--target", "engine@0.32.0"), "does not run this scheduler-depth"),
        (("minimise", "no record", "--target", "engine@0.32.0"), "vllm@VERSION runs it"),
    ],
)  # fmt: skip
def test_what_does_not_go_together_is_refused_before_anything_is_fetched(
    run: Run, arguments: tuple[str, ...], told: str
) -> None:
    assert told in run(*arguments).refusal


@pytest.mark.parametrize("targets", ['["vllm@0.33.0", "nope"]', '["vllm@0.33.0", "vllm@0.32"]'])
def test_a_plan_is_refused_for_its_last_target_too(run: Run, targets: str) -> None:
    Path("plan.toml").write_text(f'targets = {targets}\nseeds = "0:5"\n')
    refusal = run("campaign", "start", "plan.toml", "--store", "new").refusal
    assert refusal.startswith("plan.toml: key targets: ")
    assert not Path("new").exists()


def test_a_campaign_is_not_begun_where_another_is(run: Run) -> None:
    refusal = run("campaign", "start", "plan.toml", "--store", "begun").refusal
    assert "holds a campaign already" in refusal
