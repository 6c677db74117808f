"""The engine of `recorder.py`, run in the interpreter of a release: for each seed on standard input
it answers 48 requests with pictures, and prints how long that took, how much processor time, in how
many steps, and what of it was the recorder's. In dense traffic these are 192, of 16 clients who
send their next one when they have an answer, with more pictures than the encoder cache holds."""

import json
import os
import random
import sys
import time
from collections import Counter
from pathlib import Path

sys.path.insert(0, str(Path(sys.argv[1]).parent))
KIND = sys.argv[2]
BLOCKS, LAYERS = map(int, sys.argv[3:5])
REQUESTS, PICTURES = (192, 60) if KIND == "dense" else (48, 30)
TOKENS = {"long": (200, 400), "dense": (4, 60)}.get(KIND, (8, 120))
RUNNING = 16
SCARCE = {
    "max_model_len": 400,
    "max_num_batched_tokens": 128,
    "num_gpu_blocks_override": 16,
    "scheduling_policy": "priority",
}
"""Memory for KV that hardly suffices, and urgent requests."""


def time_the_recorder(spent):
    """Have counted what the engine's thread spends in the recorder, and what the writer's does."""
    from cacheproof.differential.recording.engine import SchedulerRecording
    from cacheproof.differential.recording.ledger import ManagerRecorder
    from cacheproof.differential.recording.worker import WorkerRecording
    from cacheproof.differential.recording.writer import Writer

    def timed(kind, name, clock, what):
        method = getattr(kind, name)

        def call(*args, **kwargs):
            begin = clock()
            answer = method(*args, **kwargs)
            spent[what] += clock() - begin
            return answer

        setattr(kind, name, call)

    timed(SchedulerRecording, "_safely", time.perf_counter, "engine")
    timed(WorkerRecording, "_safely", time.perf_counter, "engine")
    timed(ManagerRecorder, "_log", time.perf_counter, "engine")
    timed(Writer, "_write_waiting", time.thread_time, "writer")


def answer(engine, prompts, params):
    """Answer requests, of which only so many are there as run."""
    waiting = list(zip(prompts, params, strict=True))
    there = 0
    while there or waiting:
        while waiting and there < RUNNING:
            engine.add_request(str(len(waiting)), *waiting.pop())
            there += 1
        there -= sum(output.finished for output in engine.step())


def main() -> None:
    results = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    import types

    package = sys.modules["cacheproof"] = types.ModuleType("cacheproof")
    package.__path__ = [sys.argv[1]]
    from PIL import Image
    from vllm import LLM, SamplingParams

    from cacheproof.differential.recording import plugin
    from cacheproof.gpu_runner.tiny_models import ensure

    plugin.register()  # as vLLM does where cacheproof is installed
    spent = Counter()
    if os.environ.get(plugin.FOLDER):
        time_the_recorder(spent)
    memory = {
        "max_model_len": 512,
        "max_num_batched_tokens": 512,
        "num_gpu_blocks_override": BLOCKS,
    }
    deeper = {"text_config": {"num_hidden_layers": LAYERS}}
    llm = LLM(
        model=str(ensure("llava", Path(os.environ["CACHEPROOF_MODELS"]))),
        dtype="float32",
        seed=0,
        enforce_eager=True,
        block_size=32,
        max_num_seqs=RUNNING,
        limit_mm_per_prompt={"image": 8},
        disable_log_stats=True,
        **({"load_format": "dummy", "hf_overrides": deeper} if LAYERS else {}),
        **(SCARCE if KIND == "scarce" else memory),
    )
    core = llm.llm_engine.engine_core.engine_core
    steps = 0
    execute = core.model_executor.execute_model

    def counted(*args, **kwargs):
        nonlocal steps
        steps += 1
        return execute(*args, **kwargs)

    core.model_executor.execute_model = counted
    pictures = [
        Image.frombytes("RGB", (8, 8), random.Random(seed).randbytes(192))
        for seed in range(PICTURES)
    ]
    print("{}", file=results, flush=True)
    for line in sys.stdin:
        number = random.Random(int(line))
        prompts, params = [], []
        for _ in range(REQUESTS):
            choice = random.Random(number.randrange(12)) if KIND == "scarce" else number
            count = choice.randint(1, 3)
            longest = 30 if TOKENS[1] < 200 else 8
            words = [f"t{choice.randint(0, 50)}" for _ in range(choice.randint(3, longest))]
            text = " <image> ".join([" ".join(words)] * (count + 1))
            data = {"image": [choice.choice(pictures) for _ in range(count)]}
            prompts.append({"prompt": text, "multi_modal_data": data})
            params.append(
                SamplingParams(temperature=0, max_tokens=number.randint(*TOKENS), ignore_eos=True)
            )
        urgency = {"priority": [number.randint(0, 3) for _ in prompts]} if KIND == "scarce" else {}
        steps = 0
        spent.clear()
        begin, worked = time.perf_counter(), time.process_time()
        if KIND == "dense":
            answer(llm.llm_engine, prompts, params)
        else:
            llm.generate(prompts, params, use_tqdm=False, **urgency)
        seconds = time.perf_counter() - begin
        told = {
            "seconds": seconds,
            "cpu": time.process_time() - worked,
            "steps": steps,
            "recorder": dict(spent),
        }
        print(json.dumps(told), file=results, flush=True)


if __name__ == "__main__":
    main()
