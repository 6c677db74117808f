"""What the runner answers on a GPU, beside what it answers on the CPU: every token.

    .venv/bin/python benchmarks/devices.py --python PYTHON

A workload is an engine-depth trace: a handful of requests under one configuration. The reference
decides, the runner executes with a tiny model in float32, and what rows and slots each read held
is looked at on both devices. Exits with 1 where a token differs, or a contract breaks on one device
alone. With `--device cpu` the CPU is held against itself.
"""

import json
import os
import sys
import tempfile
from collections import Counter
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import beside
import torch_side

if TYPE_CHECKING:
    from cacheproof.differential.traces.records import TraceResult
    from cacheproof.differential.traces.trace import Trace

    Ran = tuple[TraceResult, set[str]]  # the records of a trace, and the contracts that they break

MODELS = ("llava", "qwen2_5_vl", "whisper")


def main() -> None:
    parser = torch_side.arguments(__doc__, device="cuda")
    parser.add_argument("--workloads", type=int, default=100, help="of each model")
    parser.add_argument("--fault", help="planted in the runner on the device: it must be seen")
    chosen = parser.parse_args()
    told = torch_side.run(__file__, chosen)
    print(f"{chosen.workloads} workloads of each model; {next(told)}\n")
    print("| model | steps | preemptions | evictions | tokens | equal | nearly tied | log "
          "probabilities apart, at most | rows and slots of known origin |")  # fmt: skip
    print("|---|---|---|---|---|---|---|---|---|")
    failed = False
    for line in told:
        counts = Counter(line["counts"])
        names = ("steps", "preemptions", "evictions", "tokens", "equal tokens", "ties")
        looked_at = sum(counts[f"{kind} whose origin was looked at"] for kind in ("rows", "slots"))
        columns = [
            line["model"],
            *(f"{counts[name]:,}" for name in names),
            f"{line['logprob_apart']:.1e}",
            f"{looked_at:,}",
        ]
        print(f"| {' | '.join(columns)} |", flush=True)
        for sentence in line["wrong"]:
            print(f"{line['model']}, {sentence}", file=sys.stderr)
        failed |= bool(line["wrong"])
    raise SystemExit(int(failed))


def inside(job: Any) -> None:
    """Runs where torch is: one line of JSON for each model."""
    import torch

    beside.make_importable()
    device = torch_side.device(job["device"])
    torch.backends.cudnn.allow_tf32 = False  # float32 is meant; convolutions round it otherwise
    print(json.dumps(torch_side.machine(job["device"])), flush=True)
    with tempfile.TemporaryDirectory() as models:
        for model in MODELS:
            print(json.dumps(hold(model, str(device), job, models)), flush=True)


def hold(model: str, device: str, job: Any, models: str) -> dict[str, Any]:
    """The workloads of a model on both devices: what was compared, and each one that is wrong."""
    from outputs import Tally

    from cacheproof.differential.generators.engine import engine_trace
    from cacheproof.differential.judges import lockstep

    on_cpu, on_device = runs_on("cpu", None, models), runs_on(device, job["fault"], models)
    tally, wrong = Tally(), []
    for seed in range(job["workloads"]):
        trace = engine_trace(seed, model)  # type: ignore[arg-type]
        (ours, kept), (theirs, broken) = on_cpu(trace), on_device(trace)
        for contract in sorted(broken ^ kept):
            wrong.append(f"seed {seed}: {contract} breaks on one device alone")
        difference = lockstep.compare(ours, theirs)
        if difference is not None:
            wrong.append(f"seed {seed}: {difference.sentence}")
        else:
            tally.add(ours, theirs)
    return {
        "model": model,
        "counts": tally.counts,
        "logprob_apart": tally.logprob_apart,
        "wrong": wrong,
    }


def runs_on(device: str, fault: str | None, models: str) -> Callable[["Trace"], "Ran"]:
    """The runner on a device, with a fault or none, its tiny models in a folder."""
    import msgspec

    from cacheproof.differential.judges.examination import judge_of
    from cacheproof.differential.judges.rare_states import Reachability
    from cacheproof.differential.targets.host.engine.limits import MODELS_SETTING
    from cacheproof.differential.targets.host.engine.runner import RunnerHost
    from cacheproof.differential.targets.host.managers.media_hash_alone import REFERENCE_SETTING
    from cacheproof.differential.targets.reference import protocol_of
    from cacheproof.differential.traces.records import TraceResult
    from cacheproof.reference.semantics import Semantics

    ideal = Semantics.ideal()
    os.environ |= {MODELS_SETTING: models, REFERENCE_SETTING: json.dumps(ideal.flags)}
    release, protocol = RunnerHost(device=device), protocol_of(ideal)

    def run(trace: "Trace") -> "Ran":
        (answer,) = release.run({"traces": [msgspec.to_builtins(trace)], "fault": fault})
        result = msgspec.json.decode(msgspec.json.encode(answer), type=TraceResult)
        if result.illegal is not None:
            raise SystemExit(f"{device} refuses a workload: {result.illegal}")
        judge = judge_of(trace, None, protocol, result.capacity, Reachability())
        for number, record in enumerate(result.records):
            judge.judge(number, trace.events[number], record)
        return result, set(judge.violations)

    return run


if __name__ == "__main__":
    if sys.argv[1:2] == ["inside"]:
        inside(json.loads(sys.argv[2]))
    else:
        main()
