"""Reviews of changes whose worth is known: mends of listed faults, mends that are subtly wrong, and
neighbouring releases.

    .venv/bin/python benchmarks/reviews.py --pages reviews

A change replaces expressions of a release in a copy of its tree. Prints a row for each change,
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
from cacheproof.reference.releases import NEWEST

RELEASE = NEWEST
SEEDS = "0:4"
CORE = "vllm/v1/core"
PAIRS = (("0.28.0", "0.29.0"), ("0.31.0", "0.32.0"), ("0.32.0", NEWEST))


class Edit(NamedTuple):
    """An expression or a statement of a function, as Python writes it, and what stands in its
    place. A function is named alone, or behind its class's name. Where it has the expression `of`
    times, `which` of them, from 1."""

    path: str
    function: str
    expression: str
    instead: str
    which: int = 1
    of: int = 1


class Change(NamedTuple):
    """Edits under a name, what they are for, and functions that the module of the first gets."""

    name: str
    words: str
    edits: tuple[Edit, ...]
    functions: str = ""


HANDED_OVER = '''

def take_back(scheduler, request, encodes):
    """Forget what a step was to encode for a request, and note for whom else it may be needed. The
    compute budget stays spent."""
    noted = scheduler.__dict__.setdefault("taken_back", set())
    for number in encodes.pop(request.request_id, ()):
        noted.add(request.mm_features[number].identifier)


def settle(scheduler, encodes, scheduled):
    """Have each noted item encoded for a request of the step that holds it, or evict its entry.
    Returns the evicted."""
    manager = scheduler.encoder_cache_manager
    cached = getattr(manager, "cached", {})  # an encoder-decoder's manager shares no entry
    requests = {name: scheduler.requests[name].mm_features for name in scheduled}
    encoded = {requests[name][n].identifier for name, some in encodes.items() for n in some}
    noted = scheduler.__dict__.pop("taken_back", set()) - encoded
    for key in sorted(noted & cached.keys()):
        if holder := min(cached[key] & requests.keys(), default=None):
            number = [one.identifier for one in requests[holder]].index(key)
            encodes.setdefault(holder, []).append(number)
        elif key in manager.freeable:
            del cached[key], manager.num_embeds_by_hash[key]
            manager.num_free_slots += manager.freeable.pop(key)
            manager.freed.append(key)
    return manager.get_freed_mm_hashes()
'''
"""A mend of phantom-entry."""


_SCHEDULE = (f"{CORE}/sched/scheduler.py", "schedule")
_TAKEN_BACK = (*_SCHEDULE, "scheduled_encoder_inputs.pop(preempted_req_id, None)")
_TAKE_BACK = Edit(*_TAKEN_BACK, "take_back(self, preempted_req, scheduled_encoder_inputs)")
_SETTLE = Edit(
    *_SCHEDULE,
    "self.encoder_cache_manager.get_freed_mm_hashes()",
    "settle(self, scheduled_encoder_inputs, num_scheduled_tokens)",
)
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
        "a request of the step that holds the entry encodes it; where there is none, it is evicted",
        (_TAKE_BACK, _SETTLE),
        HANDED_OVER,
    ),
    Change(
        "phantom-entry, evicted alone",
        "the same, without the request that has hit the entry meanwhile",
        (_TAKE_BACK, _SETTLE),
        HANDED_OVER.replace("cached[key] & requests.keys()", "()"),
    ),
    Change(
        "phantom-entry, encode kept",
        "the step still encodes the item of the request that is preempted in it",
        (Edit(*_TAKEN_BACK, "None"),),
    ),
    Change(
        "phantom-entry, another victim",
        "a request of whose items this step encodes one is preempted last",
        (
            Edit(
                *_SCHEDULE,
                "(r.priority, r.arrival_time)",
                "(r.request_id not in scheduled_encoder_inputs, r.priority, r.arrival_time)",
            ),
        ),
    ),
    Change(
        "stripped-item, mended",
        "a new request is sent with the data of all its items",
        (Edit(*_SENT, "request.mm_features"),),
    ),
    Change(
        "stripped-item, after a preemption",
        "the same once it was preempted; the first runner's workers were told before",
        (
            Edit(
                *_SENT,
                "strip_covered_mm_data(request.mm_features, 0 if request.num_preemptions else "
                "request.num_computed_tokens, uses_mrope=uses_mrope)",
            ),
        ),
    ),
    Change(
        "a manager, put otherwise",
        "a condition of `can_allocate` in other words",
        (Edit(*_ROOM, "not num_embeds <= self.num_freeable_slots"),),
    ),
    Change(
        "a manager, off by one",
        "the same, with one embedding more than can be freed",
        (Edit(*_ROOM, "not num_embeds - 1 <= self.num_freeable_slots"),),
    ),
)


def edited(source: str, edit: Edit) -> str:
    """A module's text with the expression, or the statement, replaced.

    Raises:
        ValueError: the function does not have it exactly as often as the edit says.
    """
    found = [
        node
        for function in _functions(ast.parse(source), edit.function)
        for node in ast.walk(function)
        if isinstance(node, ast.expr | ast.stmt) and not isinstance(node, ast.Expr)
        if ast.unparse(node) == edit.expression
    ]
    if len(found) != edit.of:
        often = "once" if edit.of == 1 else f"{edit.of} times"
        raise ValueError(
            f"{edit.path}: {edit.function} has {edit.expression!r} {len(found)} times, not {often}"
        )
    node = sorted(found, key=lambda one: (one.lineno, one.col_offset))[edit.which - 1]
    segment = ast.get_source_segment(source, node)
    assert segment is not None
    lines = source.splitlines(keepends=True)
    start = sum(len(line.encode()) for line in lines[: node.lineno - 1]) + node.col_offset
    data = source.encode()
    return (data[:start] + edit.instead.encode() + data[start + len(segment.encode()) :]).decode()


def _functions(module: ast.Module, name: str) -> Iterator[ast.FunctionDef]:
    """Those of a module, or of its classes, that have the name, alone or behind their class's."""
    owners: list[ast.Module | ast.ClassDef] = [module]
    owners += [one for one in ast.walk(module) if isinstance(one, ast.ClassDef)]
    for owner in owners:
        of_class = f"{owner.name}." if isinstance(owner, ast.ClassDef) else ""
        for one in owner.body:
            if isinstance(one, ast.FunctionDef) and name in (one.name, f"{of_class}{one.name}"):
                yield one


def write_copy(change: Change, folder: Path) -> None:
    """A copy of the release's tree with the change, for the target `path:FOLDER`."""
    tree = releases.install(RELEASE, report=print).tree
    shutil.copytree(tree, folder, ignore=shutil.ignore_patterns("__pycache__"))
    for edit in change.edits:
        file = folder / edit.path
        file.write_text(edited(file.read_text(), edit))
    with open(folder / change.edits[0].path, "a") as module:
        module.write(change.functions)


def reviewed(base: str, head: str, pages: Path, name: str, *options: str) -> dict[str, Any]:
    """Review two targets; the page and the JSON are kept under a name."""
    stem = name.replace(", ", "-").replace(" ", "-")
    told = pages / f"{stem}.json"
    command = [sys.executable, "-m", "cacheproof", "review", "--base", base, "--head", head]
    ended = subprocess.run(
        [*command, "--json", str(told), *options], capture_output=True, text=True, check=False
    )
    if ended.returncode in (2, 130):
        raise RuntimeError(f"{base} and {head}: {ended.stderr}")
    (pages / f"{stem}.md").write_text(ended.stdout)
    found: dict[str, Any] = json.loads(told.read_text())
    return found


def row(name: str, said: dict[str, Any]) -> str:
    """What a review said, as a row of docs/review.md."""
    proofs = said["proofs"]
    gained = sum(one["head"] == "holds" != one["base"] for one in proofs["changes"])
    lost = sum(one["base"] == "holds" != one["head"] for one in proofs["changes"])
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
                write_copy(change, folder)
                said = reviewed(f"vllm@{RELEASE}", f"path:{folder}", pages, change.name, *options)
                yield row(change.name, said)
    for base, head in PAIRS:
        name = f"{base} to {head}"
        if only in (None, name):
            yield row(name, reviewed(f"vllm@{base}", f"vllm@{head}", pages, name, *options))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pages", type=Path, default=Path("reviews"))
    parser.add_argument("--only", help="the name of a change, or such as '0.31.0 to 0.32.0'")
    parser.add_argument("--seeds", default=SEEDS)
    parser.add_argument("--workers", default="2")
    arguments = parser.parse_args()
    arguments.pages.mkdir(parents=True, exist_ok=True)
    options = ["--seeds", arguments.seeds, "--workers", arguments.workers]
    for line in rows(arguments.pages, arguments.only, options):
        print(line, flush=True)


if __name__ == "__main__":
    main()
