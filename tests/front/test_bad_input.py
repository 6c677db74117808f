"""What a user may get wrong ends in one line and exit code 2, with nothing on standard output."""

from pathlib import Path

import pytest

from tests.front.conftest import Run

TRACE = (
    '{"depth":"manager","schema":1,"manager":"encoder_cache",'
    '"config":{"capacity":4,"compute_budget":4}}\n'
    '{"event":"add","request":"a","prompt":8,'
    '"items":[{"identifier":"x","offset":0,"length":4}]}\n'
    '{"event":"walk","request":"a","tokens":8}\n'
)
FUZZ = ("fuzz", "--target", "reference")
REPLAY = ("replay", "/no/such/file")


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    path = tmp_path / "trace.jsonl"
    path.write_text(TRACE)
    return path


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("fuzz",), "Missing option '--target'"),
        (("explode",), "No such command 'explode'"),
        (("--explode",), "No such option: --explode"),
        (("fuzz", "--target", "nope"), "expected reference[@VERSION]"),
        (("fuzz", "--target", ""), "target ''"),
        (("fuzz", "--target", "vllm"), "expected reference[@VERSION]"),
        (("fuzz", "--target", "vllm@"), "'' is no vLLM version"),
        (("fuzz", "--target", "vllm@../x"), "'../x' is no vLLM version"),
        (("fuzz", "--target", "reference@"), "'' is no vLLM version"),
        (("fuzz", "--target", "reference@x"), "'x' is no vLLM version"),
        (("fuzz", "--target", "reference@0.33.0x"), "'0.33.0x' is no vLLM version"),
        (("fuzz", "--target", "reference@0.34.0"), "expected reference@0.33.0 or an older one"),
        (("fuzz", "--target", "reference@99.0.0"), "newer than all releases that are modelled"),
        (("fuzz", "--target", "module:Class@"), "'' is no vLLM version"),
        (("fuzz", "--target", "vllm@0.33"), "did you mean vllm@0.33.0?"),
        (("fuzz", "--target", "vllm@v0.33.0"), "did you mean vllm@0.33.0?"),
        (("fuzz", "--target", "vllm@0.33.0.0"), "did you mean vllm@0.33.0?"),
        (("fuzz", "--target", "engine@0.32"), "did you mean engine@0.32.0?"),
        (("fuzz", "--target", "lmcache@0.6"), "did you mean lmcache@0.6.0?"),
        (("fuzz", "--target", "reference@0.33"), "did you mean reference@0.33.0?"),
        (("fuzz", "--target", "module:Class@0.33"), "did you mean module:Class@0.33.0?"),
        (("diff", "reference", "vllm@0.33"), "did you mean vllm@0.33.0?"),
        (("review", "--base", "vllm@0.33.0", "--head", "vllm@0.33"), "did you mean vllm@0.33.0?"),
        (("prove", "--target", "reference", "--target", "vllm@0.33"), "did you mean vllm@0.33.0?"),
        (("http", "--target", "engine@0.32"), "did you mean engine@0.32.0?"),
        (("check", "--release", "0.33"), "did you mean --release 0.33.0?"),
        (("simulate", "--release", "0.33"), "did you mean --release 0.33.0?"),
        (("vllm", "install", "0.33.0", "0.33"), "did you mean 0.33.0?"),
        (("vllm", "remove", "0.33"), "did you mean 0.33.0?"),
        (("connector", "install", "lmcache@0.6"), "did you mean lmcache@0.6.0?"),
        (("replay", "repeated-item@0.28"), "did you mean repeated-item@0.28.0?"),
        (("bisect", "repeated-item@0.28"), "did you mean repeated-item@0.28.0?"),
        (("fuzz", "--target", "reference@0.9.0"), "the reference models 0.10.2 and later"),
        (("fuzz", "--target", "path:/no/such/folder"), "/no/such/folder is no vLLM checkout"),
        (("fuzz", "--target", "path:/tmp/[/bold]"), "/tmp/[/bold] is no vLLM checkout"),
        (
            ("fuzz", "--target", f"path:{'a' * 5000}"),
            "name too long; expected the folder of a vLLM",
        ),
        (("fuzz", "--target", "path:~no-such-user"), "expected the folder of a vLLM checkout"),
        (("record", "/dev/null", "--", "true"), "DIR /dev/null: cannot be made"),
        ((*FUZZ, "--seeds", "5"), "expected A:B with A < B"),
        ((*FUZZ, "--seeds", "5:5"), "expected A:B with A < B"),
        ((*FUZZ, "--seeds", "a:b"), "expected A:B with A < B"),
        ((*FUZZ, "--seeds", "-1:5"), "expected A:B with A < B"),
        ((*FUZZ, "--seeds", "0:99999999999"), "expected A:B with A < B"),
        ((*FUZZ, "--seeds", "\u0661:\u0662"), "expected A:B with A < B"),
        ((*FUZZ, "--seconds", "0"), "'--seconds'"),
        ((*FUZZ, "--seconds", "-1"), "'--seconds'"),
        ((*FUZZ, "--seconds", "nan"), "'--seconds'"),
        ((*FUZZ, "--seconds", "inf"), "'--seconds'"),
        ((*FUZZ, "--seconds", "soon"), "'--seconds'"),
        ((*FUZZ, "--depth", "deep"), "expected one of manager, scheduler"),
        ((*FUZZ, "--against", "vllm@0.33.0"), "expected reference or none"),
        ((*FUZZ, "--json", "/no/such/folder/file"), "expected a file in a folder that exists"),
        ((*FUZZ, "--json", "/"), "expected a file in a folder that exists"),
        ((*FUZZ, "--json", ""), "expected a file in a folder that exists"),
        ((*FUZZ, "--findings", "/dev/null/findings"), "expected a folder"),
        ((*FUZZ, "--known", "/no/such/file"), "expected a folder with NAME/fault.toml"),
        ((*FUZZ, "--known", "/"), "expected a folder with NAME/fault.toml"),
        (("check", "--budget", "huge"), "expected one of short, full"),
        (("check", "--release", "newest"), "'newest' is no vLLM version"),
        (("diff", "reference"), "Missing argument 'T2'"),
        (("diff", "reference", "nope"), "expected reference[@VERSION]"),
        (("diff", "reference", "reference", "--seconds", "nan"), "'--seconds'"),
        (("vllm", "install"), "Missing argument"),
        (("connector", "install"), "Missing argument"),
        (("connector", "install", "redis"), "expected lmcache@VERSION"),
        (("connector", "install", "lmcache@"), "expected 0.5.6 or newer"),
        (("connector", "install", "lmcache@../x"), "expected 0.5.6 or newer"),
        (("connector", "install", "lmcache@0.5.5"), "expected 0.5.6 or newer"),
        ((*FUZZ[:1], "--target", "lmcache@x"), "expected 0.5.6 or newer"),
        (("vllm", "install", ""), "'' is no vLLM version"),
        (("vllm", "install", "../x"), "'../x' is no vLLM version"),
        (("vllm", "install", "0.33.0; ls"), "is no vLLM version"),
        (("vllm", "remove", "../x"), "'../x' is no vLLM version"),
        (("vllm", "remove", "9.9.9"), "vllm 9.9.9 is not installed"),
        (("replay", "/no/such/file"), "give a finding or a trace file"),
        (("replay", "/"), "give a finding or a trace file"),
        ((*REPLAY, "--html", "/no/such/folder/page"), "expected a file in a folder that exists"),
        ((*REPLAY, "--perfetto", "/"), "expected a file in a folder that exists"),
        ((*REPLAY, "--html", ""), "expected a file in a folder that exists"),
        ((*REPLAY, "--html", "/dev/shm/a", "--perfetto", "/dev/shm/a"), "expected two files"),
    ],
)
def test_an_argument_that_means_nothing(run: Run, arguments: tuple[str, ...], words: str) -> None:
    assert words in run(*arguments).refusal


@pytest.mark.parametrize("times", ["0", "-1", "1001", "often", "nan", ""])
def test_a_number_of_replays_that_means_nothing(run: Run, trace: Path, times: str) -> None:
    refusal = run("replay", trace, "--target", "reference", "--times", times).refusal
    assert "'--times'" in refusal


def test_a_trace_needs_a_target(run: Run, trace: Path) -> None:
    assert run("replay", trace).refusal.endswith("give one with --target")


def test_the_reference_refuses_what_its_release_lacks(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "trace.jsonl"
    path.write_text(
        '{"depth":"scheduler","schema":1,"manager":"encoder_cache","config":{"capacity":4,'
        '"compute_budget":4,"max_num_batched_tokens":8,"max_num_seqs":2,"max_model_len":16,'
        '"block_size":4,"num_blocks":8,"watermark":0.1}}\n'
    )
    refusal = run("replay", path, "--target", "reference@0.10.2").refusal
    assert "reference does not run this scheduler-depth trace" in refusal


BLOCKS = '{"depth":"block_hash","schema":1,"config":{"block_size":1%s}}\n'
ARRIVES = '{"event":"prompt","request":"a","tokens":[1]}\n'
GOES_ON = (
    '{"event":"decode","request":"a","tokens":[2]}\n'
    '{"event":"continue","request":"a","tokens":[3]}\n'
)


@pytest.mark.parametrize(
    ("text", "release", "words"),
    [
        (
            BLOCKS % ',"algorithm":"xxhash"' + ARRIVES,
            "0.12.0",
            "no block hash 'xxhash'; expected one of sha256, sha256_cbor",
        ),
        (BLOCKS % "" + ARRIVES + GOES_ON, "0.14.1", "does not continue requests"),
        (BLOCKS % ',"lookahead":1' + ARRIVES, "0.32.0", "do not look ahead"),
    ],
)
def test_a_trace_that_asks_for_more_than_the_release_has(
    run: Run, tmp_path: Path, text: str, release: str, words: str
) -> None:
    path = tmp_path / "trace.jsonl"
    path.write_text(text)
    assert words in run("replay", path, "--target", f"reference@{release}").refusal
    assert run("replay", path, "--target", "reference@0.33.0", "--times", 1).code in (0, 1)


SYMPTOM = b'title = "a title"\nharm = "safety"\n[[symptom]]\n'
KNOWN = {
    "no TOML": b"known = [",
    "not text": b"\xff\xfe\x00",
    "deep": b"known = " + b"[" * 10_000,
    "no list": b"known = 3",
    "a list of words": b'known = ["EC-1"]',
    "unknown field": b"unknown = 3",
    "a huge number": b"known = 1" + b"0" * 5000,
    "half an entry": SYMPTOM + b'contract = "EC-1"',
    "no contract": SYMPTOM + b'contract="XX-1"\nreleases="all"',
    "no harm": b'title = "a title"\nharm = "bad"',
    "no releases": SYMPTOM + b'contract="EC-1"\nreleases="newest"',
    "half a release": SYMPTOM + b'contract="EC-1"\nreleases=">="',
    "no lane": SYMPTOM + b'contract="EC-1"\nreleases="all"\nlanes=["l"]',
    "a list in one file": b'[[fault]]\nname = "a-fault"\n',
    "a name that its folder has": b'name = "a-fault"\n',
    "nothing": b"",
}


@pytest.mark.parametrize("name", KNOWN)
def test_a_list_of_known_faults_that_is_none(run: Run, tmp_path: Path, name: str) -> None:
    path = tmp_path / "fault.toml"
    path.write_bytes(KNOWN[name])
    refusal = run(*FUZZ, "--known", path).refusal
    assert refusal.startswith(f"{path}: ")
    assert "expected" in refusal


GARBAGE = {
    "empty": b"",
    "binary": bytes(range(256)),
    "truncated": TRACE.encode()[:-9],
    "deep": b"[" * 10_000,
    "another schema": TRACE.replace('"schema":1', '"schema":2').encode(),
    "unknown event": TRACE.replace('"walk"', '"run"').encode(),
    "huge number": TRACE.replace('"prompt":8', '"prompt":' + "9" * 4000).encode(),
    "NaN": TRACE.replace('"prompt":8', '"prompt":NaN').encode(),
    "byte order mark": b"\xef\xbb\xbf" + TRACE.encode(),
    "nine megabytes": TRACE.encode() + b" " * 9 * 2**20 + b"x",
    "half a finding": b'{"schema_version": 1',
    "another finding": b'{"schema_version": 2, "contract": "EC-1"}',
    "deep finding": b'{"schema_version": 1, "records": ' + b"[" * 10_000,
}


@pytest.mark.parametrize("name", GARBAGE)
def test_a_file_that_is_neither_finding_nor_trace(run: Run, tmp_path: Path, name: str) -> None:
    path = tmp_path / "garbage"
    path.write_bytes(GARBAGE[name])
    refusal = run("replay", path, "--target", "reference").refusal
    assert refusal.startswith(f"{path}")
    assert "expected" in refusal


@pytest.mark.parametrize("arguments", [(), ("vllm",)])
def test_without_a_command_there_is_help(run: Run, arguments: tuple[str, ...]) -> None:
    ran = run(*arguments)
    assert ran.code == 2
    assert "Usage: " in ran.out
    assert ran.err == ""


def test_names_that_look_like_markup_come_out_as_they_are(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "[bold]trace[italic].jsonl"
    path.write_text(TRACE.replace('"a"', '"[/red]"').replace('"x"', '"[bold]"'))
    assert run("replay", path, "--target", "reference").code == 0
    path.write_text(TRACE.replace('"schema":1', '"schema":2'))
    assert str(path) in run("replay", path, "--target", "reference").refusal
