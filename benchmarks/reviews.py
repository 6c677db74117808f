"""Reviews of changes whose worth is known: mends of listed faults, mends that are subtly wrong, and
neighbouring releases.

    .venv/bin/python benchmarks/reviews.py --pages reviews

A change replaces expressions of a release in a copy of its tree. Prints a row for each change,
and keeps its page and its JSON in the folder. docs/how-to/review.md has the rows.
"""

import argparse
import json
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from cacheproof.differential.provision import releases
from cacheproof.differential.texts import mends
from cacheproof.differential.texts.edits import Edit, edited
from cacheproof.reference.releases import NEWEST

RELEASE = NEWEST
SEEDS = "0:4"
CORE = "vllm/v1/core"
PAIRS = (("0.28.0", "0.29.0"), ("0.31.0", "0.32.0"), ("0.32.0", NEWEST))


class Change(NamedTuple):
    """Edits under a name, what they are for, and functions that the module of the first gets."""

    name: str
    words: str
    edits: tuple[Edit, ...]
    functions: str = ""


def _mend(name: str) -> mends.MendText:
    text = mends.mends()[name].for_release(RELEASE)
    assert text is not None
    return text


_SCHEDULE = (f"{CORE}/sched/scheduler.py", "schedule")
_TAKEN_BACK = (*_SCHEDULE, "scheduled_encoder_inputs.pop(preempted_req_id, None)")
_PHANTOM, _STRIPPED = (_mend(name) for name in ("phantom-entry", "stripped-item"))
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
        _PHANTOM.edit,
        _PHANTOM.functions,
    ),
    Change(
        "phantom-entry, evicted alone",
        "the same, without the request that has hit the entry meanwhile",
        _PHANTOM.edit,
        _PHANTOM.functions.replace("if one.request_id in holders", "if False"),
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
        _STRIPPED.edit,
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
    """What a review said, as a row of docs/how-to/review.md."""
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
