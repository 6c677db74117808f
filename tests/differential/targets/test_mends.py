"""Mends of listed faults: their files, their targets, and what a release decides with them."""

import os
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path

import pytest

from cacheproof.differential.errors import InputError
from cacheproof.differential.judges.examination import examine
from cacheproof.differential.provision import releases
from cacheproof.differential.provision.cache import Cache
from cacheproof.differential.provision.releases import InstalledRelease
from cacheproof.differential.search.attribution import Attribution
from cacheproof.differential.search.fault_folders import load
from cacheproof.differential.targets import mended
from cacheproof.differential.targets.named import named
from cacheproof.differential.targets.reference import ReferenceTarget
from cacheproof.differential.targets.resolve import resolve
from cacheproof.differential.texts import mends
from cacheproof.differential.texts.mends import Mend, apply, parse
from cacheproof.differential.traces.manager import Add, Update
from cacheproof.differential.traces.scheduler import (
    Chunk,
    Schedule,
    SchedulerConfig,
    SchedulerHeader,
)
from cacheproof.differential.traces.trace import Trace
from cacheproof.reference.releases import MODELLED, NEWEST
from cacheproof.reference.semantics import Semantics
from cacheproof.spec.versions import Versions

BEFORE = "0.10.1.1"
"""The last release that the reference does not model."""
MEND = """
does = "no more than one"
flags = ["scheduler.sends_all_items"]

[[text]]
releases = ">=0.33.0,<0.34.0"
functions = "def least(some):\\n    return min(some)"

[[text.edit]]
path = "vllm/a.py"
function = "pick"
expression = "max(some)"
instead = "least(some)"
"""
SOURCE = "def pick(some):\n    return max(some)\n"


@pytest.fixture
def two(monkeypatch: pytest.MonkeyPatch) -> Mapping[str, Mend]:
    """Two mends of the same place, and one that is the same as the first."""
    one = parse(MEND, "one")
    again = parse(MEND.replace("least", "last"), "two")
    found = {"one": one, "two": again, "twin": one}
    monkeypatch.setattr(mends, "mends", lambda: found)
    return found


def test_a_mend_changes_its_place_and_brings_its_functions(two: object) -> None:
    text = apply(["one", "twin"], "0.33.0", {"vllm/a.py": SOURCE})["vllm/a.py"]
    assert text == (
        "def pick(some):\n    return least(some)\n\n\ndef least(some):\n    return min(some)\n"
    )


@pytest.mark.parametrize(
    ("names", "source", "why"),
    [
        (["one"], "def pick(some):\n    return some[0]\n", "'max\\(some\\)' 0 times, not once"),
        (["one"], SOURCE + "def least(some):\n    pass\n", "has a function least already"),
        (["one", "two"], SOURCE, "faults/two/mend.toml: .* with the mends before it \\(one\\)"),
        (["one"], "def pick(:\n", "of another text than vLLM 0.33.0"),
    ],
)
def test_a_mend_of_another_text_is_refused(
    two: object, names: list[str], source: str, why: str
) -> None:
    with pytest.raises(InputError, match=why):
        apply(names, "0.33.0", {"vllm/a.py": source})


def test_a_mend_is_refused_for_another_release(two: object) -> None:
    with pytest.raises(InputError, match=r"one has no mend for vLLM 0\.32\.0"):
        apply(["one"], "0.32.0", {"vllm/a.py": SOURCE})


def test_a_mend_says_what_is_true_with_it_and_what_is_no_more(two: dict[str, Mend]) -> None:
    two["one"] = parse('without = ["front_end.sends_names_alone"]\n' + MEND, "one")
    assert mends.flags_of(["one"]) == {
        "scheduler.sends_all_items": True,
        "front_end.sends_names_alone": False,
    }
    assert mends.flags_of(["two"]) == {"scheduler.sends_all_items": True}


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("does = 3", "Expected `str`"),
        ("[[text]", "TOML|Expected"),
        (MEND.replace("sends_all_items", "sends_all"), "is no flag of the semantics"),
        ('without = ["front_end.sends"]\n' + MEND, "is no flag of the semantics"),
        (MEND.replace(">=0.33.0,<0.34.0", "newer"), "expected a mend"),
        ('does = "nothing"', "either texts or the fault that it is the same as"),
        ('same_as = "b"\n' + MEND, "either texts or the fault that it is the same as"),
        (MEND.replace("instead", "insted"), "insted"),
    ],
)
def test_a_file_that_is_no_mend_is_refused(text: str, why: str) -> None:
    with pytest.raises(InputError, match=why):
        parse(text, "faults/a/mend.toml")


def test_a_name_says_which_faults_are_mended(two: object) -> None:
    assert named("vllm@0.33.0+mended").mended == ("one", "two", "twin")
    assert named("vllm@0.33.0+mended:twin,one").mended == ("one", "twin")
    assert named("engine@0.33.0+mended-but:one").mended == ("two", "twin")
    assert named("vllm@0.33.0+mended-but:one").version == "0.33.0"
    assert not named("vllm@0.33.0").mended


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("vllm@0.33.0+mended:four", "'four' has no mend for vLLM 0.33.0; expected .* one, two"),
        ("vllm@0.33.0+mended-but", "'\\+mended-but'; expected"),
        ("vllm@0.33.0+mendedall", "'\\+mendedall'; expected"),
        ("vllm@0.30.0+mended", "no listed fault has a mend for vLLM 0.30.0"),
        ("vllm@0.33+mended", "names no release; did you mean"),
        ("lmcache@0.5.6+mended", "expected"),
    ],
)
def test_a_name_that_mends_nothing_is_refused(two: object, text: str, why: str) -> None:
    with pytest.raises(InputError, match=why):
        named(text)


def test_what_is_mended_is_not_listed_any_more() -> None:
    """What it breaks by another cause, which the mend does not take away, still is."""
    semantics = Semantics.of_vllm(NEWEST)
    target = ReferenceTarget(semantics, release=NEWEST)
    known = load()
    before = Attribution.of_target(known, target, target)._known
    target.mended = ("phantom-entry",)
    after = Attribution.of_target(known, target, target)._known
    flags = [
        {(one.name, *cause.flags) for one in several for cause in one.cause}
        for several in (before, after)
    ]
    assert flags[0] - flags[1] == {("phantom-entry", "scheduler.hands_on_encodes")}


def test_a_kind_of_break_that_a_mend_leaves_stays_listed() -> None:
    target = ReferenceTarget(Semantics.of_vllm(NEWEST), release=NEWEST)
    target.mended = ("connector-not-reset", "another-model-in-the-folder")
    left = {one.name: one for one in Attribution.of_target(load(), target, target)._known}
    assert not {"another-model-in-the-folder"} & left.keys()
    kinds = {(one.contract, one.kind) for one in left["connector-not-reset"].symptom}
    assert kinds == {("EX-7", "reset while the store was out of reach")}


def test_a_mend_is_for_releases_that_have_its_fault() -> None:
    for name, mend in mends.mends().items():
        assert mend.does, name
        for text in mend.text:
            assert any(release in Versions(text.releases) for release in (BEFORE, *MODELLED)), name


@pytest.mark.sample(6)
@pytest.mark.parametrize("release", [one for one in MODELLED if mends.mended_in(one)])
def test_all_mends_of_a_release_go_together(release: str, tmp_path: Path) -> None:
    """Each is of that release's text, alone and behind all the others."""
    installed = releases.find(release) or releases.find(release, kind=releases.ENGINE)
    if installed is None:
        pytest.skip(f"vLLM {release} is not installed")
    names = mends.mended_in(release)
    for several in ([name] for name in names):
        assert apply(several, release, mended.Sources(installed.tree))
    for path, text in apply(names, release, mended.Sources(installed.tree)).items():
        compile(text, path, "exec")


def test_a_mended_tree_is_links_and_the_changed_files(two: object, tmp_path: Path) -> None:
    tree = tmp_path / "tree"
    (tree / "vllm" / "b").mkdir(parents=True)
    (tree / "vllm" / "a.py").write_text(SOURCE)
    (tree / "vllm" / "b" / "c.py").write_text("")
    (tree / "RECORD").write_text("")
    draft = tmp_path / "draft"
    mended.link_tree(tree, draft, {"vllm/a.py": "changed"})
    assert (draft / "vllm" / "a.py").read_text() == "changed"
    assert (draft / "vllm" / "b").is_symlink()
    assert (draft / "RECORD").is_symlink()
    assert (tree / "vllm" / "a.py").read_text() == SOURCE


def test_a_mended_tree_that_nobody_asks_for_any_more_goes(two: object, tmp_path: Path) -> None:
    tree, cache = tmp_path / "tree", Cache(tmp_path / "cache")
    (tree / "vllm").mkdir(parents=True)
    (tree / "vllm" / "a.py").write_text(SOURCE)
    installed = InstalledRelease("0.33.0", tree, tree, tree, (), "sdist", "", "", pinned=True)
    forgotten, asked_for = cache.mended / "forgotten", cache.mended / "asked for"
    for other in (forgotten, asked_for):
        other.mkdir(parents=True)
    os.utime(forgotten, (0, 0))
    first = mended.tree_of(installed, ["one"], report=print, cache=cache)
    assert first.tree.is_dir()
    assert asked_for.is_dir()
    assert not forgotten.is_dir()
    os.utime(first.tree, (0, 0))
    assert mended.tree_of(installed, ["one"], report=print, cache=cache) == first
    assert first.tree.stat().st_mtime > 0


@pytest.mark.full
@pytest.mark.parametrize(("name", "breaks"), [("+mended:session-length", set()), ("", {"SC-17"})])
def test_a_session_that_outgrows_the_model_ends_and_takes_no_further_chunk(
    name: str, breaks: set[str]
) -> None:
    target = resolve(f"vllm@{NEWEST}{name}", report=print)
    config = SchedulerConfig(8, 8, 32, 4, max_model_len=32, block_size=16, num_blocks=9)
    first, second = Chunk("a", 30), Chunk("a", 1)
    ran = (Schedule(), Update())
    with closing(target):
        for events in (
            (Add("a", 30, resumable=True), *ran, first, second, *ran, Add("b", 20), *ran),
            (Add("a", 30, resumable=True), first, *ran, *ran, Add("b", 20), *ran),
        ):
            trace = Trace(SchedulerHeader(schema=1, manager="encoder_cache", config=config), events)
            (result,) = target.run([trace])
            assert set(examine(trace, result, target).violations) == breaks
