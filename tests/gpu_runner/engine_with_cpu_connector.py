"""An engine of a release with its ECCPUConnector, driven by lines: `PYTHON FILE JOB`.

JOB is JSON: `models`, the folder of tiny models; `rows`, how many rows the region holds, or null
for an engine without connector; perhaps `pins` (see cpu_connector.py), `settings` of the engine,
`triton`, a folder with Triton, whose interpreter is then the second model runner's, and `apart`,
for an engine core in a process of its own.

A line of the standard input is a list of requests, or null, which resets the engine's own encoder
cache. A request is `shows`, a list of names of pictures and numbers of text tokens, perhaps
`priority` (the lowest is first) and `after`, how many steps later it arrives. The answer is a
line: `tokens` of each request; `encoded` and `loaded`, how many items; `runner`, the module of the
model runner; `idle`, how many steps the engine core makes after the last answer, IDLE_MAX at most.
When the engine ends it is `ended`, by what, and `answered`, how many requests had their answer.
"""

import json
import os
import sys
from pathlib import Path
from typing import Any

sys.path.append(str(Path(__file__).parents[2] / "benchmarks"))

import beside
from engine_with_store import MODEL_LEN, pictures_of

IDLE_MAX = 1000
WIDTH_BYTES = 4


def main() -> None:
    beside.make_importable()
    job = json.loads(sys.argv[1])
    if job.get("triton"):
        _interpret(job["triton"])
    engine = _made(job)
    core = None if job.get("apart") else engine.engine_core.engine_core
    counts = {} if core is None else _counted(core)
    print("ready", flush=True)
    for line in sys.stdin:
        requests = json.loads(line)
        if requests is None:
            engine.reset_encoder_cache()
            continue
        counts.update(dict.fromkeys(counts, 0))
        tokens: dict[str, list[int]] = {}
        try:
            _answer(engine, requests, tokens)
        except Exception as error:
            ended = f"{type(error).__name__}: {error}"
            print(json.dumps({"ended": ended, "answered": len(tokens), **counts}), flush=True)
            return
        answer: dict[str, Any] = {"tokens": [tokens[str(n)] for n in range(len(requests))]}
        if core is not None:
            runner = core.model_executor.driver_worker.worker.model_runner
            answer |= {"runner": type(runner).__module__, "idle": _idle(core)}
        print(json.dumps(answer | counts), flush=True)


def _interpret(folder: str) -> None:
    """Make Triton importable, as vLLM wants to have it: with a backend for CPUs. Kernels are not
    compiled but interpreted, so that the backend is never asked for more than whether it is."""
    os.environ |= {"TRITON_INTERPRET": "1", "VLLM_USE_V2_MODEL_RUNNER": "1"}
    sys.path.append(folder)
    from triton.backends import backends

    class Cpu:
        class driver:  # noqa: N801
            @staticmethod
            def is_active() -> bool:
                return True

    backends["cpu"] = Cpu


def _answer(engine: Any, requests: list[Any], tokens: dict[str, list[int]]) -> None:
    """Step until every request has its answer."""
    step, left = 0, list(enumerate(requests))
    while left or engine.has_unfinished_requests():
        for number, request in list(left):
            if request.get("after", 0) <= step:
                left.remove((number, request))
                prompt, params = _asked(request["shows"])
                priority = request.get("priority", 0)
                engine.add_request(str(number), prompt, params, priority=priority)
        for output in engine.step():
            if output.finished:
                tokens[output.request_id] = list(map(int, output.outputs[0].token_ids))
        step += 1


def _asked(shows: list[str | int]) -> tuple[Any, Any]:
    from vllm import SamplingParams

    from cacheproof.gpu_runner import tiny_models

    tokens = [tiny_models.FIRST_TEXT_TOKEN_ID]
    names = []
    for number, shown in enumerate(shows):
        if isinstance(shown, int):
            tokens += [tiny_models.FIRST_TEXT_TOKEN_ID + number] * shown
        else:
            names.append(shown)
            tokens += [tiny_models.PLACEHOLDER_TOKEN_ID, tiny_models.FIRST_TEXT_TOKEN_ID + number]
    prompt: dict[str, Any] = {"prompt_token_ids": tokens}
    if names:
        prompt["multi_modal_data"] = {"image": pictures_of(names)}
        prompt["multi_modal_uuids"] = {"image": names}
    return prompt, SamplingParams(max_tokens=6, temperature=0, ignore_eos=True, detokenize=False)


def _idle(core: Any) -> int:
    """How many steps the core makes although no request is left, as its own loop would."""
    for step in range(IDLE_MAX):
        if not core.scheduler.has_requests():
            return step
        core.step_fn()
    return IDLE_MAX


def _counted(core: Any) -> dict[str, int]:
    """Counts of the items that steps encode and load, kept from now on."""
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
    from vllm import EngineArgs, LLMEngine
    from vllm.config.ec_transfer import ECTransferConfig

    from cacheproof.gpu_runner import tiny_models

    directory = tiny_models.ensure("llava", Path(job["models"]))
    width = json.loads((directory / "config.json").read_text())["text_config"]["hidden_size"]
    settings: dict[str, Any] = job.get("settings", {})
    if job["rows"] is not None:
        settings["ec_transfer_config"] = ECTransferConfig(
            ec_connector="OnCpu",
            ec_connector_module_path="cpu_connector",
            ec_role="ec_both",
            ec_connector_extra_config={
                "ec_cpu_bytes": job["rows"] * width * WIDTH_BYTES,
                "pins": job.get("pins", False),
            },
        )
    return LLMEngine.from_engine_args(
        EngineArgs(
            **{
                "model": str(directory),
                "dtype": "float32",
                "seed": 0,
                "enforce_eager": True,
                "block_size": 32,
                "max_model_len": MODEL_LEN,
                "max_num_seqs": 4,
                "max_num_batched_tokens": 48,
                "num_gpu_blocks_override": 16,
                "async_scheduling": False,
                "enable_prefix_caching": False,
                "disable_log_stats": True,
                "limit_mm_per_prompt": {"image": 4},
            }
            | settings
        )
    )


if __name__ == "__main__":
    main()
