"""The exit code of prove says whether all that is told holds; what it cannot read it refuses."""

import os
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from cacheproof.differential.errors import InputError
from cacheproof.differential.provision import releases
from cacheproof.differential.provision.releases import InstalledRelease
from cacheproof.differential.search import fault_folders
from cacheproof.differential.search.verdict import HOLDS, UNLISTED, VOID
from cacheproof.differential.texts.modelled import COMPONENTS
from cacheproof.output.console import CommandOutput
from cacheproof.proofs.symbolic.texts import ReadClass
from cacheproof.proving import proving
from cacheproof.proving.jobs import _digest_of_keys
from cacheproof.proving.proving import exit_code, listing
from cacheproof.proving.targets import (
    MANAGERS,
    Beside,
    Tree,
    listing_release,
    sources,
    wanted_trees,
)
from cacheproof.reference.releases import NEWEST
from cacheproof.spec.evidence import Evidence, Outcome, RedTwin
from tests.front.conftest import Run

ROW = Evidence(
    "EC-1", "reference", "EncoderCacheManager", "proof", "unbounded", Outcome.HOLDS, "", "d", 0.0,
    (RedTwin("a change", refuted=True),),
)  # fmt: skip


@pytest.mark.parametrize(
    ("outcome", "code"),
    [
        (Outcome.HOLDS, HOLDS),
        (Outcome.REFUTED, UNLISTED),
        (Outcome.UNKNOWN, VOID),
        (Outcome.ALONE, VOID),
        (Outcome.DISAGREE, VOID),
        (Outcome.VACUOUS, VOID),
    ],
)
def test_one_row_decides(outcome: Outcome, code: int) -> None:
    assert exit_code([ROW, replace(ROW, outcome=outcome)], set()) == code


def test_what_is_done_beside_tells_what_it_raised_as_soon_as_it_has() -> None:
    goes_on = threading.Event()

    def refuse() -> None:
        goes_on.wait()
        raise InputError("another text runs")

    beside = Beside(refuse)
    beside.check()
    goes_on.set()
    with pytest.raises(InputError, match="another text runs"):
        beside.end()
    with pytest.raises(InputError):
        beside.check()
    Beside(lambda: None).end()


def test_a_check_that_no_change_was_seen_to_fail_is_void() -> None:
    assert exit_code([replace(ROW, twins=())], set()) == VOID
    assert exit_code([], set()) == VOID


def test_what_is_listed_of_the_promised_release_does_not_count() -> None:
    fallen = replace(ROW, contract="ED-1", target="path:copy", outcome=Outcome.REFUTED)
    faults = fault_folders.load()
    fault = listing(fallen, faults, "0.33.0")
    assert fault is not None
    assert fault.name == "decoder-budget"
    assert listing(fallen, faults, "0.12.0") is None
    assert listing(fallen, faults, None) is None
    assert exit_code([ROW, fallen], {fallen}) == HOLDS


ENCODER, DECODER = "EncoderCacheManager", "EncoderDecoderCacheManager"


@pytest.fixture
def checkout(tmp_path: Path) -> Tree:
    """A checkout with all that is modelled of the newest release."""
    release = releases.install(NEWEST, report=print)
    for component in COMPONENTS:
        for path in component.paths:
            if (file := release.tree / "vllm" / path).is_file():
                copy = tmp_path / "vllm" / path
                copy.parent.mkdir(parents=True, exist_ok=True)
                copy.write_bytes(file.read_bytes())
    return Tree("path:copy", replace(release, tree=tmp_path, source=releases.CHECKOUT))


def test_only_a_class_that_reads_as_the_release_shows_the_faults_of_the_release(
    checkout: Tree,
) -> None:
    assert listing_release(None, ENCODER) is None
    own = Tree(f"vllm@{NEWEST}", releases.install(NEWEST, report=print))
    assert listing_release(own, ENCODER) == NEWEST
    assert [listing_release(checkout, one) for one in (ENCODER, DECODER)] == [NEWEST, NEWEST]
    managers = checkout.release.tree / MANAGERS
    before, of_decoder, rest = managers.read_text().partition(f"class {DECODER}")
    managers.write_text(before + of_decoder + rest.replace("self.num_free_slots += ", "pass; ", 1))
    changed = replace(checkout)
    assert [listing_release(changed, one) for one in (ENCODER, DECODER)] == [NEWEST, None]
    plugged = replace(checkout, plug_in=(managers, ENCODER))
    assert listing_release(plugged, ENCODER) is None


PLUG_IN = """
class Mine:
    def __init__(self, cache_size):
        self.cache_size = cache_size
"""


@pytest.fixture
def plug_ins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder, with a module that cannot be imported here."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "company").mkdir()
    (tmp_path / "company" / "plug_in.py").write_text("import their_accelerator\n" + PLUG_IN)
    return tmp_path


def test_a_plug_in_is_read_where_it_lies_in_the_place_of_a_manager(plug_ins: Path) -> None:
    wanted = wanted_trees(
        ["company.plug_in:Mine", "company.plug_in:Mine@0.28.0"], CommandOutput(None)
    )
    assert [one.promises for one in wanted if one is not None] == ["0.33.0", "0.28.0"]
    (newest, older) = (read for read in sources("EncoderCacheManager", wanted))
    assert (newest.target, older.target) == ("company.plug_in:Mine@0.28.0", "company.plug_in:Mine")
    assert newest.source.name == "Mine"
    assert list(newest.source.methods) == ["__init__"]
    assert list(sources("EncoderDecoderCacheManager", wanted)) == []


@pytest.mark.parametrize(
    ("target", "line"),
    [
        ("company.plug_in:Theirs", r"plug_in\.py: no class Theirs; expected that of MODULE:CLASS"),
        (
            "company.nothing:Mine",
            r"Mine: no module company\.nothing in .*; expected MODULE:CLASS, a manager",
        ),
        ("company:", r"'company:': expected reference\[@VERSION\], .* or MODULE:CLASS\[@VERSION\]"),
        (
            "company.plug_in:a-b",
            r"'company\.plug_in:a-b': expected reference\[@VERSION\], vllm@VERSION, .* MODULE:",
        ),
    ],
)
def test_a_plug_in_that_is_not_there_costs_a_line(plug_ins: Path, target: str, line: str) -> None:
    with pytest.raises(InputError, match=line):
        list(sources("EncoderCacheManager", wanted_trees([target], CommandOutput(None))))


def _installed(tree: Path, version: str = "0.33.0") -> InstalledRelease:
    """A release of which there is the text alone."""
    return InstalledRelease(
        version, tree, tree, Path(sys.executable), (), "sdist", "", "", pinned=True
    )


def test_what_is_kept_of_a_releases_keys_hangs_on_its_text_and_on_what_runs_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    release = _installed(tmp_path)
    found = {_digest_of_keys(release, 0), _digest_of_keys(release, 1)}
    for name in ("vllm/multimodal/hasher.py", "vllm/v1/utils.py"):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("changed = 1\n")
        found.add(_digest_of_keys(release, 0))
    monkeypatch.setattr("cacheproof.proving.jobs.inspect.getsource", lambda _: "another own run")
    found.add(_digest_of_keys(release, 0))
    monkeypatch.setattr("cacheproof.proving.jobs.code_digest", lambda *_: "another host")
    found.add(_digest_of_keys(release, 0))
    assert len(found) == 6


CLASS = "EncoderCacheManager"
TEXT = f"class {CLASS}:\n    pass\n"


def _read(tree: Path, name: str = CLASS) -> list[ReadClass]:
    return list(sources(name, [Tree("path:DIR", _installed(tree))]))


def _module(tree: Path, text: str) -> Path:
    module = tree / MANAGERS
    module.parent.mkdir(parents=True)
    module.write_text(text)
    return module


def test_the_managers_are_read(tmp_path: Path) -> None:
    _module(tmp_path, TEXT)
    assert [one.source.name for one in _read(tmp_path)] == [CLASS]
    assert _read(tmp_path, "BlockPool") == []


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", f"no class {CLASS}"),
        (TEXT.replace(CLASS, "Other"), f"no class {CLASS}"),
        (TEXT + "(", "was never closed"),
        (TEXT + "\0", "null bytes"),
        ("# coding: nosuch\n" + TEXT, "unknown encoding"),
        (TEXT + f"X = 1{' + 0' * 5000}\n", "nested too deeply"),
        (TEXT + f"X = {'-' * 20000}1\n", "nested too deeply"),
    ],
)
def test_a_module_without_the_class_is_refused(tmp_path: Path, text: str, says: str) -> None:
    _module(tmp_path, text)
    with pytest.raises(InputError, match=says):
        _read(tmp_path)


def test_a_release_without_the_other_manager_is_not_asked_for_it(tmp_path: Path) -> None:
    _module(tmp_path, TEXT)
    with pytest.raises(InputError, match="no class EncoderDecoderCacheManager"):
        _read(tmp_path, "EncoderDecoderCacheManager")
    release = _installed(tmp_path, "0.12.0")
    trees = [Tree("path:DIR", release)]
    assert list(sources("EncoderDecoderCacheManager", trees)) == []


def _package(module: Path) -> None:
    module.with_suffix("").mkdir()
    (module.with_suffix("") / "__init__.py").write_text("")


def _extension(module: Path) -> None:
    module.with_suffix(".cpython-311-x86_64-linux-gnu.so").write_bytes(b"")


def _pipe(module: Path) -> None:
    module.unlink()
    os.mkfifo(module)


@pytest.mark.parametrize("put", [_package, _extension])
def test_what_python_would_import_in_its_place_is_refused(
    tmp_path: Path, put: Callable[[Path], None]
) -> None:
    put(_module(tmp_path, TEXT))
    with pytest.raises(InputError, match=r"Python imports .*; expected"):
        _read(tmp_path)


def test_a_module_that_is_no_file_is_refused(tmp_path: Path) -> None:
    _pipe(_module(tmp_path, TEXT))
    with pytest.raises(InputError, match="is no file; expected the managers' module"):
        _read(tmp_path)


def refuse(_: object) -> None:
    raise InputError("--target path:copy: another text runs")


def interrupt(*_: object) -> None:
    raise KeyboardInterrupt


@pytest.mark.parametrize("prove_now", [lambda *_: None, interrupt], ids=["proved", "interrupted"])
def test_what_is_refused_beside_the_proofs_is_told_and_no_row_is(
    run: Run, monkeypatch: pytest.MonkeyPatch, prove_now: Callable[..., None]
) -> None:
    def prove_when_refused(*given: Any) -> None:
        with suppress(InputError):
            given[-1].__self__.end()
        prove_now()

    monkeypatch.setattr(proving, "refuse_all_changed", refuse)
    monkeypatch.setattr(proving, "prove_now", prove_when_refused)
    ran = run("prove", "--target", "reference")
    assert (ran.code, ran.out) == (2, "")
    assert ran.err.splitlines()[-1] == "cacheproof: --target path:copy: another text runs"


def test_an_interruption_says_that_nobody_has_looked_yet(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    goes_on = threading.Event()
    monkeypatch.setattr(proving, "refuse_all_changed", lambda _: goes_on.wait())
    monkeypatch.setattr(proving, "prove_now", interrupt)
    ran = run("prove", "--target", "reference", "--fresh")
    goes_on.set()
    assert ran.code == 130
    assert proving.NOT_SEEN in ran.out + ran.err
    monkeypatch.setattr(proving, "refuse_all_changed", lambda _: None)
    ran = run("prove", "--target", "reference", "--fresh")
    assert proving.NOT_SEEN not in ran.out + ran.err
