"""Hostile input: what strangers may write on the command line and into every kind of file.

A case is made by its number alone, so that one that goes wrong can be made again.
"""

import io
import json
import os
import random
import shutil
import struct
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from PIL import Image

from cacheproof.differential.provision.checkouts import HOSTED_MODULES
from cacheproof.reference.releases import MODELLED

ROOT = Path(__file__).resolve().parents[2]
TRACES = sorted((ROOT / "faults").glob("*/trace*.jsonl"))
FINDING = ROOT / "tests" / "differential" / "findings" / "data" / "scheduler_finding.json"
KNOWN = sorted((ROOT / "faults").glob("*/fault.toml"))

Rng = random.Random
Make = Callable[[Rng, Path], list[str]]
"""Writes files into a folder, and returns the words behind `cacheproof`, which runs there."""

ESCAPES = (
    "\x1b[2J\x1b]0;title\x07", "\x9b31m", "\u202eesrever", "\x00", "\r", "a\nb", "\x7f", "\b" * 9,
)  # fmt: skip
WORDS = (
    *ESCAPES[:3], "a\nb", "", " ", "-", "--", "--help", "--json", "x" * 5000, "é", "日本", "[/red]",
    "[bold]", "{}", "{0}", "%s", "$(id)", "`id`", "; ls", "../../no/such", "/", ".", "..", "~",
    "*", "nan", "inf", "-1", "0", "1", "1e9", "9" * 30, "0x10", "1_000", "\u0663", "true", "None",
    "null",
)  # fmt: skip
TARGETS = (
    "reference", "reference@", "reference@99", "reference@0.8.0", "reference@0.10.9",
    "reference@-1", "reference@0.33.0\n", "reference@0.33.0@1", "vllm", "vllm@", "vllm@../..",
    "vllm@0.33.0/../x", "vllm@0..1", "vllm@1" + "0" * 40, "vllm@\x1b[31m", "engine@", "engine@x",
    "path:", "path:/", "path:.", "path:/dev/null", "path:no such", "path:[/red]", "path:a\nb",
    ":", "a:", ":b", "a:b:c", "a:b@", "a:b@x", "os:9", "..:x", "a/b:c@", "module:Class@nope",
    "reference:x@",
)  # fmt: skip
NO_TARGETS = [one for one in TARGETS if not one.startswith("reference")]
VERSIONS = (
    "", "0", "0.33.0", "../x", "0.33.0/..", "-1", "1e3", "0.33.0\x1b[0m", "\u0660.\u0663",
    "x" * 300,
)  # fmt: skip
SEEDS = (
    "0:0", "1:0", "-1:1", "0:1:2", ":", "a:b", "0:" + "9" * 30, "0.5:1", " 0:1", "0:1\n",
    "\u0660:\u0661",
)  # fmt: skip
DEPTHS = "manager", "scheduler", "engine", "block_hash", "deep", "", "manager,scheduler", "\x1b[31m"
JUNK: tuple[Any, ...] = (
    None, True, 0, -1, 1.5, 2**31, 2**63, 10**30, -(10**400), 1e308, float("nan"), float("inf"),
    "", "x",
    *ESCAPES, "\ud800",
    "'''\"\"\"\\", "{{ 7 }}{% x", "y" * 3000, [], {}, [[]], {"": None}, [None] * 99,
)  # fmt: skip
NUMBERS = 0, 1, 2, 3, 7, 64, 1000, 10**6, 2**20, 2**31 - 1
NAMES = "'", '"', "'''\"\"\"", "\\", "{{ 7 }}", "{% x", "[/red]", "é", "ª", "#", "None"
TEXTS_OF_A_FINDING = (
    "title", "source", "harm", "target", "sentence", "why", "generator", "replays", "known",
    "known_note", "shape", "kind", "standalone", "release",
)  # fmt: skip


@dataclass(frozen=True)
class Case:
    """Number `number`: what `make` writes and says; `is_slow` where it starts a host or torch."""

    number: int
    kind: str
    make: Make
    is_slow: bool = False

    def prepare(self, folder: Path) -> list[str]:
        """Write its files into the folder. Returns the words behind `cacheproof`."""
        return self.make(random.Random(self.number), folder)

    def __str__(self) -> str:
        return f"case {self.number} ({self.kind})"


def cases(count: int, start: int = 0) -> Iterator[Case]:
    """Cases from number `start` on: of all kinds in turn, one in twenty a slow one."""
    for number in range(start, start + count):
        turn, place = divmod(number, SLOW_EVERY)
        if place == SLOW_EVERY - 1:
            name = SLOW_TURNS[turn % len(SLOW_TURNS)]
            yield Case(number, name, SLOW[name], is_slow=True)
        else:
            name = sorted(QUICK)[(turn * (SLOW_EVERY - 1) + place) % len(QUICK)]
            yield Case(number, name, QUICK[name])


# The command line.


def _words(rng: Rng, folder: Path) -> list[str]:
    """A command with options and words that mean little together; none of them searches."""
    options: dict[str, tuple[str, ...]] = {
        "--target": TARGETS, "--depth": DEPTHS, "--seeds": SEEDS, "--against": WORDS,
        "--known": WORDS,
        "--seconds": WORDS, "--scope": WORDS, "--budget": WORDS, "--release": VERSIONS,
        "--times": WORDS,
        "--seed": WORDS, "--prompt": WORDS, "--model": WORDS, "--device": WORDS, "--blocks": WORDS,
        "--findings": ("/dev/null/x", "\x1b[31m/../../dev/null/y", "a\nb"), "--max-tokens": WORDS,
        "--json": ("/no/such/\x1b[2J", "/", "", "/dev/full", "a/../b/c"), "--toml": ("/",
        "/dev/full"),
    }  # fmt: skip
    of_command = {
        ("check",): ("--budget", "--release", "--known"),
        ("contracts",): ("--json",),
        ("fuzz",): (
            "--target",
            "--depth",
            "--seeds",
            "--against",
            "--seconds",
            "--known",
            "--json",
        ),
        ("prove",): ("--target", "--seed", "--known"),
        ("replay",): ("--target", "--times", "--json"),
        ("diff",): ("--depth", "--seconds"),
        ("explore",): ("--target", "--scope", "--findings"),
        ("generate",): ("--prompt", "--model", "--device", "--blocks", "--max-tokens"),
        ("gallery",): ("--json",),
        ("vllm", "install"): (),
        ("vllm", "remove"): (),
        ("vllm", "list"): ("--json",),
        ("vllm", "texts"): ("--toml",),
    }
    stops = {
        ("check",): ["--budget", "huge"],
        ("fuzz",): ["--target", rng.choice(NO_TARGETS)],
        ("prove",): ["--target", rng.choice(NO_TARGETS)],
        ("replay",): ["no such file"],
        ("diff",): ["reference", rng.choice(NO_TARGETS)],
        ("explore",): ["--scope", "huge"],
        ("generate",): ["--prompt", "<image>"],
        ("gallery",): ["--explode"],
    }
    command = rng.choice(list(of_command))
    words = list(command)
    for name in of_command[command]:
        if rng.random() < 0.5:
            words += [name, rng.choice(options[name])]
    if command in (("vllm", "install"), ("vllm", "remove")):
        words += rng.choices(VERSIONS, k=rng.randint(0, 3))
    words += stops.get(command, [])  # what is said last is what counts, and nothing is searched
    if rng.random() < 0.3:
        words.insert(rng.randint(1, len(words)), rng.choice([*WORDS, "--explode", "\x1b[0m"]))
    return [word.replace("\0", "") for word in words]


def _targets(rng: Rng, folder: Path) -> list[str]:
    """A target alone that is none."""
    target = rng.choice(NO_TARGETS)
    command = rng.choice(["fuzz", "diff", "explore", "prove", "replay"])
    rest = {
        "fuzz": ["--target", target],
        "diff": ["reference", target],
        "explore": ["--target", target],
        "prove": ["--target", target],
        "replay": [_trace_file(TRACES[0].read_bytes(), folder), "--target", target],
    }[command]
    return [command, *(word.replace("\0", "") for word in rest)]


# JSON.


def _places(content: Any, before: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    inside = content.items() if isinstance(content, dict) else ()
    if isinstance(content, list):
        inside = enumerate(content)
    for key, value in inside:
        yield (*before, key)
        yield from _places(value, (*before, key))


def _spoil(content: Any, rng: Rng, times: int) -> Any:
    """Junk in a few places, fields that are gone or doubled."""
    for _ in range(times):
        places = list(_places(content))
        if not places:
            break
        *path, last = rng.choice(places)
        inner = content
        for key in path:
            inner = inner[key]
        match rng.randrange(4):
            case 0 if isinstance(inner, dict):
                del inner[last]
            case 1 if isinstance(inner, dict):
                inner[rng.choice(["x", "", "\x1b[2J", str(last) + " "])] = inner[last]
            case 2 if isinstance(inner, list):
                inner.insert(last, json.loads(json.dumps(inner[last])))
            case _:
                inner[last] = rng.choice(JUNK)
    return content


def _damage(data: bytes, rng: Rng) -> bytes:
    """What becomes of a file on its way."""
    place = rng.randrange(len(data) + 1)
    match rng.randrange(12):
        case 0:
            return data[:place]
        case 1:
            return data[:place] + bytes([rng.randrange(256)]) + data[place + 1 :]
        case 2:
            return data[:place] + b"\0" * rng.randint(1, 999) + data[place:]
        case 3:
            return b"\xef\xbb\xbf" + data
        case 4:
            return data.decode(errors="replace").encode("utf-16")
        case 5:
            return data.replace(b"\n", b"\r")
        case 6:
            return data[:place] + b"[" * rng.choice([100, 1000, 100_000]) + data[place:]
        case 7:
            return zlib.compress(data)
        case 8:
            return rng.randbytes(rng.randint(0, 4000))
        case 9:
            return b""
        case 10:
            return data + data
        case _:
            return data[:place] + b"\\ud800\x1b[2J\xff" + data[place:]


def _dumped(content: Any) -> bytes:
    return json.dumps(content, indent=1).encode()


def _finding(rng: Rng, folder: Path) -> list[str]:
    content = json.loads(FINDING.read_text())
    match rng.randrange(4):
        case 0:
            data = _dumped(_spoil(content, rng, rng.randint(1, 3)))
        case 1:
            data = _damage(_dumped(content), rng)
        case 2:
            content["digest"] = rng.choice(["", "0" * 64, content["digest"].upper(), "\x1b[2J"])
            data = _dumped(content)
        case _:
            data = _dressed(content, rng)
    target = (
        [] if rng.random() < 0.2 and b'"vllm@0' not in data else ["--target", "reference@0.28.0"]
    )
    file = _written(
        folder / rng.choice(["finding.json", "a\nb.json", "\x1b[2J.json", "-.json"]), data
    )
    return ["replay", *target, "--times", "1", *rng.choice([(), ("--json", "-")]), file]


def _dressed(content: Any, rng: Rng) -> bytes:
    """A finding that is true, with other words about it."""
    for name in rng.sample(TEXTS_OF_A_FINDING, 4):
        content[name] = "".join(rng.choices([*ESCAPES, "words", "[/red]", "{}"], k=3))
    return _dumped(content)


def _trace_file(data: bytes, folder: Path) -> str:
    return _written(folder / "trace.jsonl", data)


def _written(path: Path, data: bytes) -> str:
    path.write_bytes(data)
    return path.name


def _nudge(lines: list[Any], rng: Rng) -> None:
    """Other numbers and names, which may be legal."""
    places = []
    for place in _places(lines):
        *path, last = place
        inner: Any = lines
        for key in path:
            inner = inner[key]
        if type(inner[last]) is int or last in ("request", "identifier"):
            places.append((inner, last))
    for inner, last in rng.sample(places, min(len(places), rng.randint(1, 3))):
        inner[last] = rng.choice(NAMES if isinstance(inner[last], str) else NUMBERS)


def _trace(rng: Rng, folder: Path) -> list[str]:
    data = rng.choice(TRACES).read_bytes()
    lines = [json.loads(line) for line in data.splitlines()]
    match rng.randrange(8):
        case 0 | 1:
            data = _damage(data, rng)
        case 2 | 3:
            data = _lines(_spoil(lines, rng, rng.randint(1, 3)))
        case 4:
            lines[1:] = rng.sample(lines[1:], len(lines) - 1)
            data = _lines(lines)
        case _:
            _nudge(lines, rng)
            data = _lines(lines)
    target = rng.choice(["reference", f"reference@{rng.choice(MODELLED[-9:])}"])
    file = _trace_file(data, folder)
    return ["replay", file, "--target", target, "--times", "1", *rng.choice([(), ("--json", "-")])]


def _lines(content: Any) -> bytes:
    return b"\n".join(json.dumps(line).encode() for line in content)


# Lists, records and proofs.


def _known(rng: Rng, folder: Path) -> list[str]:
    """Read before the target, which is none."""
    file = _written(folder / "fault.toml", _known_text(rng))
    command = rng.choice([["fuzz", "--target"], ["explore", "--target"], ["prove", "--target"]])
    return [*command, "no target", "--known", file]


def _known_text(rng: Rng) -> bytes:
    text = rng.choice(KNOWN).read_text()
    junk = rng.choice(
        [
            "-1",
            "1" + "0" * 30,
            "nan",
            '"\\u001b[2J"',
            "[" * 2000,
            "[-1]",
            "{}",
            "2020-01-01",
            '"""',
            "'",
        ]
    )
    lines = text.splitlines()
    at = rng.randrange(len(lines))
    if "=" in lines[at]:
        lines[at] = f"{lines[at].partition('=')[0]}= {junk}"
    extra = rng.choice(
        ["", "seeds = [-1]", f"seeds = [{10**30}]", "\x1b[2J = 3", "[[[", f"x = {junk}"]
    )
    data = "\n".join([*lines, extra]).encode()
    return _damage(data, rng) if rng.random() < 0.4 else data


RECORD = {
    "schema": 1, "version": "0.33.0", "source": "sdist", "archive": "vllm.tar.gz",
    "sha256": "0" * 64,
    "pinned": True, "files": 1, "proven_with": "x", "proven_modules": ["vllm"],
}  # fmt: skip


def _record(rng: Rng, folder: Path) -> list[str]:
    """What says of a release in the cache folder that it is there."""
    release = folder / "home" / "releases" / rng.choice(["0.33.0", "0.1", "x", "\x1b[2J", "a\nb"])
    release.mkdir(parents=True)
    content = _spoil(dict(RECORD), rng, rng.randint(0, 2))
    data = _dumped(content) if rng.random() < 0.5 else _damage(_dumped(content), rng)
    match rng.randrange(4):
        case 0:
            (release / "release.json").mkdir()
        case 1:
            (release / "release.json").symlink_to("release.json")
        case _:
            (release / "release.json").write_bytes(data)
    return [
        "vllm",
        *rng.choice([("list",), ("list", "--json", "-"), ("texts",), ("remove", "0.33.0")]),
    ]


def _proofs(rng: Rng, folder: Path) -> list[str]:
    """Proofs that are kept, for somebody who wants to see nothing of them proved."""
    home = folder / "home" / "proofs"
    for number in range(3):
        path = home / rng.choice(["x" * 32, "\x1b[2J"]) / f"{number:064}.json"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(_damage(b'{"rows":"[]","seal":"0"}', rng))
    (home / "seal.key").write_bytes(rng.randbytes(rng.choice([0, 1, 32])))
    return ["prove", "--target", rng.choice(["reference@", "no target", "path:."])]


# Files that are none, and folders.


def _odd_file(rng: Rng, folder: Path) -> str:
    path = folder / "odd"
    match rng.randrange(9):
        case 0:
            os.mkfifo(path)
        case 1:
            path.mkdir()
        case 2:
            path.symlink_to(path.name)
        case 3:
            path.symlink_to("nowhere/\x1b[2J")
        case 4:
            with path.open("wb") as file:
                file.truncate(1 << 40)
        case 5:
            path.write_bytes(b"")
        case 6:
            return "x" * 300
        case _:
            return rng.choice(
                ["/dev/zero", "/dev/full", "/dev/random", "/dev/tty", "/proc/self/mem"]
            )
    return path.name


def _odd(rng: Rng, folder: Path) -> list[str]:
    """No regular file, where a file is read or written."""
    file = _odd_file(rng, folder)
    trace = _trace_file(TRACES[0].read_bytes(), folder)
    commands: tuple[list[str], ...] = (
        ["replay", file, "--target", "reference"],
        ["fuzz", "--target", "no target", "--known", file],
        ["replay", trace, "--target", "no target", "--json", file],
        ["vllm", "texts", "--toml", file],
        ["fuzz", "--target", "no target", "--findings", f"{file}/x"],
        ["generate", "--prompt", "<image>", "--image", file],
        ["generate", "--prompt", "<video>", "--model", "qwen2_5_vl", "--video", file],
        ["generate", "--prompt", "<audio>", "--model", "whisper", "--audio", file],
        ["generate", "--prompt", "w1", "--model", file],
        ["fuzz", "--target", f"path:{file}"],
    )
    return rng.choice(commands)


MODELLED_FILE = "vllm/v1/core/encoder_cache_manager.py"


def _checkout(rng: Rng, folder: Path) -> list[str]:
    """A folder that may be taken for vLLM's sources, and is refused by what can be read of it."""
    tree = folder / rng.choice(["tree", "\x1b[2J", "a\nb", "[bold]"])
    (tree / "vllm/v1/core").mkdir(parents=True)
    (tree / "vllm/__init__.py").write_text("")
    file = tree / MODELLED_FILE
    match rng.randrange(7):
        case 0:
            file.write_text("def x(:\n")
        case 1:
            file.write_text("x = " + "(" * rng.choice([150, 10_000, 300_000]))
        case 2:
            file.write_bytes(b"\0\xff" * 99)
        case 3:
            file.write_text("x = " + "-" * 100_000 + "1")
        case 4:
            shutil.rmtree(tree / "vllm")
            (tree / "vllm").symlink_to("vllm")
        case 5:
            (tree / "vllm/__init__.py").unlink()
            os.mkfifo(tree / "vllm/__init__.py")
        case _:
            (tree / "vllm/__init__.py").unlink()
            (tree / "vllm/__init__.py").symlink_to("/dev/zero")
    return [rng.choice(["fuzz", "explore", "prove"]), "--target", f"path:{tree.name}"]


# Media and models.


def _png(width: int, height: int, *further: tuple[bytes, bytes]) -> bytes:
    def chunk(name: bytes, data: bytes) -> bytes:
        return (
            struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))
        )

    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    rows = zlib.compress(b"\0" * 10_000_000)
    parts = (b"IHDR", header), *further, (b"IDAT", rows), (b"IEND", b"")
    return b"\x89PNG\r\n\x1a\n" + b"".join(chunk(*part) for part in parts)


@cache
def _film(kind: str, frames: int, side: int) -> bytes:
    first, *rest = (Image.new("RGB", (side, side), (number, 0, 0)) for number in range(frames))
    file = io.BytesIO()
    first.save(file, kind, save_all=True, append_images=rest, duration=9)
    return file.getvalue()


def _riff(rng: Rng) -> bytes:
    """A WAV file that says more of itself than there is."""
    size = rng.choice([0, 1, 3, 4, 2**31, 2**32 - 1])
    head = struct.pack(
        "<HHIIHH", rng.choice([1, 1, 1, 0, 3, 0xFFFE]), rng.choice([1, 1, 0, 65535]),
        rng.choice([16_000, 16_000, 0, 2**32 - 1]), 32_000, 2, rng.choice([16, 16, 8, 0, 65535]),
    )  # fmt: skip
    body = (
        b"fmt "
        + struct.pack("<I", len(head))
        + head
        + b"data"
        + struct.pack("<I", size)
        + b"\1" * 3
    )
    return b"RIFF" + struct.pack("<I", rng.choice([len(body) + 4, 2**32 - 1, 0])) + b"WAVE" + body


def _sound(rng: Rng, folder: Path) -> list[str]:
    """A sound that is refused by its beginning."""
    data = _riff(rng)
    if data[20:22] == b"\1\0" and data[22:24] == b"\1\0":  # it would be heard
        data = _damage(data[:40], rng)
    file = _written(folder / "a.wav", data)
    return ["generate", "--model", "whisper", "--prompt", "<audio>", "--audio", file]


def _bomb(rng: Rng, folder: Path) -> list[str]:
    """A picture, film or sound that stands for more than there is room for."""
    option, model, data = "--image", "llava", b""
    match rng.randrange(8):
        case 0:
            data = _png(rng.choice([2**16, 2**31 - 1]), rng.choice([2**16, 2**31 - 1]))
        case 1:
            data = _png(5000, 5000, (b"zTXt", b"a\0\0" + zlib.compress(b"a" * 200_000_000)))
        case 2:
            data = b"GIF89a" + struct.pack("<HH", 65535, 65535) + b"\0\0\0," + rng.randbytes(40)
        case 3:
            option, model = "--video", "qwen2_5_vl"
            data = _film("GIF", 60, 20).replace(
                struct.pack("<HH", 20, 20), struct.pack("<HH", 40_000, 40_000), 1
            )
        case 4:
            option, model = "--video", "qwen2_5_vl"
            data = _damage(_film(rng.choice(["GIF", "PNG", "WEBP"]), 5, 30), rng)
        case 5:
            option, model = "--video", "qwen2_5_vl"
            data = _png(9, 9, (b"acTL", struct.pack(">II", 2**31 - 1, 0)))
        case 6:
            option, model, data = "--audio", "whisper", b"RIFF" + _riff(rng)[4:]
        case _:
            kind = rng.choice(["PNG", "JPEG", "BMP", "TIFF", "WEBP", "GIF"])
            data = _damage(_film("GIF", 1, 30) if kind == "GIF" else _still(kind), rng)
    file = _written(folder / "medium", data)
    mark = option.removeprefix("--")
    return ["generate", "--model", model, "--prompt", f"<{mark}>", option, file]


@cache
def _still(kind: str) -> bytes:
    file = io.BytesIO()
    Image.new("RGB", (40, 30), (1, 2, 3)).save(file, kind)
    return file.getvalue()


def _model_folder(rng: Rng, folder: Path, config: Any) -> str:
    model = folder / "model"
    model.mkdir()
    data = config if isinstance(config, bytes) else _dumped(config)
    (model / "config.json").write_bytes(data)
    header = rng.choice(
        [b"{}", b"[" * 99, _dumped({"w": {"dtype": "F32", "shape": [2**60], "x": 1}})]
    )
    size = rng.choice([0, len(header), 2**63, 2**64 - 1])
    (model / "model.safetensors").write_bytes(struct.pack("<Q", size) + header)
    return model.name


def _no_model(rng: Rng, folder: Path) -> list[str]:
    """A model that is refused by its configuration."""
    config = rng.choice(
        [
            b"",
            b"{",
            b"[" * 100_000,
            b"\xff",
            b"[]",
            b"3",
            {},
            *({"model_type": one} for one in JUNK),
        ]
    )
    return ["generate", "--prompt", "w1", "--model", _model_folder(rng, folder, config)]


def _lying_model(rng: Rng, folder: Path) -> list[str]:
    """A model whose configuration names a kind, and whose files are not what they say."""
    kind = rng.choice(["llava", "whisper", "qwen2_5_vl"])
    config = {"model_type": kind, "text_config": rng.choice(JUNK), "hidden_size": rng.choice(JUNK)}
    config["auto_map"] = {"AutoConfig": "evil.Config", "AutoProcessor": "evil.Processor"}
    name = _model_folder(rng, folder, config)
    (folder / name / "evil.py").write_text("open('pwned', 'w')")
    for other in ("processor_config.json", "tokenizer.json", "preprocessor_config.json"):
        if rng.random() < 0.5:
            (folder / name / other).write_bytes(_damage(_dumped(config), rng))
    return ["generate", "--prompt", "w1", "--model", name]


# Hosts.

PLUG_INS = {
    "raises": "raise ValueError('a\\nb\\x1b[2J')",
    "raises within": "def f():\n    return {}['no']\nf()",
    "exits": "import sys\nsys.exit('words')",
    "ends": "import os\nos._exit(7)",
    "forks": "import os, time\nif os.fork() == 0:\n    time.sleep(999)\nos._exit(3)",
    "floods": "import sys\nwhile True:\n    sys.stderr.write('\\x1b[2J' * 9999)",
    "prints": "print('x' * 9999999)\nraise KeyError('k')",
    "closes": "import os\nos.closerange(0, 99)",
    "lacks": "import nothing_of_that_name",
    "no Python": "def f(:",
    "no class": "Class = 3",
}


def _plug_in(rng: Rng, folder: Path) -> list[str]:
    (folder / "plugged.py").write_text(PLUG_INS[rng.choice(sorted(PLUG_INS))])
    return ["fuzz", "--target", "plugged:Class@0.33.0", "--depth", "manager", "--seeds", "0:1"]


def _hosted(rng: Rng, folder: Path) -> list[str]:
    """A trace that a real release is given."""
    words = _trace(rng, folder)
    words[words.index("--target") + 1] = "vllm@0.33.0"
    return words


def _empty_checkout(rng: Rng, folder: Path) -> list[str]:
    tree = folder / "tree"
    for module in HOSTED_MODULES:
        file = tree.joinpath(*module.split(".")).with_suffix(".py")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.touch()
    (tree / "vllm/__init__.py").write_text(
        PLUG_INS[rng.choice(["raises", "ends", "exits", "closes"])]
    )
    return ["fuzz", "--target", "path:tree", "--depth", "manager", "--seeds", "0:1"]


def _listed(rng: Rng, folder: Path) -> list[str]:
    """A search with a list of known faults that may be one."""
    file = _written(folder / "fault.toml", _known_text(rng))
    lane = ["--depth", "manager", "--seeds", "0:1"]
    return ["fuzz", "--target", f"reference@{rng.choice(MODELLED)}", "--known", file, *lane]


QUICK: dict[str, Make] = {
    "words": _words, "targets": _targets, "finding": _finding, "trace": _trace, "known": _known,
    "record": _record, "proofs": _proofs, "odd file": _odd, "checkout": _checkout, "sound": _sound,
    "no model": _no_model,
}  # fmt: skip
SLOW: dict[str, Make] = {
    "bomb": _bomb, "lying model": _lying_model, "plug-in": _plug_in, "hosted": _hosted,
    "empty checkout": _empty_checkout, "listed": _listed,
}  # fmt: skip
SLOW_EVERY = 20
SLOW_TURNS = [name for other in sorted(SLOW.keys() - {"bomb"}) for name in ("bomb", other)]
"""Every other one is a bomb, which takes a second or two where others take ten."""
