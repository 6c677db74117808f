"""Time to the first token of a prompt with a video: encoded first, found in the encoder cache, and
taken from a store that engines share.

    .venv/bin/python benchmarks/time_to_first_token.py --size small
    .venv/bin/python benchmarks/time_to_first_token.py --size full --device cuda --python PYTHON

The size `full` is that of Qwen2.5-VL-7B, with the videos of LMCache's figures on encoder caching;
`small` is a seventh as wide and deep. Weights and pixels are noise. In each round a video that was
never seen is asked about (cold), and once more (warm), with prefix caching off; then under a name
that the engine has not seen, which another engine has put into the store (in memory, on disk or on
a Redis server, if there is one on PATH): it is promised, read and copied to the device in place of
the encoder's work. All must be answered alike, to the last bit. The clock runs from the arrival of
the request, its pixels on the host, to its token. With --synchronisations nothing is timed: every
step runs with torch set to refuse what waits for the GPU before the tokens are chosen.
"""

import json
import shutil
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import beside
import torch_side
from encoder_connector import server, store_in

if TYPE_CHECKING:
    import torch
    from video_model import VideoModel

    from cacheproof.gpu_runner.engine import Engine
    from cacheproof.gpu_runner.runner import Runner

TEXT = 24
"""Tokens before the video, and after it."""
BLOCK_SIZE = 16
PATCHES_OF_A_ROW = 4
TIERS = ("memory", "disk", "server")


class Claim(NamedTuple):
    """What LMCache's documentation says of so many frames on one H100: the size of the entry, in
    the unit in which it is that of its grid, and how much faster the first token comes."""

    frames: int
    entry: str
    unit: str
    saved_ms: int
    faster: float


CLAIMS = (Claim(32, "34.3", "MB", 798, 1.26), Claim(128, "130.8", "MiB", 2520, 1.75))
UNITS = {"MB": 10**6, "MiB": 2**20}


@dataclass(frozen=True)
class Size:
    """A Qwen2.5-VL and its videos; `grid` are the rows that two frames make, high and wide."""

    grid: tuple[int, int]
    hidden_size: int
    intermediate_size: int
    layers: int
    heads: int
    kv_heads: int
    vocabulary: int
    vision_hidden_size: int
    vision_intermediate_size: int
    vision_depth: int
    vision_heads: int
    full_attention: tuple[int, ...]
    dtype: str
    bytes_of_a_number: int
    max_num_batched_tokens: int

    def rows(self, frames: int) -> int:
        """Rows of the entry of a video."""
        height, width = self.grid
        return frames // 2 * height * width

    def entry_bytes(self, frames: int) -> int:
        """Memory of that entry."""
        return self.rows(frames) * self.hidden_size * self.bytes_of_a_number

    def encoder_multiply_adds(self, frames: int) -> int:
        """Of the projections of the vision tower, and of its layers of full attention."""
        hidden, of_frame = self.vision_hidden_size, self.rows(2) * PATCHES_OF_A_ROW
        a_layer = 4 * hidden**2 + 3 * hidden * self.vision_intermediate_size
        attention = len(self.full_attention) * 2 * of_frame * hidden
        merged = hidden * PATCHES_OF_A_ROW
        merger = merged**2 + merged * self.hidden_size
        a_row = PATCHES_OF_A_ROW * (self.vision_depth * a_layer + attention) + merger
        return self.rows(frames) * a_row

    def decoder_multiply_adds(self, frames: int) -> int:
        """Of the decoder over the prompt: its projections, and causal attention."""
        tokens = self.rows(frames) + 2 * TEXT
        key_values = 2 * self.kv_heads * (self.hidden_size // self.heads)
        width = 2 * self.hidden_size + key_values + 3 * self.intermediate_size
        return tokens * self.layers * self.hidden_size * (width + tokens)

    def faster(self, frames: int) -> float:
        """How much faster warm is than cold where a multiply-add costs the same everywhere."""
        return 1 + self.encoder_multiply_adds(frames) / self.decoder_multiply_adds(frames)


SIZES = {
    "full": Size(
        grid=(13, 23),
        hidden_size=3584,
        intermediate_size=18944,
        layers=28,
        heads=28,
        kv_heads=4,
        vocabulary=152064,
        vision_hidden_size=1280,
        vision_intermediate_size=3420,
        vision_depth=32,
        vision_heads=16,
        full_attention=(7, 15, 23, 31),
        dtype="bfloat16",
        bytes_of_a_number=2,
        max_num_batched_tokens=8192,
    ),
    "small": Size(
        grid=(5, 9),
        hidden_size=512,
        intermediate_size=2706,
        layers=4,
        heads=4,
        kv_heads=1,
        vocabulary=2048,
        vision_hidden_size=160,
        vision_intermediate_size=428,
        vision_depth=6,
        vision_heads=2,
        full_attention=(5,),
        dtype="float32",
        bytes_of_a_number=4,
        max_num_batched_tokens=1024,
    ),
}


def entry(size: Size, claim: Claim) -> str:
    """What the entry measures; that of the claim's own model is what the claim says."""
    measured = f"{size.rows(claim.frames):,} rows, {size.entry_bytes(claim.frames):,} bytes"
    if size is not SIZES["full"]:
        return measured
    said = f"{size.entry_bytes(claim.frames) / UNITS[claim.unit]:.1f}"
    assert said == claim.entry, f"{claim.frames} frames: {said} {claim.unit}, not {claim.entry}"
    return f"{measured} = {said} {claim.unit}"


def main() -> None:
    parser = torch_side.arguments(__doc__)
    parser.add_argument("--size", default="small", choices=sorted(SIZES))
    parser.add_argument("--synchronisations", action="store_true")
    parser.add_argument("--memory", default="/dev/shm", help="a folder in memory, for the store")
    parser.add_argument("--disk", default=tempfile.gettempdir(), help="a folder on a disk")
    chosen = parser.parse_args()
    if chosen.synchronisations and chosen.device != "cuda":
        print("--synchronisations is about what waits for a GPU; expected --device cuda",
              file=sys.stderr)  # fmt: skip
        raise SystemExit(2)
    size = SIZES[chosen.size]
    frames = [claim.frames for claim in CLAIMS]
    tiers = TIERS if shutil.which("redis-server") else TIERS[:2]
    told = torch_side.run(__file__, chosen, of_size=asdict(size), frames=frames, tiers=tiers)
    if chosen.synchronisations:
        for line in told:
            print(f"{line['steps']} steps with {line['frames']} frames: nothing waits for the GPU "
                  f"before the tokens are chosen")  # fmt: skip
        return
    print(f"Milliseconds to the first token: median (least to most) of {chosen.rounds} rounds; "
          f"{next(told)}\n")  # fmt: skip
    claims = size is SIZES["full"]
    print("| frames | entry | cold | warm | saved | cold / warm | by multiply-adds |"
          + claims * " claimed |" + "".join(f" from {tier} |" for tier in tiers)
          + "".join(f" cold / from {tier} |" for tier in tiers[1:]))  # fmt: skip
    print("|---|---|---|---|---|---|---|" + "---|" * (claims + 2 * len(tiers) - 1))
    if tiers != TIERS:
        print("redis-server is not on PATH: nothing is taken from a server", file=sys.stderr)
    for claim, line in zip(CLAIMS, told, strict=True):
        assert line["entry_bytes"] == line["peak_bytes"] == size.entry_bytes(claim.frames)
        cold, warm, *taken = (line[way] for way in ("cold", "warm", *tiers))
        saved = [one - other for one, other in zip(cold, warm, strict=True)]
        columns = [
            str(claim.frames),
            entry(size, claim),
            *(beside.spread(one, 1e3, digits=0) for one in (cold, warm, saved)),
            beside.spread(beside.ratios(cold, warm)),
            f"{size.faster(claim.frames):.2f}",
            *([f"{claim.faster} ({claim.saved_ms} saved)"] if claims else []),
            *(beside.spread(one, 1e3, digits=0) for one in taken),
            *(beside.spread(beside.ratios(cold, one)) for one in taken[1:]),
        ]
        print(f"| {' | '.join(columns)} |", flush=True)


def inside(job: Any) -> None:
    """Runs where torch is: one line of JSON for each number of frames."""
    beside.make_importable()
    device = torch_side.device(job["device"])
    from video_model import VideoModel

    model = VideoModel(Size(**job["of_size"]), device)
    if job["synchronisations"]:
        for frames in job["frames"]:
            told = {"frames": frames, "steps": count_steps(model, frames)}
            print(json.dumps(told), flush=True)
        return
    print(json.dumps(torch_side.machine(job["device"])), flush=True)
    for frames in job["frames"]:
        with ExitStack() as stack:
            places: dict[str, Path | str] = {tier: Path(stack.enter_context(
                tempfile.TemporaryDirectory(dir=job[tier]))) for tier in TIERS[:2]}  # fmt: skip
            if "server" in job["tiers"]:
                places["server"] = stack.enter_context(server())
            print(json.dumps(measure(model, frames, job["rounds"], places)), flush=True)


def measure(
    model: "VideoModel", frames: int, rounds: int, places: Mapping[str, Path | str]
) -> dict[str, Any]:
    """Seconds of each round, by the way that the rows come, and what the encoder store held."""
    engine = make_engine(model, frames)
    patches = model.patches(frames)
    seconds: dict[str, list[float]] = {way: [] for way in ("cold", "warm", *places)}
    rows: dict[str, int] = {}
    for number in range(rounds + 1):
        answers = []
        for way, spent in seconds.items():
            name = f"{way if way in places else 'video'}-{number}"
            rows[name] = model.size.rows(frames)
            asked = model.prompt(name, patches, frames, TEXT)
            takes = nullcontext()
            if way in places:
                (encoded,) = engine.runner.encoder_store.entries.values()
                takes = taking(engine.runner, places[way], name, encoded)
            with takes:
                begun = torch_side.clock(model.device)
                engine.add(f"{way}-{number}", asked, max_tokens=1)
                decided = list(engine.run())
                spent.append(torch_side.clock(model.device) - begun)
            encodes = sum(len(step.scheduled_encoder_inputs) for step in decided)
            assert encodes == (way != "warm")
            answers += engine.completions[f"{way}-{number}"].tokens
            store = engine.runner.encoder_store
            ledger = {name: rows[name] for name in engine.encoder_cache_manager.cached}
            assert store.sizes == ledger, f"the store holds {store.sizes}, not {ledger}"
        assert len(set(answers)) == 1, f"{', '.join(seconds)} are answered differently"
    return {
        **{way: spent[1:] for way, spent in seconds.items()},
        "entry_bytes": store.num_bytes,
        "peak_bytes": store.peak_bytes,
    }


@contextmanager
def taking(runner: "Runner", place: Path | str, name: str, rows: "torch.Tensor") -> Iterator[None]:
    """What the runner would encode, it takes from a shared store, where another has put it."""
    from cacheproof.gpu_runner.encoder_connector.entry_file import TensorCodec, dtype_name
    from cacheproof.reference.encoder_connector.entry_key import EntryKey

    width, dtype = rows.shape[1], dtype_name(rows.dtype)
    key = EntryKey(name, "a model", "", "", dtype, width)
    codec = TensorCodec(rows.device)
    another, own = (store_in(place, 2 * rows.nbytes + (1 << 20)) for _ in range(2))
    assert another.put(key, codec.parts_of(rows, key))
    encode = runner._encode

    def take(step: Any) -> None:
        if not step.scheduled_encoder_inputs:
            return
        promise = own.promise(key)
        assert promise is not None
        with open(promise.paths[0], "rb", buffering=0) as entry:
            runner.encoder_store.put(name, codec.load(entry, key))
        own.give_back(promise)

    runner._encode = take  # type: ignore[method-assign]
    try:
        yield
    finally:
        runner._encode = encode  # type: ignore[method-assign]
        another.close()
        own.close()


def make_engine(model: "VideoModel", frames: int) -> "Engine":
    """An engine with room for one video, in its KV cache and in its encoder cache."""
    from cacheproof.gpu_runner.engine import CacheSizes, Engine
    from cacheproof.gpu_runner.runner import Runner
    from cacheproof.reference.scheduler.config import SchedulerConfig

    rows = model.size.rows(frames)
    tokens = rows + 2 * TEXT + 8
    blocks = -(-tokens // BLOCK_SIZE) + 1
    runner = Runner(model, num_blocks=blocks, block_size=BLOCK_SIZE, encoder_cache_size=rows)
    config = SchedulerConfig(
        max_num_batched_tokens=model.size.max_num_batched_tokens,
        max_num_seqs=8,
        max_model_len=tokens,
        encoder_compute_budget=rows,
    )
    sizes = CacheSizes(blocks, BLOCK_SIZE, rows, enable_prefix_caching=False)
    return Engine(runner, config, sizes)


def count_steps(model: "VideoModel", frames: int) -> int:
    """Steps of a cold and a warm request that decode, none of which waits for the GPU before it
    chooses tokens.

    Raises:
        RuntimeError: one does; torch says where.
    """
    engine = make_engine(model, frames)
    asked = model.prompt("video", model.patches(frames), frames, TEXT)
    steps = 0
    with refusing_to_wait(engine.runner):
        for name in ("cold", "warm"):
            engine.add(name, asked, max_tokens=4)
            steps += len(list(engine.run()))
    return steps


@contextmanager
def refusing_to_wait(runner: "Runner") -> Iterator[None]:
    """Steps raise where something waits for the GPU between their start and the choice of tokens,
    which has to."""
    import torch

    from cacheproof.gpu_runner import runner as module

    execute, choose = runner.execute, module._greedy

    def refusing(step: Any) -> Any:
        torch.cuda.set_sync_debug_mode("error")
        try:
            return execute(step)
        finally:
            torch.cuda.set_sync_debug_mode("default")

    def waiting(logits: Any) -> Any:
        torch.cuda.set_sync_debug_mode("default")
        return choose(logits)

    runner.execute, module._greedy = refusing, waiting  # type: ignore[method-assign]
    try:
        yield
    finally:
        runner.execute, module._greedy = execute, choose  # type: ignore[method-assign]


if __name__ == "__main__":
    if sys.argv[1:2] == ["inside"]:
        inside(json.loads(sys.argv[2]))
    else:
        main()
