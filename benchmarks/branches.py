"""Which branches of a release's own scheduler and cache managers the traces take.

    .venv/bin/python benchmarks/branches.py --release 0.33.0 --seeds 0:600

The traces of every lane at manager and scheduler depth run on the release under coverage.py. A
branch that none of them takes belongs to a feature that no trace can ask for, where `REFUSED` says
so of its condition or of one around it, or it is listed, with the reason where one is known.
"""

import argparse
import ast
import json
import re
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

import beside

SCHEDULER = "vllm/v1/core/sched/scheduler.py"
CLASSES = {
    SCHEDULER: ("Scheduler",),
    "vllm/v1/core/sched/async_scheduler.py": ("AsyncScheduler",),
    "vllm/v1/core/encoder_cache_manager.py": ("EncoderCacheManager", "EncoderDecoderCacheManager"),
    "vllm/v1/core/kv_cache_manager.py": ("KVCacheBlocks", "KVCacheManager"),
}
BATCH = 50


class Reason(NamedTuple):
    """Why no trace takes a branch: what its function, or a condition on the way to it, says. It
    holds before release `before`."""

    text: str
    words: str
    before: str | None = None

    def covers(self, branch: "Branch", release: str) -> bool:
        from cacheproof.spec.versions import release_key

        if self.before is not None and release_key(release) >= release_key(self.before):
            return False
        said = (branch.function, *branch.conditions)
        return any(re.search(self.words, text, re.VERBOSE) for text in said)


REFUSED = (
    Reason(
        "encoder cache connectors that produce, count, or hear from their workers",
        r"ec_connector_stats | 'address' | ec_connector_output$",
    ),
    Reason(
        "KV connectors that produce, free at a time of their own, or report by request",
        r"""is_kv_producer | partial_tail | has_pending_block_frees | failed_recving
        | _handle_failed_recving | not\ isinstance\(self\.connector""",
    ),
    Reason(
        "loads over several groups, of parts of blocks, or put off",
        r"""divergent | hit_diverged | for_connector$ | truncate_computed_blocks
        | len\(self\.kv_cache_config\.kv_cache_groups\) | defer_load | deferred_loads""",
    ),
    Reason("resets of what a connector keeps", "reset_connector"),
    Reason("groups of other kinds", r"prefix_cacheable | AttentionSpec | retained_hit"),
    Reason(
        "Mamba alignment, copies of blocks",
        r"""mamba | zero | block_copies | cow_retained | boundary_state | ^pins$
        | take_new_block_ids$""",
    ),
    Reason("bounded prefix replay", "prefix_replay | window_loaded | replay_tokens"),
    Reason(
        "structured output",
        """structured_output | grammar | GRAMMAR | WAITING_FOR_FSM | _draft_token_ids_in_output
        | invalid_spec_tokens""",
    ),
    Reason(
        "several-module and parallel drafters, dynamic numbers of drafts",
        """prefill_lookahead | draft_slots | dynamic_sd | tokens_per_batch_size | eagle_block_drop
        | uses_draft_model""",
    ),
    Reason(
        "pooling, diffusion, auxiliary outputs, routed experts, encoder-only",
        "pool | diffusion | aux_output | routed_experts | is_mm_encoder_only",
    ),
    Reason(
        "data, pipeline and context parallelism, several engines",
        r"""use_pp | next_decode_eligible | is_xpu | hash_block_size\ is\ None | [dp]cp_
        | finished_req_ids_dict | \bfinished_req_ids$ | finished_req_ids\.items
        | engine_core_outputs\.get""",
    ),
    Reason("data parallelism", "defer_prefills", before="0.33.0"),
    Reason(
        "statistics, logging, events",
        r"""stats\b | metrics | logging | publisher | perf_ | logprobs | sampling_mask | num_nans
        | ^events | connector_events | report_mode | _usage$ | kv_fetch | prev_stage
        | remote_prefill | ^stage\ is""",
    ),
    Reason(
        "what an engine asks between steps",
        r"\.(get_num_unfinished_requests | has_finished_requests | shutdown)$",
    ),
    Reason("encoder-decoder models, refused before 0.13.0", "is_encoder_decoder", "0.13.0"),
    Reason("drafts, not modelled before 0.11.1", "spec_token | speculative | draft", "0.11.1"),
    Reason(
        "running requests that start over, not modelled before 0.27.0",
        "reset_running_requests | ^self.running$ | discard",
        "0.27.0",
    ),
)
"""Features that docs/explain/scheduler.md refuses."""

GUARDS = (
    Reason("an error of the release's own", r"RequestStatus\.PREEMPTED$ | policy\ =="),
    Reason(
        "its callers see to it",
        r"""^num_new_tokens\ ==\ 0\ or | ^mm_hash\ not\ in\ self\.cached$
        | ^request\.num_computed_tokens\ >\ 0$ | ^max_\w+\ is\ None$
        | ^num_new_tokens\ ==\ 0(\ and|$) | ^blocks$ | ^self\.connector\ is\ not\ None$
        | ^self\.ec_connector\ is\ not\ None$ | WAITING_FOR_STREAMING_REQ$""",
    ),
    Reason("another manager in the place of the scheduler's own", "manager_cls_obj"),
    Reason("a scheduler is told of such a model once it is made", r"^self\.is_encoder_decoder$"),
    Reason("takes three steps in flight", r"num_stale_output_tokens .* not\ request\.drop"),
    Reason("several requests, all or unknown ones are ended at once", r"\.finish_requests$"),
)
"""Branches of the modelled surface that are known not to be taken, and why."""


class Branch(NamedTuple):
    """An arc between two lines of a function, and what it depends on: the conditions around it,
    its own one last."""

    function: str
    line: int
    to: int
    conditions: tuple[str, ...]

    def reason(self, reasons: Sequence[Reason], release: str) -> str | None:
        """The first of these reasons that covers it."""
        return next((one.text for one in reasons if one.covers(self, release)), None)


def main() -> None:
    import msgspec

    from cacheproof.differential.lanes.all_lanes import LANES
    from cacheproof.reference.releases import NEWEST

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--release", default=NEWEST)
    parser.add_argument("--seeds", default="0:600", help="of each lane; default: %(default)s")
    options = parser.parse_args()
    lanes = [lane for lane in LANES.values() if lane.depth in ("manager", "scheduler")]
    seeds = range(*map(int, options.seeds.split(":")))
    traces = [lane.trace(seed, options.release) for lane in lanes for seed in seeds]
    coverage = find_spec("coverage")
    assert coverage is not None
    given = {"library": str(Path(str(coverage.origin)).parents[1]), "traces": traces}
    (taken,) = beside.run(__file__, options.release, given=msgspec.to_builtins(given))
    print(f"vllm@{options.release}; lanes: {', '.join(lane.name for lane in lanes)}; "
          f"seeds {options.seeds} of each\n")  # fmt: skip
    report(taken, options.release)


def report(functions: dict[str, Any], release: str) -> None:
    """Print a line for each function, and each branch that no trace takes."""
    print("| function | branches | of refused features only | to take | taken |")
    print("|---|---|---|---|---|")
    sums = Counter[str]()
    missed: list[Branch] = []
    refusals = Counter[str]()
    for name, function in functions.items():
        refused = Counter[str]()
        for branch in (Branch(*fields) for fields in function["missing"]):
            if feature := branch.reason(REFUSED, release):
                refused[feature] += 1
            else:
                missed.append(branch)
        here = Counter(all=function["branches"], refused=refused.total(), taken=function["taken"])
        sums += here
        refusals += refused
        print(f"| {name} | {_columns(here)} |")
    print(f"| **all** | {_columns(sums)} |\n")
    for feature, number in refusals.most_common():
        print(f"- {number} of refused features only: {feature}")
    print(f"\nNot taken: {len(missed)}\n")
    for branch in missed:
        print(f"- {branch.function}, line {branch.line} to {branch.to}: "
              f"`{branch.conditions[-1] if branch.conditions else ''}`: "
              f"{branch.reason(GUARDS, release) or 'not met'}")  # fmt: skip


def _columns(number: Counter[str]) -> str:
    there = number["all"] - number["refused"]
    share = f" ({number['taken'] / there:.0%})" if there else ""
    return f"{number['all']} | {number['refused']} | {there} | {number['taken']}{share}"


def inside(folder: str, traces: list[Any]) -> None:
    """Runs in the release's interpreter: one line of JSON."""
    beside.make_importable()
    sys.path.append(folder)
    import coverage
    import vllm

    root = Path(vllm.__file__).parents[1]
    measured = coverage.Coverage(
        branch=True, data_file=None, include=[str(root / p) for p in CLASSES]
    )
    measured.start()
    from host.release import ManagersHost

    release = ManagersHost()
    for first in range(0, len(traces), BATCH):
        release.run({"traces": traces[first : first + BATCH]})
    measured.stop()
    with tempfile.NamedTemporaryFile(suffix=".json") as file:
        measured.json_report(outfile=file.name)
        report = json.load(file)
    print(json.dumps(dict(_functions(root, report["files"]))), flush=True)


def _functions(root: Path, files: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    """Of each method of the classes: its branches, how many are taken, and which are not."""
    for path, classes in CLASSES.items():
        functions = next(
            (f["functions"] for name, f in files.items() if Path(name).match(path)), {}
        )
        tree = ast.parse((root / path).read_text()) if functions else ast.Module([], [])
        around = {f"{owner.name}.{method.name}": _conditions(method)
                  for owner in tree.body if isinstance(owner, ast.ClassDef)
                  for method in owner.body if isinstance(method, ast.FunctionDef)}  # fmt: skip
        for name, function in functions.items():
            summary = function["summary"]
            if name.partition(".")[0] in classes and summary["num_branches"]:
                yield (
                    name,
                    {
                        "branches": summary["num_branches"],
                        "taken": summary["covered_branches"],
                        "missing": [
                            (name, line, to, around[name].get(line, ()))
                            for line, to in function["missing_branches"]
                        ],
                    },
                )


def _conditions(method: ast.FunctionDef) -> dict[int, tuple[str, ...]]:
    """Of each line that decides: the conditions around it, and its own."""
    found: dict[int, tuple[str, ...]] = {}

    def visit(node: ast.AST, around: tuple[str, ...]) -> None:
        condition = getattr(node, "test", None) or getattr(node, "iter", None)
        if condition is not None and isinstance(node, ast.stmt | ast.comprehension):
            around = (*around, ast.unparse(condition))
            line = getattr(node, "lineno", condition.lineno)
            found.setdefault(line, around)
        for child in ast.iter_child_nodes(node):
            visit(child, around)

    visit(method, ())
    return found


if __name__ == "__main__":
    if sys.argv[1:2] == ["inside"]:
        given = json.load(sys.stdin)
        inside(given["library"], given["traces"])
    else:
        main()
