"""The workflow of docs/how-to-ci.md is YAML, and what it runs is there to be run."""

import json
import re
import shlex
import shutil
import subprocess
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import typer

from cacheproof.cli import app
from cacheproof.differential.targets import releases

ROOT = Path(__file__).resolve().parent.parent
PAGE = (ROOT / "docs" / "how-to-ci.md").read_text()
COMMAND = "cacheproof/.venv/bin/cacheproof "
TO_JSON = "import json, sys, yaml; print(json.dumps(yaml.safe_load(sys.stdin)['jobs']))"
"""Run where PyYAML is, among the libraries of a release."""


@cache
def steps() -> list[dict[str, Any]]:
    """The steps of the one workflow that the page has."""
    (text,) = re.findall(r"^```yaml\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    python = str(releases.install("0.33.0", report=print).python)
    read = subprocess.run(
        [python, "-c", TO_JSON], input=text, capture_output=True, text=True, check=True
    )
    ((job,),) = [json.loads(read.stdout).values()]
    found: list[dict[str, Any]] = job["steps"]
    return found


def scripts() -> list[str]:
    return [step["run"] for step in steps() if "run" in step]


def commands(text: str) -> list[list[str]]:
    """The arguments of each call of cacheproof in a script, bash's variables included."""
    lines = text.replace("\\\n", " ").splitlines()
    calls = [line.strip().removeprefix(COMMAND) for line in lines if COMMAND in line]
    return [shlex.split(call.partition("||")[0]) for call in calls]


def parse(arguments: list[str]) -> None:
    """Read a command's arguments as the command line does; raises what refuses them."""
    group: Any = typer.main.get_command(app)
    name, *rest = (one for one in arguments if one != "$search")
    group.commands[name].make_context(name, rest)


def test_every_step_runs_an_action_or_a_script_that_bash_can_read() -> None:
    assert all(("uses" in step) != ("run" in step) for step in steps())
    for script in scripts():
        subprocess.run(["bash", "-n"], input=script, text=True, check=True)


def test_the_workflow_sets_up_as_the_makefile_does_and_searches() -> None:
    text = "\n".join(scripts())
    targets = re.findall(r"make -C cacheproof (\w+)", text)
    assert targets == ["setup"]
    assert re.search(r"^setup:", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert [call[0] for call in commands(text)] == ["fuzz"]


def test_the_command_line_takes_every_command_of_the_page() -> None:
    calls = commands(PAGE)
    assert len(calls) == 3
    for arguments in calls:
        parse(arguments)
    for search in re.findall(r'search="(.*)"', PAGE):
        parse(["fuzz", "--target", "path:fork", *shlex.split(search)])


def test_the_command_line_takes_the_review_of_a_pull_request() -> None:
    (call,) = commands((ROOT / "docs" / "review.md").read_text())
    parse(call[: call.index(">")])


def test_an_option_that_is_gone_is_noticed() -> None:
    with pytest.raises(Exception, match="No such option: --minutes"):
        parse(["fuzz", "--target", "path:fork", "--minutes", "2"])


def test_the_locks_that_name_the_cache_are_there() -> None:
    (step,) = [step for step in steps() if step.get("uses", "").startswith("actions/cache")]
    (pattern,) = re.findall(r"hashFiles\('cacheproof/(.*?)'\)", step["with"]["key"])
    assert len(list(ROOT.glob(pattern))) > 1


def uploaded() -> set[str]:
    """The files that steps hand to GitHub."""
    files = {step["with"]["sarif_file"] for step in steps() if "sarif_file" in step.get("with", {})}
    kept = [step["with"]["path"].split() for step in steps() if "artifact" in step.get("uses", "")]
    return files.union(*kept)


def unwritten(files: set[str], text: str) -> set[str]:
    """Those that no script names as what it writes."""
    return {one for one in files if not re.search(rf"(--\w+|>) {re.escape(one)}(\s|$)", text)}


def test_what_is_uploaded_is_written() -> None:
    assert uploaded() >= {"unlisted.sarif", "cacheproof.sarif", "cacheproof.xml"}
    assert unwritten(uploaded(), "\n".join(scripts())) == set()


def test_a_file_that_nothing_writes_is_noticed() -> None:
    assert unwritten({"gone.sarif"}, "\n".join(scripts())) == {"gone.sarif"}


@pytest.mark.skipif(shutil.which("jq") is None, reason="no jq, which GitHub's machines have")
def test_listed_faults_are_left_out_of_what_becomes_alerts(tmp_path: Path) -> None:
    (script,) = [one for one in scripts() if "unlisted.sarif" in one]
    listed, new = {"ruleId": "EC-6", "suppressions": [{"kind": "external"}]}, {"ruleId": "EC-7"}
    document = {"version": "2.1.0", "runs": [{"results": [listed, new]}, {"results": []}]}
    (tmp_path / "cacheproof.sarif").write_text(json.dumps(document))
    subprocess.run(["bash", "-e"], input=script, text=True, check=True, cwd=tmp_path)
    left = json.loads((tmp_path / "unlisted.sarif").read_text())
    assert left == {"version": "2.1.0", "runs": [{"results": [new]}, {"results": []}]}
