"""The commands that run the reference itself: simulate, generate."""

from pathlib import Path
from typing import Annotated

import typer
from typer.models import OptionInfo

from cacheproof.commands.completing import one_of
from cacheproof.commands.helping import example
from cacheproof.commands.options import HtmlOption, JsonOption, ReleaseOption
from cacheproof.gpu_runner.jobs import COUNT_MAX, KINDS
from cacheproof.reference.releases import NEWEST
from cacheproof.simulation.traffic import TRAFFICS

ROWS_MAX = 1 << 40
REQUESTS_MAX = 1 << 30
SIZES = (2048, 8192, 32_768, 131_072, 524_288)
"""Rows of the encoder cache, where none are named."""
BYTES_OF = {"float32": 4, "bfloat16": 2, "float16": 2, "float8": 1}
MEDIA, ENGINE = "Media", "Sizes of the engine"
PrefixCachingOption = Annotated[
    bool,
    typer.Option(
        "--prefix-caching/--no-prefix-caching",
        help="Reuse KV blocks of equal prompt prefixes, or not.",
        rich_help_panel=ENGINE,
    ),
]


def _size(text: str, metavar: str = "N", *, least: int = 1, most: int) -> OptionInfo:
    """The option of one size of the engine."""
    return typer.Option(min=least, max=most, metavar=metavar, help=text, rich_help_panel=ENGINE)


@example(
    "cacheproof simulate",
    "cacheproof simulate --traffic documents \\",
    "  --encoder-cache 8192 --encoder-cache 32768 \\",
    "  --html sizes.html",
)
def simulate(
    traffic: Annotated[
        list[str] | None,
        typer.Option(
            metavar="KIND",
            help=f"Kind of traffic: {', '.join(TRAFFICS)}; may be given several times. All by "
            "default.",
            autocompletion=one_of(*TRAFFICS),
        ),
    ] = None,
    requests: Annotated[
        int, typer.Option(min=1, max=REQUESTS_MAX, metavar="N", help="Requests of each run.")
    ] = 10_000,
    encoder_cache: Annotated[
        list[int] | None,
        _size(
            "Size of the encoder cache, in rows (one embedding each); may be given several "
            f"times. By default {len(SIZES)} sizes, {SIZES[0]} to {SIZES[-1]}.",
            "ROWS",
            most=ROWS_MAX,
        ),
    ] = None,
    encoder_budget: Annotated[
        int | None,
        _size(
            "Rows that one step may encode; by default as many as --tokens-per-step.",
            "ROWS",
            most=ROWS_MAX,
        ),
    ] = None,
    tokens_per_step: Annotated[
        int,
        _size("Tokens that one step may schedule.", most=ROWS_MAX),
    ] = 8192,
    requests_at_once: Annotated[
        int,
        _size("Requests that run at the same time.", most=1 << 16),
    ] = 64,
    blocks: Annotated[
        int,
        _size("Number of KV blocks.", least=2, most=1 << 24),
    ] = 16_384,
    block_size: Annotated[
        int,
        _size("Tokens of a KV block.", most=1 << 16),
    ] = 16,
    prefix_caching: PrefixCachingOption = True,
    whole_items: Annotated[
        bool,
        typer.Option(
            "--whole-items",
            help="Schedule an item in one step only (vLLM's disable_chunked_mm_input).",
            rich_help_panel=ENGINE,
        ),
    ] = False,
    release: ReleaseOption = NEWEST,
    hidden_size: Annotated[
        int,
        typer.Option(
            min=1, max=1 << 20, metavar="N", help="Numbers in a row, to reckon its bytes."
        ),
    ] = 4096,
    dtype: Annotated[
        str,
        typer.Option(
            metavar="DTYPE",
            help=f"Type of these numbers: {', '.join(BYTES_OF)}.",
            autocompletion=one_of(*BYTES_OF),
        ),
    ] = "bfloat16",
    seed: Annotated[
        int, typer.Option(min=0, max=2**31 - 1, metavar="N", help="Random seed of the traffic.")
    ] = 0,
    html: HtmlOption = None,
    json: JsonOption = None,
) -> None:
    """Serve synthetic traffic with the reference scheduler: what each encoder cache size does."""
    from cacheproof.output.console import CommandOutput
    from cacheproof.simulation import simulating
    from cacheproof.simulation.run import SimulationSetting

    asked = SimulationSetting(
        release,
        max_num_batched_tokens=tokens_per_step,
        max_num_seqs=min(requests_at_once, tokens_per_step),
        encoder_compute_budget=encoder_budget or tokens_per_step,
        encoder_cache_size=SIZES[0],
        num_blocks=blocks,
        block_size=block_size,
        enable_prefix_caching=prefix_caching,
        disable_chunked_mm_input=whole_items,
    )
    sizes = sorted({*(encoder_cache or SIZES)})
    row_bytes = hidden_size * simulating.named("--dtype", dtype, BYTES_OF)
    kinds = traffic or TRAFFICS
    with CommandOutput(json, command="simulate") as output:
        raise typer.Exit(
            simulating.simulate(output, asked, kinds, sizes, requests, seed, row_bytes, html)
        )


@example(
    "cacheproof generate --prompt 'What is it? <image>' \\",
    "  --image cat.png --model qwen2_5_vl",
)
def generate(
    prompt: Annotated[
        list[str],
        typer.Option(
            "--prompt",
            metavar="TEXT",
            help="A prompt, with <image>, <video> or <audio> where a medium belongs; may be given "
            "several times.",
        ),
    ],
    image: Annotated[
        list[Path] | None,
        typer.Option(
            "--image",
            metavar="FILE",
            help="Picture for each <image> of the prompts, in their order.",
            rich_help_panel=MEDIA,
        ),
    ] = None,
    video: Annotated[
        list[Path] | None,
        typer.Option(
            "--video",
            metavar="FILE",
            help="GIF, APNG or WebP for each <video> of the prompts.",
            rich_help_panel=MEDIA,
        ),
    ] = None,
    audio: Annotated[
        list[Path] | None,
        typer.Option(
            "--audio",
            metavar="FILE",
            help="WAV for each <audio> of the prompts.",
            rich_help_panel=MEDIA,
        ),
    ] = None,
    model: Annotated[
        str,
        typer.Option(
            metavar="KIND|DIR",
            help=f"Kind of model, of which a tiny one is made: {', '.join(KINDS)}; or the folder "
            "of a model of one of these kinds.",
            autocompletion=one_of(*KINDS),
        ),
    ] = "llava",
    device: Annotated[
        str,
        typer.Option(metavar="DEVICE", help="cpu or cuda.", autocompletion=one_of("cpu", "cuda")),
    ] = "cpu",
    max_tokens: Annotated[
        int,
        typer.Option(min=1, max=COUNT_MAX, metavar="N", help="Tokens of an answer, at most."),
    ] = 16,
    tokens_per_step: Annotated[
        int,
        _size("Tokens that one step may schedule.", most=COUNT_MAX),
    ] = 64,
    requests_at_once: Annotated[
        int,
        _size("Requests that run at the same time.", most=COUNT_MAX),
    ] = 8,
    model_length: Annotated[
        int,
        _size("Tokens of a prompt and its answer, at most.", least=2, most=COUNT_MAX),
    ] = 512,
    encoder_cache: Annotated[
        int,
        _size("Size of the encoder cache, in rows (one embedding each).", "ROWS", most=COUNT_MAX),
    ] = 64,
    encoder_budget: Annotated[
        int | None,
        _size(
            "Rows that one step may encode; by default as many as --encoder-cache.",
            "ROWS",
            most=COUNT_MAX,
        ),
    ] = None,
    blocks: Annotated[
        int,
        _size("Number of KV blocks.", least=2, most=COUNT_MAX),
    ] = 256,
    block_size: Annotated[
        int,
        _size("Tokens of a KV block.", most=COUNT_MAX),
    ] = 16,
    prefix_caching: PrefixCachingOption = True,
    json: JsonOption = None,
) -> None:
    """Generate text on a local model: the reference schedules, torch executes."""
    from cacheproof.gpu_runner.jobs import Sizes
    from cacheproof.output.console import CommandOutput
    from cacheproof.serving import generating

    sizes = Sizes(
        max_tokens=max_tokens,
        max_num_batched_tokens=tokens_per_step,
        max_num_seqs=min(requests_at_once, tokens_per_step),
        max_model_len=model_length,
        max_num_encoder_input_tokens=encoder_budget or encoder_cache,
        encoder_cache_size=encoder_cache,
        num_blocks=blocks,
        block_size=block_size,
        enable_prefix_caching=prefix_caching,
    )
    files = {"image": image or [], "video": video or [], "audio": audio or []}
    with CommandOutput(json, command="generate") as output:
        raise typer.Exit(generating.generate(output, model, device, prompt, files, sizes))
