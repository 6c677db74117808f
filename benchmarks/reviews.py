"""Reviews of changes whose worth is known: mends of listed faults, mends that are subtly wrong, and
neighbouring releases.

    .venv/bin/python benchmarks/reviews.py --pages reviews

A change replaces one expression of a release in a copy of its tree. Prints a row for each change,
and keeps its page and its JSON in the folder. docs/review.md has the rows.
"""

import argparse
import ast
import json
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from cacheproof.differential.targets import releases

RELEASE = "0.33.0"
SEEDS = "0:10"
CORE = "vllm/v1/core"
PAIRS = (("0.28.0", "0.29.0"), ("0.31.0", "0.32.0"), ("0.32.0", "0.33.0"))


class Edit(NamedTuple):
    """An expression of a function, as Python writes it, and what stands in its place."""

    path: str
    function: str
    expression: str
    instead: str


class Change(NamedTuple):
    """An edit under a name, and what it is for."""

    name: str
    edit: Edit
    words: str


_SCHEDULER = (f"{CORE}/sched/scheduler.py", "schedule")
_TAKEN_BACK = (*_SCHEDULER, "scheduled_encoder_inputs.pop(preempted_req_id, None)")
_SENT = (
    f"{CORE}/sched/output.py",
    "from_request",
    "strip_covered_mm_data(request.mm_features, request.num_computed_tokens, "
    "uses_mrope=uses_mrope)",
)
_ROOM = (f"{CORE}/encoder_cache_manager.py", "can_allocate", "num_embeds > self.num_freeable_slots")
CHANGES = (
    Change(
        "phantom-entry, mended",
        Edit(*_TAKEN_BACK, "None"),
        "a step still encodes the item of a request that is preempted in it",
    ),
    Change(
        "phantom-entry, mended wrongly",
        Edit(*_TAKEN_BACK, "scheduled_encoder_inputs.get(preempted_req_id)"),
        "the same, and the step gets the compute budget back that it spends",
    ),
    Change(
        "phantom-entry, mended by choice",
        Edit(
            *_SCHEDULER,
            "(r.priority, r.arrival_time)",
            "(r.request_id not in scheduled_encoder_inputs, r.priority, r.arrival_time)",
        ),
        "a request of whose items this step encodes one is preempted last",
    ),
    Change(
        "stripped-item, mended",
        Edit(*_SENT, "request.mm_features"),
        "a new request is sent with the data of all its items",
    ),
    Change(
        "stripped-item, mended wrongly",
        Edit(
            *_SENT,
            "strip_covered_mm_data(request.mm_features, 0 if request.num_preemptions else "
            "request.num_computed_tokens, uses_mrope=uses_mrope)",
        ),
        "the same, once it was preempted: the first runner's workers were told before",
    ),
    Change(
        "a manager, put otherwise",
        Edit(*_ROOM, "not num_embeds <= self.num_freeable_slots"),
        "the same condition in other words",
    ),
    Change(
        "a manager, put otherwise wrongly",
        Edit(*_ROOM, "not num_embeds - 1 <= self.num_freeable_slots"),
        "one embedding more than can be freed is admitted",
    ),
)


def edited(source: str, edit: Edit) -> str:
    """A module's text with the expression replaced.

    Raises:
        ValueError: the function does not have it exactly once.
    """
    found = [
        node
        for function in ast.walk(ast.parse(source))
        if isinstance(function, ast.FunctionDef) and function.name == edit.function
        for node in ast.walk(function)
        if isinstance(node, ast.expr) and ast.unparse(node) == edit.expression
    ]
    if len(found) != 1:
        raise ValueError(
            f"{edit.path}: {edit.function} has {edit.expression!r} {len(found)} times, not once"
        )
    segment = ast.get_source_segment(source, found[0])
    assert segment is not None
    lines = source.splitlines(keepends=True)
    node = found[0]
    start = sum(len(line.encode()) for line in lines[: node.lineno - 1]) + node.col_offset
    data = source.encode()
    return (data[:start] + edit.instead.encode() + data[start + len(segment.encode()) :]).decode()


def write_copy(edit: Edit, folder: Path) -> None:
    """A copy of the release's tree with the edit, for the target `path:FOLDER`."""
    tree = releases.install(RELEASE, report=print).tree
    shutil.copytree(tree, folder, ignore=shutil.ignore_patterns("__pycache__"))
    file = folder / edit.path
    file.write_text(edited(file.read_text(), edit))


def reviewed(base: str, head: str, pages: Path, name: str, *options: str) -> dict[str, Any]:
    """Review two targets; the page and the JSON are kept under a name."""
    stem = pages / name.replace(", ", "-").replace(" ", "-")
    told = stem.with_suffix(".json")
    command = [sys.executable, "-m", "cacheproof", "review", "--base", base, "--head", head]
    ended = subprocess.run(
        [*command, "--json", str(told), *options], capture_output=True, text=True, check=False
    )
    if ended.returncode in (2, 130):
        raise RuntimeError(f"{base} and {head}: {ended.stderr}")
    stem.with_suffix(".md").write_text(ended.stdout)
    found: dict[str, Any] = json.loads(told.read_text())
    return found


def row(name: str, said: dict[str, Any]) -> str:
    """What a review said, as a row of docs/review.md."""
    proofs = said["proofs"]
    gained = sum(one["head"] == "holds" for one in proofs["changes"])
    lost = sum(one["base"] == "holds" for one in proofs["changes"])
    proved = f"{proofs['proved_on_both']} kept, {gained} gained, {lost} lost"
    cells = (
        name,
        str(said["exit_code"]),
        f"{said['parted']:,} of {said['traces']:,}",
        _named(said["mended"]),
        _named(said["brought"]),
        proved if proofs["classes"] else "read alike",
    )
    return f"| {' | '.join(cells)} |"


def _named(tallies: list[dict[str, Any]]) -> str:
    contracts: dict[str, list[str]] = {}
    for one in tallies:
        several = contracts.setdefault(one["fault"] or "not listed", [])
        if one["contract"] not in several:
            several.append(one["contract"])
    return ", ".join(f"{fault} ({' '.join(rules)})" for fault, rules in contracts.items())


def rows(pages: Path, only: str | None, options: list[str]) -> Iterator[str]:
    """A row for each change, then for each pair of releases."""
    yield "| change | exit code | traces that part | mends | brings | proofs |"
    yield "|---|--:|--:|---|---|---|"
    with tempfile.TemporaryDirectory() as scratch:
        for number, change in enumerate(CHANGES):
            if only in (None, change.name):
                folder = Path(scratch, str(number))
                write_copy(change.edit, folder)
                said = reviewed(f"vllm@{RELEASE}", f"path:{folder}", pages, change.name, *options)
                yield row(change.name, said)
    for base, head in PAIRS:
        name = f"{base} to {head}"
        if only in (None, name):
            yield row(name, reviewed(f"vllm@{base}", f"vllm@{head}", pages, name, *options))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pages", type=Path, default=Path("reviews"))
    parser.add_argument("--only", help="the name of a change, or such as '0.32.0 to 0.33.0'")
    parser.add_argument("--seeds", default=SEEDS)
    parser.add_argument("--workers", default="2")
    arguments = parser.parse_args()
    arguments.pages.mkdir(parents=True, exist_ok=True)
    options = ["--seeds", arguments.seeds, "--workers", arguments.workers]
    for line in rows(arguments.pages, arguments.only, options):
        print(line, flush=True)


if __name__ == "__main__":
    main()
