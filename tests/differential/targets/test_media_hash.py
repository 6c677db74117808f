"""The media hashers of real releases, through host processes; provisions what is missing."""

import re
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from cacheproof.differential.errors import InputError
from cacheproof.differential.media_hash_search import Search
from cacheproof.differential.targets import releases
from cacheproof.differential.targets.media_hash import NEWEST, MediaHashTarget

OTHERS = ("0.10.2", "0.11.0", "0.13.0", "0.14.1", "0.15.1", "0.18.1", "0.28.0", "0.30.0", "0.32.0")
SEEDS = range(2000)
FORMS = ("image_forms", "palettes", "reshaped_array", "retyped_array")


@contextmanager
def host(release: str) -> Iterator[MediaHashTarget]:
    target = MediaHashTarget(release)
    try:
        yield target
    finally:
        target.close()


@contextmanager
def reference(semantics: str, environment_of: str = NEWEST) -> Iterator[MediaHashTarget]:
    target = MediaHashTarget(environment_of, semantics=semantics)
    try:
        yield target
    finally:
        target.close()


def lockstep(version: str, semantics: str, algorithm: str, seeds: range) -> Search:
    with host(version) as real, reference(semantics, version) as ours:
        search = Search(real, ours, algorithm)
        search.run(seeds)
        return search


def test_the_newest_release_has_the_digests_of_the_reference() -> None:
    with host(NEWEST) as real, reference(NEWEST) as ours:
        for algorithm in ("blake3", "sha256", "sha512"):
            search = Search(real, ours, algorithm)
            search.run(SEEDS)
            assert search.parted == []
            assert search.hashed == 2 * len(SEEDS)


@pytest.mark.slow
@pytest.mark.parametrize("version", OTHERS)
def test_a_release_has_the_digests_of_the_reference(version: str) -> None:
    search = lockstep(version, version, "blake3", SEEDS)
    assert search.parted == []
    assert search.hashed > len(SEEDS)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("version", "before"),
    [("0.11.0", "0.10.2"), ("0.16.0", "0.15.1"), ("0.27.0", "0.18.1"), ("0.31.0", "0.30.0")],
)
def test_the_semantics_of_the_release_before_a_change_part(version: str, before: str) -> None:
    assert lockstep(before, version, "blake3", SEEDS).parted != []


def test_sound_semantics_part_from_the_newest_release_where_it_collides() -> None:
    parted = lockstep(NEWEST, "ideal", "blake3", range(200)).parted
    assert len(parted) > 100


def test_the_ideal_reference_keeps_every_contract_beside_torch() -> None:
    with reference("ideal") as ours:
        search = Search(ours)
        search.run(SEEDS)
    assert search.counts == {}
    assert not search.stray
    assert search.reached["array_or_tensor"] > 20


def test_two_processes_agree() -> None:
    with host(NEWEST) as one, host(NEWEST) as other:
        search = Search(one, other)
        search.run(range(200))
    assert search.parted == []


def test_the_public_collision_is_found_in_its_release_and_not_after_its_fix() -> None:
    found = {}
    for version in ("0.8.5", "0.9.0.1"):
        with host(version) as target:
            search = Search(target)
            search.run(range(5000))
        found[version] = {way for id, way in search.counts if id == "MH-3a"}
        assert min(search.reached[way] for way in FORMS) >= 100
    assert found["0.8.5"] >= set(FORMS)
    assert found["0.9.0.1"] == set()


def test_an_algorithm_that_a_release_lacks_is_refused_by_name() -> None:
    refusal = r"vllm@0.9.0.1: this release hashes media with blake3 alone, not sha256; expected"
    with host("0.9.0.1") as target, pytest.raises(InputError, match=refusal):
        Search(target, algorithm="sha256").run(range(1))


PAGES = sorted((Path(__file__).parents[3] / "docs" / "findings").glob("media-hash-*.md"))
BLOCK = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_what_a_page_says_of_the_newest_release_is_so(page: Path) -> None:
    command, environment = releases.host_command(releases.install(NEWEST, report=print))
    blocks = BLOCK.findall(page.read_text())
    assert blocks
    program = "\n".join(f"exec({block!r}, {{}})" for block in blocks)
    done = subprocess.run(
        [*command, "-P", "-c", program], env=environment, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr


def test_a_page_that_says_otherwise_fails() -> None:
    """The asserts of the pages are evaluated: none runs with them switched off."""
    command, environment = releases.host_command(releases.install(NEWEST, report=print))
    assert subprocess.run([*command, "-P", "-c", "assert 0"], env=environment).returncode == 1
