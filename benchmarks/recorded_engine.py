"""The engine of `recorder.py`, run in the interpreter of a release: for each seed on standard input
it answers 48 requests with pictures, and prints how long that took, how much processor time, in how
many steps, and what of it was the recorder's, where "timed" follows the seed. In dense traffic
these are 192, of 16 clients who send their next one when they have an answer, with more pictures
than the encoder cache holds."""

import functools
import json
import os
import random
import sys
import time
import types
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


class Spent:
    """Seconds that a thread of the engine is in the recorder: in what wraps the engine's methods
    (`outer`), but for these methods themselves (`inner`)."""

    def __init__(self):
        self.seconds = Counter()
        self.is_timed = False
        self.is_ready = False
        self._is_in = False
        self._since = 0.0

    def begin(self, *, is_timed):
        self.seconds.clear()
        self.is_timed = is_timed

    def outer(self, wrapped):
        clock = time.perf_counter

        def call(*args, **kwargs):
            if self._is_in or not self.is_timed:
                return wrapped(*args, **kwargs)
            self._is_in, self._since = True, clock()
            try:
                return wrapped(*args, **kwargs)
            finally:
                self.seconds["engine"] += clock() - self._since
                self._is_in = False

        return call

    def inner(self, method):
        clock = time.perf_counter

        @functools.wraps(method)
        def call(*args, **kwargs):
            if not self._is_in:
                return method(*args, **kwargs)
            self.seconds["engine"] += clock() - self._since
            self._is_in = False
            try:
                return method(*args, **kwargs)
            finally:
                self._is_in, self._since = True, clock()

        return call

    def writer(self, write):
        def call(*args):
            begin = time.thread_time()
            write(*args)
            self.seconds["writer"] += time.thread_time() - begin

        return call


def names_of_methods():
    """The methods that a recorder may wrap: those of a scheduler, of its encoder cache manager, of
    its KV cache manager, of a block pool and of a model runner."""
    from cacheproof.differential.recording.engine import OPERATIONS
    from cacheproof.differential.recording.messages import KV_OPERATIONS
    from cacheproof.differential.targets.host.managers.kv_cache_recorder import POOL_CHANGES
    from cacheproof.differential.targets.host.scheduler.recorder import OPERATIONS as MANAGER

    return OPERATIONS, MANAGER, KV_OPERATIONS, POOL_CHANGES, ("execute_model", "sample_tokens")


def time_the_methods(spent):
    """Have the engine's own methods timed, before a recorder wraps them, and the writers."""
    from vllm.v1.core.block_pool import BlockPool
    from vllm.v1.core.encoder_cache_manager import EncoderCacheManager
    from vllm.v1.core.kv_cache_manager import KVCacheManager
    from vllm.v1.core.sched.scheduler import Scheduler
    from vllm.v1.worker.gpu_model_runner import GPUModelRunner

    from cacheproof.differential.recording.writer import Writer

    kinds = Scheduler, EncoderCacheManager, KVCacheManager, BlockPool, GPUModelRunner
    for kind, names in zip(kinds, names_of_methods(), strict=True):
        for name in names:
            if hasattr(kind, name):
                setattr(kind, name, spent.inner(getattr(kind, name)))
    Writer._write_waiting = spent.writer(Writer._write_waiting)


def time_the_wrappers(spent, core):
    """Have timed what a recorder has put around the methods, which it has from the first step
    on."""
    spent.is_ready = True
    scheduler, kv_cache = core.scheduler, core.scheduler.kv_cache_manager
    runner = core.model_executor.driver_worker.worker.model_runner
    parts = scheduler, scheduler.encoder_cache_manager, kv_cache, kv_cache.block_pool, runner
    for part, names in zip(parts, names_of_methods(), strict=True):
        for name in names:
            if name in vars(part):
                setattr(part, name, spent.outer(getattr(part, name)))


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
    package = sys.modules["cacheproof"] = types.ModuleType("cacheproof")
    package.__path__ = [sys.argv[1]]
    from PIL import Image
    from vllm import LLM, SamplingParams

    from cacheproof.differential.recording import plugin
    from cacheproof.gpu_runner.tiny_models import ensure

    plugin.register()  # as vLLM does where cacheproof is installed
    spent = Spent()
    is_recorded = bool(os.environ.get(plugin.FOLDER))
    if is_recorded:
        time_the_methods(spent)
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
        seed, *kinds = line.split()
        number = random.Random(int(seed))
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
        if is_recorded and kinds and not spent.is_ready:
            time_the_wrappers(spent, core)
        spent.begin(is_timed=bool(kinds))
        begin, worked, alone = time.perf_counter(), time.process_time(), time.thread_time()
        if KIND == "dense":
            answer(llm.llm_engine, prompts, params)
        else:
            llm.generate(prompts, params, use_tqdm=False, **urgency)
        seconds = time.perf_counter() - begin
        told = {
            "clock": seconds,
            "processor": time.process_time() - worked,
            "thread": time.thread_time() - alone,
            "steps": steps,
            "recorder": dict(spent.seconds),
        }
        print(json.dumps(told), file=results, flush=True)


if __name__ == "__main__":
    main()
