"""An engine of a release with its ECCPUConnector, driven by lines: `PYTHON FILE JOB`.

JOB is JSON: `models`, the folder of tiny models; `rows`, how many rows the region holds, or null
for an engine without connector; perhaps `pins`. A line of the standard input is a list of prompts,
each a list of the names of its pictures, or null, which resets the engine's own encoder cache. The
answer is a line: `tokens` of each prompt, `encoded` and `loaded` items, and `idle`, how many steps
of at most IDLE_MAX the engine core makes after the last answer; or `ended`, what ended the engine.
"""

import json
import sys
from pathlib import Path
from typing import Any

sys.path.append(str(Path(__file__).parents[2] / "benchmarks"))

import beside
from engine_with_store import MODEL_LEN, asked

IDLE_MAX = 1000
WIDTH_BYTES = 4


def main() -> None:
    beside.make_importable()
    engine = _made(json.loads(sys.argv[1]))
    core = engine.llm_engine.engine_core.engine_core
    counts = _counted(core)
    print("ready", flush=True)
    for line in sys.stdin:
        prompts = json.loads(line)
        if prompts is None:
            engine.llm_engine.reset_encoder_cache()
            continue
        counts.update(encoded=0, loaded=0)
        try:
            answers = engine.generate(*asked(prompts), use_tqdm=False)
        except (RuntimeError, AssertionError) as error:
            print(json.dumps({"ended": f"{type(error).__name__}: {error}", **counts}), flush=True)
            return
        tokens = [list(map(int, answer.outputs[0].token_ids)) for answer in answers]
        print(json.dumps({"tokens": tokens, **counts, "idle": _idle(core)}), flush=True)


def _idle(core: Any) -> int:
    """How many steps the core makes although there is no request, as its own loop would."""
    for step in range(IDLE_MAX):
        if not core.scheduler.has_requests():
            return step
        core.step_fn()
    return IDLE_MAX


def _counted(core: Any) -> dict[str, int]:
    counts = {"encoded": 0, "loaded": 0}
    schedule = core.scheduler.schedule

    def counting(*given: Any, **named: Any) -> Any:
        step = schedule(*given, **named)
        counts["encoded"] += sum(map(len, step.scheduled_encoder_inputs.values()))
        counts["loaded"] += len(getattr(step.ec_connector_metadata, "loads", ()))
        return step

    core.scheduler.schedule = counting
    return counts


def _made(job: Any) -> Any:
    from vllm import LLM
    from vllm.config.ec_transfer import ECTransferConfig

    from cacheproof.gpu_runner import tiny_models

    directory = tiny_models.ensure("llava", Path(job["models"]))
    width = json.loads((directory / "config.json").read_text())["text_config"]["hidden_size"]
    transfer = {}
    if job["rows"] is not None:
        transfer["ec_transfer_config"] = ECTransferConfig(
            ec_connector="OnCpu",
            ec_connector_module_path="cpu_connector",
            ec_role="ec_both",
            ec_connector_extra_config={
                "ec_cpu_bytes": job["rows"] * width * WIDTH_BYTES,
                "pins": job.get("pins", False),
            },
        )
    return LLM(
        model=str(directory),
        dtype="float32",
        seed=0,
        enforce_eager=True,
        block_size=32,
        max_model_len=MODEL_LEN,
        max_num_seqs=4,
        max_num_batched_tokens=48,
        num_gpu_blocks_override=16,
        async_scheduling=False,
        enable_prefix_caching=False,
        disable_log_stats=True,
        limit_mm_per_prompt={"image": 4},
        **transfer,
    )


if __name__ == "__main__":
    main()
