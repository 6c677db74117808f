"""What is known of the releases' texts, and what is said of a text that is not one of theirs."""

import tomllib
from dataclasses import replace
from pathlib import Path

import pytest

from cacheproof.differential.provision import sources
from cacheproof.differential.provision.versions import order
from cacheproof.differential.texts import known_texts, texts
from cacheproof.differential.texts.known_texts import ABSENT, KnownTexts, Reading, written
from cacheproof.reference.releases import FIRST_MODELLED, MODELLED, NEWEST
from cacheproof.spec.versions import release_key

KNOWN = known_texts.load()


def stale(known: KnownTexts, trees: dict[str, Path]) -> list[str]:
    """The releases whose trees do not read as the table says."""
    found = known_texts.made_of(trees)
    return [
        release
        for release in trees
        if found.of_release[release] != known.of_release[release]
        or not found.members <= known.members
    ]


@pytest.mark.full
def test_the_table_says_what_every_installed_release_reads(trees: dict[str, Path]) -> None:
    assert NEWEST in trees
    assert stale(KNOWN, trees) == []


def test_a_table_that_is_stale_is_found(trees: dict[str, Path]) -> None:
    name = "scheduler:Scheduler.schedule"
    digests = {**KNOWN.of_release, NEWEST: {**KNOWN.of_release[NEWEST], name: "0" * 10}}
    newest = {NEWEST: trees[NEWEST]}
    assert stale(replace(KNOWN, of_release=digests), newest) == [NEWEST]
    assert stale(replace(KNOWN, members=frozenset()), newest) == [NEWEST]


def test_the_table_comes_out_as_it_went_in() -> None:
    text = written(KNOWN)
    assert text == (Path(known_texts.__file__).parent / known_texts.TABLE).read_text()
    assert known_texts.parse(tomllib.loads(text)) == KNOWN


def test_a_definition_is_gone_where_the_table_says_so() -> None:
    name = "encoder_cache_manager:compute_encoder_budget"
    assert name in KNOWN.of_release["0.15.1"]
    assert name not in KNOWN.of_release["0.16.0"]
    assert f", 0.16.0 {ABSENT}" in written(KNOWN)


def test_the_modelled_releases_are_in_order_from_the_first_on() -> None:
    assert MODELLED[0] == FIRST_MODELLED
    assert sorted(MODELLED, key=release_key) == list(MODELLED)
    assert len(set(MODELLED)) == len(MODELLED)


def test_every_release_whose_archive_is_known_is_modelled_from_the_first_on() -> None:
    pinned = tomllib.loads((Path(sources.__file__).parent / "releases.toml").read_text())
    versions = sorted({archive["version"] for archive in pinned["archive"]}, key=order)
    assert [one for one in versions if order(one) >= order(FIRST_MODELLED)] == list(MODELLED)


def test_every_release_is_in_one_family_and_none_reads_as_another_family() -> None:
    families = KNOWN.families()
    assert [release for family in families for release in family] == list(MODELLED)
    assert ["0.11.1", "0.11.2"] in families
    assert [NEWEST] in families


# a tree that is no release


@pytest.fixture
def tree(tmp_path: Path, trees: dict[str, Path]) -> Path:
    """The newest release's modelled files, to be changed."""
    for component in known_texts.COMPONENTS:
        for path in component.paths:
            source, copy = trees[NEWEST] / "vllm" / path, tmp_path / "vllm" / path
            if source.is_file():
                copy.parent.mkdir(parents=True, exist_ok=True)
                copy.write_text(source.read_text())
    return tmp_path


def change(tree: Path, path: str, old: str, new: str) -> None:
    file = tree / "vllm" / path
    text = file.read_text()
    assert old in text
    file.write_text(text.replace(old, new, 1))


def read(tree: Path, release: str | None = NEWEST) -> Reading:
    reading = KNOWN.read(tree, release)
    assert reading is not None
    return reading


@pytest.mark.full
def test_of_a_release_as_it_is_there_is_nothing_to_say(trees: dict[str, Path]) -> None:
    for release, path in trees.items():
        reading = read(path, release)
        assert (reading.nearest, reading.announcement("it")) == (release, [])
        assert not reading.differs


def test_a_comment_is_nothing_to_say(tree: Path) -> None:
    path = "v1/core/sched/scheduler.py"
    change(tree, path, "    def schedule(", "    # a comment\n    def schedule(")
    change(tree, path, "class Scheduler(", "# and another\nclass Scheduler(")
    assert read(tree).announcement("it") == []


def test_a_changed_function_is_named_with_the_nearest_release(tree: Path) -> None:
    path = "v1/core/sched/scheduler.py"
    change(tree, path, "def _try_schedule_encoder_inputs(", "def _try_schedule_encoder_inputs_(")
    reading = read(tree)
    name = "Scheduler._try_schedule_encoder_inputs"
    assert reading.differing == {name: "gone", f"{name}_": "new"}
    assert reading.nearest == NEWEST
    assert reading.announcement("path:it")[0] == (
        f"path:it: modelled definitions that differ from {NEWEST}, the nearest release: 2 of "
        f"{reading.modelled}: {name} (gone), {name}_ (new)"
    )
    assert reading.differs


def test_a_field_that_no_release_had_is_told_to_be_unread(tree: Path) -> None:
    field = "    finished_req_ids: set[str]\n"
    change(tree, "v1/core/sched/output.py", field, f"{field}    made_up: int = 0\n")
    reading = read(tree)
    assert reading.unread == ("SchedulerOutput.made_up",)
    assert reading.differing == {"SchedulerOutput.made_up": "new"}
    assert reading.announcement("it")[-1] == (
        "it: nothing here reads what is new in it: SchedulerOutput.made_up"
    )


def test_what_a_manager_newly_remembers_is_told_to_be_unread(tree: Path) -> None:
    path = "v1/core/encoder_cache_manager.py"
    change(tree, path, "self.freed", "self.pinned = ()\n        self.freed")
    reading = read(tree)
    assert reading.unread == ("EncoderCacheManager.pinned",)
    assert reading.differing == {"EncoderCacheManager.__init__": "changed"}


def test_a_newer_release_is_told_even_if_all_that_is_modelled_reads_the_same(tree: Path) -> None:
    reading = read(tree, "0.99.0")
    assert reading.announcement("it") == [
        "it: vLLM 0.99.0 is not a release that is modelled",
        f"it: all that is modelled of it reads as in {NEWEST}",
    ]
    assert not reading.differs


def test_a_checkout_without_a_version_is_told_what_it_is_nearest_to(tree: Path) -> None:
    reading = read(tree, None)
    assert reading.nearest == NEWEST
    assert reading.announcement("it")[0] == "it: says of itself no release"


def test_of_releases_as_near_the_own_one_is_the_nearest_else_the_newest() -> None:
    digests = KNOWN.of_release["0.11.1"]
    assert KNOWN._nearest(digests, "0.11.1") == "0.11.1"
    assert KNOWN._nearest(digests, "0.11.2") == "0.11.2"
    assert KNOWN._nearest(digests, "0.99.0") == "0.11.2"
    assert KNOWN._nearest(digests, None) == "0.11.2"


def test_a_family_that_is_not_in_the_table_is_nearest_to_one_beside_it() -> None:
    families = KNOWN.families()
    for place, (release, *_) in enumerate(families):
        others = [one for one in families if release not in one]
        of_release = {one: KNOWN.of_release[one] for family in others for one in family}
        without = replace(KNOWN, of_release=of_release)
        nearest = without._nearest(KNOWN.of_release[release], release)
        assert any(nearest in family for family in others[max(place - 1, 0) : place + 1])


def test_only_so_many_names_are_shown(tree: Path) -> None:
    (tree / "vllm" / "v1/request.py").unlink()
    reading = read(tree)
    (line, *_) = reading.announcement("it")
    assert line.endswith(f"and {len(reading.differing) - known_texts.NAMES_SHOWN} more")
    assert set(reading.differing.values()) == {"gone"}


def test_a_tree_that_holds_nothing_of_it_is_not_read(tmp_path: Path) -> None:
    assert KNOWN.read(tmp_path, NEWEST) is None


def test_the_text_of_a_release_is_that_of_its_tree(trees: dict[str, Path]) -> None:
    assert texts.read(trees[NEWEST]).digests == KNOWN.of_release[NEWEST]
