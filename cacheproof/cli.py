"""The command line. Reports go to standard output, progress and errors to standard error.

Exit codes: 0 all holds, apart from listed faults; 1 an unlisted safety or liveness finding, or
targets part, or head of a review breaks what base keeps; 2 usage, input or environment; 3 void; 4 a
target whose text is no release's parts from the model, or decisions of a review differ.
"""

import io
import os
import sys
import warnings
from pathlib import Path
from typing import Annotated

import typer
from typer.exceptions import Abort, TyperException

from cacheproof import (
    __version__,
    auditing,
    bisecting,
    campaign_commands,
    contract_table,
    exploring,
    generating,
    installed,
    main_job,
    minimising,
    proving,
    recording,
    replaying,
    reviewing,
    searching,
    serving,
    simulating,
)
from cacheproof.console import Output
from cacheproof.differential.errors import CacheproofError, InputError
from cacheproof.differential.search import known as known_faults
from cacheproof.differential.targets.host.session import calm_collector
from cacheproof.differential.traces.wording import visible_line
from cacheproof.formats.writing import Formats
from cacheproof.gpu_runner.jobs import COUNT_MAX, Sizes
from cacheproof.options import (
    A_WEEK,
    TARGET_HELP,
    ClusterOption,
    DepthOption,
    FindingsOption,
    JsonOption,
    JunitOption,
    KnownOption,
    RegisterOption,
    SarifOption,
    ShrinkListedOption,
    TargetOption,
    VerboseOption,
    WorkersOption,
    folder_of,
)
from cacheproof.plan import Plan
from cacheproof.reference.semantics import UnknownRelease
from cacheproof.registering import Register
from cacheproof.workplace import Workplace

EXIT_CODES = (
    "Exit codes: 0 all holds, apart from listed faults; 1 an unlisted finding, or targets part; 2 "
    "usage, input or environment; 3 void; 4 a target whose text is no release's parts from the "
    "model, and breaks no contract. Of a review: 1 head breaks what base keeps; 4 decisions differ."
)
app = typer.Typer(
    help="Checks the caches behind multimodal requests in vLLM V1.",
    epilog=EXIT_CODES,
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
for command in (
    recording.record,
    auditing.audit,
    minimising.minimise,
    replaying.replay,
    bisecting.bisect,
    simulating.simulate,
    serving.http,
):
    app.command()(command)
app.add_typer(installed.vllm_app, name="vllm")
app.add_typer(installed.connector_app, name="connector")
app.add_typer(campaign_commands.campaign_app, name="campaign")


@app.callback(invoke_without_command=True)
def root(
    version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False,
) -> None:
    """Checks the caches behind multimodal requests in vLLM V1."""
    if version:
        typer.echo(f"cacheproof {__version__}")
        raise typer.Exit


@app.command()
def check(
    budget: Annotated[str, typer.Option(help="How much to search: short or full.")] = "short",
    slice_: Annotated[
        str | None,
        typer.Option(
            "--slice",
            metavar="K/N",
            help="Search one of N parts of the seeds; what is listed need not be met.",
        ),
    ] = None,
    release: Annotated[
        list[str] | None, typer.Option(help="Releases to check; by default the two of the README.")
    ] = None,
    known: KnownOption = None,
    findings: FindingsOption = None,
    register: RegisterOption = None,
    workers: WorkersOption = None,
    cluster: ClusterOption = None,
    verbose: VerboseOption = False,
    json: JsonOption = None,
    junit: JunitOption = None,
    sarif: SarifOption = None,
) -> None:
    """The main job: search real releases over fixed seeds and print the faults that were met."""
    formats = Formats(junit, sarif)
    with Output(json, verbose=verbose, command="check", formats=formats) as output:
        faults = known_faults.load(known)
        folder = folder_of(findings)
        kept = Register(register)
        place = Workplace(workers, cluster)
        code = main_job.run(output, budget, release, faults, folder, kept, place, slice_)
        raise typer.Exit(code)


@app.command()
def contracts(
    markdown: Annotated[bool, typer.Option("--markdown", help="As docs/contracts.md.")] = False,
    json: JsonOption = None,
) -> None:
    """The contract table."""
    output = Output(json)
    if markdown:
        output.line(contract_table.markdown())
    else:
        output.report.print(contract_table.table())
    output.write_json("contracts", {"contracts": contract_table.as_json()})


@app.command()
def fuzz(
    target: TargetOption,
    against: Annotated[
        str, typer.Option(metavar="T", help="reference, or none for contracts only.")
    ] = "reference",
    depth: DepthOption = None,
    seconds: Annotated[
        float | None, typer.Option(min=1, max=A_WEEK, help="Search for about so long.")
    ] = None,
    seeds: Annotated[
        str | None,
        typer.Option(
            metavar="A:B", help="Search these seeds; with --seconds, as many as time allows."
        ),
    ] = None,
    shrink_listed: ShrinkListedOption = False,
    known: KnownOption = None,
    findings: FindingsOption = None,
    register: RegisterOption = None,
    workers: WorkersOption = None,
    cluster: ClusterOption = None,
    verbose: VerboseOption = False,
    json: JsonOption = None,
    junit: JunitOption = None,
    sarif: SarifOption = None,
) -> None:
    """Search a target: lockstep with the reference, and every contract at every call."""
    formats = Formats(junit, sarif)
    with Output(json, verbose=verbose, command="fuzz", formats=formats) as output:
        faults = known_faults.load(known)
        kept = Register(register)
        plan = Plan.parse(
            depth,
            against,
            seconds,
            seeds,
            shrinks_listed=shrink_listed or bool(kept),
            place=Workplace(workers, cluster),
        )
        raise typer.Exit(searching.fuzz(output, target, plan, faults, folder_of(findings), kept))


@app.command()
def prove(
    target: Annotated[
        list[str] | None,
        typer.Option(
            metavar="T",
            help="reference, vllm@VERSION, path:DIR or MODULE:CLASS[@VERSION]; by default all "
            "installed.",
        ),
    ] = None,
    seed: Annotated[int, typer.Option(min=0, max=2**31 - 1, help="The solver's.")] = 0,
    markdown: Annotated[bool, typer.Option("--markdown", help="As docs/evidence.md.")] = False,
    fresh: Annotated[
        bool, typer.Option("--fresh", help="Prove all, also what was proved before.")
    ] = False,
    known: KnownOption = None,
    workers: WorkersOption = None,
    cluster: ClusterOption = None,
    verbose: VerboseOption = False,
    json: JsonOption = None,
    junit: JunitOption = None,
    sarif: SarifOption = None,
) -> None:
    """Prove contracts of the reference and of releases by their text, beside red twins."""
    formats = Formats(junit, sarif)
    with Output(
        json, verbose=verbose, command="prove", formats=formats, is_page=markdown
    ) as output:
        code = proving.prove(
            output,
            target or None,
            known_faults.load(known),
            seed=seed,
            markdown=markdown,
            fresh=fresh,
            place=Workplace(workers, cluster),
        )
        raise typer.Exit(code)


@app.command()
def diff(
    left: Annotated[str, typer.Argument(metavar="T1", help=TARGET_HELP)],
    right: Annotated[str, typer.Argument(metavar="T2", help=TARGET_HELP)],
    depth: DepthOption = None,
    seconds: Annotated[float, typer.Option(min=1, max=A_WEEK)] = 30,
    json: JsonOption = None,
) -> None:
    """Where two targets part: of each change between them the smallest trace that shows it."""
    raise typer.Exit(searching.diff(Output(json), left, right, depth, seconds))


@app.command()
def review(
    base: Annotated[str, typer.Option("--base", metavar="T1", help=TARGET_HELP)],
    head: Annotated[str, typer.Option("--head", metavar="T2", help=TARGET_HELP)],
    depth: DepthOption = None,
    seconds: Annotated[
        float | None, typer.Option(min=1, max=A_WEEK, help="Begin no seeds after so long.")
    ] = None,
    seeds: Annotated[
        str | None, typer.Option(metavar="A:B", help="Of each lane; by default 0:20.")
    ] = None,
    known: KnownOption = None,
    workers: WorkersOption = None,
    cluster: ClusterOption = None,
    junit: JunitOption = None,
    sarif: SarifOption = None,
    json: JsonOption = None,
) -> None:
    """Review a change: what head decides otherwise than base, mends, brings, and proves."""
    faults = known_faults.load(known)
    formats = Formats(junit, sarif)
    with Output(json, command="review", formats=formats, is_page=True) as output:
        code = reviewing.review(
            output,
            base,
            head,
            depth=depth,
            seeds=seeds,
            seconds=seconds,
            known=faults,
            place=Workplace(workers, cluster),
        )
        raise typer.Exit(code)


@app.command()
def explore(
    target: Annotated[
        list[str] | None,
        typer.Option("--target", metavar="T", help=f"{TARGET_HELP}; several may be given."),
    ] = None,
    scope: Annotated[str, typer.Option(help="How much to explore: small or full.")] = "small",
    markdown: Annotated[
        bool, typer.Option("--markdown", help="Explore nothing: the scopes, as in docs/explore.md.")
    ] = False,
    known: KnownOption = None,
    findings: FindingsOption = None,
    workers: WorkersOption = None,
    cluster: ClusterOption = None,
    json: JsonOption = None,
) -> None:
    """Explore managers: every state of small scopes, every transition judged, red twins beside."""
    output = Output(json)
    if markdown:
        output.line(exploring.scopes_markdown())
        raise typer.Exit
    faults = known_faults.load(known)
    place, targets = Workplace(workers, cluster), target or exploring.TARGETS
    raise typer.Exit(exploring.explore(output, targets, scope, faults, folder_of(findings), place))


@app.command()
def generate(
    prompt: Annotated[
        list[str],
        typer.Option(
            "--prompt", metavar="TEXT", help="Holds <image>, <video>, <audio> where media belong."
        ),
    ],
    image: Annotated[
        list[Path] | None,
        typer.Option("--image", metavar="FILE", help="In the order of the prompts' <image>."),
    ] = None,
    video: Annotated[
        list[Path] | None,
        typer.Option("--video", metavar="FILE", help="GIF, APNG or WebP, of the prompts' <video>."),
    ] = None,
    audio: Annotated[
        list[Path] | None,
        typer.Option("--audio", metavar="FILE", help="WAV, of the prompts' <audio>."),
    ] = None,
    model: Annotated[
        str,
        typer.Option(
            metavar="DIR",
            help="Of a model of one of these kinds; or a kind, a tiny model is made of: llava, "
            "qwen2_5_vl, qwen3_vl, qwen2_audio, cohere2_vision, whisper.",
        ),
    ] = "llava",
    device: Annotated[str, typer.Option(help="cpu or cuda.")] = "cpu",
    max_tokens: Annotated[int, typer.Option(min=1, max=COUNT_MAX, help="Of each answer.")] = 16,
    tokens_per_step: Annotated[int, typer.Option(min=1, max=COUNT_MAX)] = 64,
    requests_at_once: Annotated[int, typer.Option(min=1, max=COUNT_MAX)] = 8,
    model_length: Annotated[
        int, typer.Option(min=2, max=COUNT_MAX, help="Tokens of prompt and answer.")
    ] = 512,
    encoder_cache: Annotated[
        int, typer.Option(min=1, max=COUNT_MAX, help="Rows that are kept.")
    ] = 64,
    encoder_budget: Annotated[
        int | None,
        typer.Option(
            min=1,
            max=COUNT_MAX,
            help="Rows that a step may encode; by default as many as are kept.",
        ),
    ] = None,
    blocks: Annotated[int, typer.Option(min=2, max=COUNT_MAX, help="KV blocks.")] = 256,
    block_size: Annotated[
        int, typer.Option(min=1, max=COUNT_MAX, help="Tokens of a KV block.")
    ] = 16,
    prefix_caching: Annotated[bool, typer.Option()] = True,
    json: JsonOption = None,
) -> None:
    """Generate text on a local model: the reference decides, the torch runner executes."""
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
    output = Output(json)
    files = {"image": image or [], "video": video or [], "audio": audio or []}
    raise typer.Exit(generating.generate(output, model, device, prompt, files, sizes))


@app.command()
def gallery(
    workers: WorkersOption = None, cluster: ClusterOption = None, json: JsonOption = None
) -> None:
    """Every faulty variant, and the contracts that catch it: the kill matrix."""
    raise typer.Exit(main_job.gallery(Output(json), Workplace(workers, cluster)))


INTERRUPTED = 130


def _give_up_output() -> int:
    """Nothing more can be said: what is left in buffers goes nowhere. Returns the exit code."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    return InputError.exit_code


def _complain(words: str) -> None:
    """One line, whatever is in the words."""
    print(f"cacheproof: {visible_line(words)}", file=sys.stderr)


def _check_encoding() -> None:
    """Let any stdout take any text, and refuse words that are none.

    Raises:
        InputError: a word of the command line is no text.
    """
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")
    for word in sys.argv[1:]:
        if any("\ud800" <= one <= "\udfff" for one in word):
            raise InputError(
                f"{word}: no text in {sys.getfilesystemencoding()}, the locale's encoding; "
                "expected words and names of files that are, or another locale"
            )


def main() -> None:
    """Entry point: errors that are no finding end in one line and their own exit code."""
    calm_collector()
    warnings.simplefilter("ignore", UnknownRelease)  # announced, where it matters
    try:
        _check_encoding()
        code = app(standalone_mode=False)
        if code == INTERRUPTED:  # what typer makes of Ctrl-C, without a word
            raise KeyboardInterrupt
        sys.stdout.flush()
    except CacheproofError as error:
        _complain(str(error))
        code = error.exit_code
    except TyperException as error:
        if message := error.format_message():  # none where the help was printed
            _complain(f"{message.rstrip('.')}; see cacheproof --help")
        code = InputError.exit_code
    except (KeyboardInterrupt, Abort):
        _complain("interrupted")
        code = INTERRUPTED
    except SystemExit:  # what typer and rich make of a reader that left; no verdict of ours
        code = _give_up_output()
    except OSError as error:
        where = error.filename or "standard output"
        _complain(f"{where}: {error.strerror}")
        code = _give_up_output()
    sys.exit(code)
