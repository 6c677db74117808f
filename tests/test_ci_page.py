"""The action, the hooks for pre-commit and docs/how-to/ci.md ask for what is there. The calls that
the page shows are looked at in test_documented_calls.py."""

import json
import os
import re
import shlex
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import typer
import yaml

from cacheproof.cli import app
from cacheproof.differential.depths import DEPTHS

ROOT = Path(__file__).resolve().parent.parent
PAGE = (ROOT / "docs" / "how-to" / "ci.md").read_text()
ACTION: dict[str, Any] = yaml.safe_load((ROOT / "action.yml").read_text())
STEPS: dict[str, dict[str, Any]] = {
    step.get("name") or step["uses"].partition("@")[0]: step for step in ACTION["runs"]["steps"]
}
HOOKS: list[dict[str, Any]] = yaml.safe_load((ROOT / ".pre-commit-hooks.yaml").read_text())


def parse(arguments: list[str]) -> None:
    """Read a command's arguments as the command line does; raises what refuses them."""
    group: Any = typer.main.get_command(app)
    name, *rest = arguments
    group.commands[name].make_context(name, rest)


def test_an_option_that_is_gone_is_noticed() -> None:
    with pytest.raises(Exception, match="No such option: --minutes"):
        parse(["fuzz", "--target", "path:fork", "--minutes", "2"])


def workflows() -> list[Any]:
    """The YAML of the page: the workflow, and the hook's configuration."""
    texts = re.findall(r"^```yaml\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    return [yaml.safe_load(one) for one in texts]


def test_the_page_gives_the_action_inputs_that_it_has() -> None:
    (steps,) = (job["steps"] for job in workflows()[0]["jobs"].values())
    (ours,) = (step for step in steps if "cacheproof@" in step["uses"])
    assert ours["with"].keys() <= ACTION["inputs"].keys()
    named = re.findall(r"^\| `([a-z-]+)` \|", PAGE, re.MULTILINE)
    assert sorted(named) == sorted(ACTION["inputs"])


def test_the_page_names_the_hooks_that_there_are() -> None:
    (of_page,) = workflows()[1]["repos"]
    assert [one["id"] for one in of_page["hooks"]] == [one["id"] for one in HOOKS]
    (others,) = re.findall(r"`args: (\[.*\])`", PAGE)
    for hook in HOOKS:
        program, *words = shlex.split(hook["entry"])
        assert program == "cacheproof"
        parse([*words, *hook["args"]])
        parse([*words, *yaml.safe_load(others)])
        assert hook["args"][1] in DEPTHS


@pytest.mark.parametrize(
    ("file", "depths"),
    [
        ("vllm/v1/core/encoder_cache_manager.py", ["manager"]),
        ("vllm/v1/core/sched/scheduler.py", ["scheduler"]),
        ("vllm/v1/core/block_pool.py", ["kv_cache"]),
        ("vllm/v1/core/kv_cache_utils.py", ["kv_cache", "block_hash"]),
        ("vllm/multimodal/hasher.py", ["media_hash"]),
        ("vllm/multimodal/cache/lru.py", ["front_end"]),
        ("vllm/utils/cache.py", ["front_end"]),
        ("vllm/v1/worker/gpu_model_runner.py", []),
        ("tests/v1/core/test_kv_cache_utils.py", []),
    ],
)
def test_a_commit_is_searched_at_the_depths_of_its_files(file: str, depths: list[str]) -> None:
    assert [one["args"][1] for one in HOOKS if re.search(one["files"], file)] == depths


def unknown(action: dict[str, Any]) -> set[str]:
    """Inputs, outputs and steps that an action asks for and nobody declares, and inputs that it
    declares and asks for nowhere."""
    text = json.dumps(action)
    inputs = set(re.findall(r"inputs\.([\w-]+)", text))
    steps = action["runs"]["steps"]
    written = {
        f"{step['id']}.{name}"
        for step in steps
        if "id" in step
        for name in re.findall(r'echo "([\w-]+)=.*>> "\$GITHUB_OUTPUT"', step["run"])
    }
    read = {".".join(one) for one in re.findall(r"steps\.([\w-]+)\.outputs\.([\w-]+)", text)}
    return (inputs ^ action["inputs"].keys()) | (read - written)


def test_the_action_asks_for_what_is_declared() -> None:
    assert unknown(ACTION) == set()
    assert ACTION["runs"]["using"] == "composite"
    for step in STEPS.values():
        assert ("uses" in step) != ("run" in step and "shell" in step)
        if "run" in step:
            assert "${{" not in step["run"]  # an input in a script would be run as one
            subprocess.run(["bash", "-n"], input=step["run"], text=True, check=True)


def test_an_input_and_an_output_that_nobody_declares_are_noticed() -> None:
    step = {"id": "a", "run": 'echo "b=1" >> "$GITHUB_OUTPUT"', "if": "steps.a.outputs.c"}
    action = {"inputs": {"unused": {}}, "runs": {"steps": [step, {"with": "inputs.gone"}]}}
    assert unknown(action) == {"unused", "gone", "a.c"}


@pytest.fixture
def runner(tmp_path: Path) -> Any:
    """Runs a step as GitHub's runner does: by bash -e, inputs and outputs through its variables.
    In the place of cacheproof is a script that writes what it was asked."""
    program = tmp_path / "action" / ".venv" / "bin" / "cacheproof"
    program.parent.mkdir(parents=True)
    program.write_text('#!/bin/bash\nprintf "%s\\n" "$@" > "$ASKED"\nexit "$CODE"\n')
    program.chmod(0o755)
    outputs, asked = tmp_path / "outputs", tmp_path / "asked"

    def run(name: str, code: int = 0, **inputs: str) -> tuple[int, str, dict[str, str], list[str]]:
        """The exit code, what was printed, the outputs, and the arguments of cacheproof."""
        given = {one: said["default"] for one, said in ACTION["inputs"].items()} | inputs
        variables = {"runner.temp": str(tmp_path), "steps.search.outputs.results": str(tmp_path)}
        variables |= {f"inputs.{one.replace('_', '-')}": value for one, value in given.items()}
        step = STEPS[name]
        environment = {
            variable: re.sub(r"\$\{\{ (\S+) \}\}", lambda one: variables[one[1]], value)
            for variable, value in step["env"].items()
        }
        environment |= {
            "GITHUB_ACTION_PATH": str(tmp_path / "action"),
            "GITHUB_OUTPUT": str(outputs),
            "ASKED": str(asked),
            "CODE": str(code),
        }
        ran = subprocess.run(
            ["bash", "--noprofile", "--norc", "-e", "-o", "pipefail", "-c", step["run"]],
            env={**os.environ, **environment},
            cwd=tmp_path,
            capture_output=True,
            text=True,
            check=False,
        )
        written = outputs.read_text().splitlines() if outputs.exists() else []
        words = asked.read_text().splitlines() if asked.exists() else []
        return ran.returncode, ran.stdout, dict(one.split("=", 1) for one in written), words

    return run


def test_the_search_asks_what_the_command_line_takes(runner: Any, tmp_path: Path) -> None:
    code, _, outputs, words = runner("Search")
    assert (code, outputs["exit-code"]) == (0, "0")
    assert words[:5] == ["fuzz", "--target", "path:.", "--seeds", "0:100"]
    parse(words)
    given = {"depth": "manager", "seconds": "60", "args": "--against none --verbose"}
    _, _, _, words = runner("Search", target="path:a folder", seeds="", **given)
    assert words[:7] == [
        "fuzz",
        "--target",
        "path:a folder",
        "--depth",
        "manager",
        "--seconds",
        "60",
    ]
    assert words[-3:] == ["--against", "none", "--verbose"]
    parse(words)
    assert outputs["results"] == str(tmp_path / "cacheproof-results")


@pytest.mark.parametrize(
    ("code", "differences", "comes_to"),
    [
        (0, "warn", 0),
        (1, "warn", 1),
        (2, "warn", 2),
        (3, "warn", 3),
        (4, "warn", 0),
        (4, "fail", 4),
    ],
)
def test_each_exit_code_comes_to_what_the_page_says(
    runner: Any, code: int, differences: str, comes_to: int
) -> None:
    ended, printed, outputs, _ = runner("Search", code, differences=differences)
    assert (ended, outputs["exit-code"]) == (comes_to, str(code))
    assert ("::warning::" in printed) is (code != comes_to)


def test_a_word_that_is_none_of_the_two_ends_before_the_search(runner: Any) -> None:
    code, printed, _, words = runner("Search", differences="ignore")
    assert (code, words) == (2, [])
    assert printed == "::error::differences: ignore; expected warn or fail\n"


@pytest.mark.skipif(shutil.which("jq") is None, reason="no jq, which GitHub's machines have")
def test_listed_faults_are_left_out_of_what_becomes_alerts(runner: Any, tmp_path: Path) -> None:
    listed, new = {"ruleId": "EC-6", "suppressions": [{"kind": "external"}]}, {"ruleId": "EC-7"}
    document = {"version": "2.1.0", "runs": [{"results": [listed, new]}, {"results": []}]}
    (tmp_path / "cacheproof.sarif").write_text(json.dumps(document))
    code, _, outputs, _ = runner("Leave out what is listed")
    assert code == 0
    left = json.loads(Path(outputs["file"]).read_text())
    assert left == {"version": "2.1.0", "runs": [{"results": [new]}, {"results": []}]}


def test_where_the_search_wrote_no_sarif_nothing_is_uploaded(runner: Any) -> None:
    assert runner("Leave out what is listed")[2] == {}
