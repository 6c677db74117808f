"""The reference offers what vLLM's classes offer, or the table says of each name why not."""

from collections.abc import Iterable, Mapping
from dataclasses import replace

import pytest

from cacheproof.differential.provision import releases
from cacheproof.reference.releases import MODELLED, NEWEST
from tests.differential.targets.parameters import newest_and
from tests.differential.targets.surface import (
    CLASSES,
    Argument,
    Surface,
    departures,
    of_reference,
    of_release,
    refusals,
)

OTHERS = ("0.14.1", "0.18.1", "0.22.1", "0.27.1", "0.28.0", "0.30.0", "0.32.0")

Names = set[tuple[str, str]]


@pytest.fixture(scope="module")
def ours() -> dict[str, Surface]:
    return of_reference()


@pytest.fixture(scope="module")
def newest() -> dict[str, Surface]:
    return surface_of(NEWEST)


def surface_of(release: str) -> dict[str, Surface]:
    return of_release(releases.install(release, report=print).tree)


def refused() -> Names:
    return {(name, one) for entry in refusals() for name in entry.classes for one in entry.names}


def entry_for(ours: Mapping[str, Surface], departure: tuple[str, str], table: Names) -> Names:
    """The entries of the table that are about it: of its class, or of one that it builds on."""
    name, one = departure
    return {(base, one) for base in ours[name].lineage} & table


def unexplained(
    theirs: Mapping[str, Surface], ours: Mapping[str, Surface], release: str = NEWEST
) -> list[tuple[str, str]]:
    parted = departures(theirs, ours, is_newest=release == NEWEST)
    return [one for one in parted if not entry_for(ours, one, refused())]


@pytest.mark.parametrize("release", newest_and(*OTHERS))
def test_what_a_release_offers_is_there_or_refused_by_name(
    release: str, ours: dict[str, Surface]
) -> None:
    assert unexplained(surface_of(release), ours, release) == []


@pytest.mark.full
def test_what_any_release_offers_is_there_or_refused_and_nothing_else_is_refused(
    ours: dict[str, Surface],
) -> None:
    table, met = refused(), set()
    for release in MODELLED:
        theirs = surface_of(release)
        assert unexplained(theirs, ours, release) == []
        for one in departures(theirs, ours, is_newest=release == NEWEST):
            met |= entry_for(ours, one, table)
    assert table - met == set()


def test_nothing_is_refused_twice() -> None:
    named = [(name, one) for entry in refusals() for name in entry.classes for one in entry.names]
    assert len(named) == len(set(named))


def test_every_class_that_stands_in_is_read(
    ours: dict[str, Surface], newest: dict[str, Surface]
) -> None:
    assert list(ours) == list(newest) == list(CLASSES)
    assert len(newest["KVCacheManager"].methods) > 25
    assert {"cached", "num_free_slots"} <= newest["EncoderCacheManager"].attributes
    assert "cached" not in ours["EncoderDecoderCacheManager"].attributes


def test_a_method_that_is_missing_is_found(
    ours: dict[str, Surface], newest: dict[str, Surface]
) -> None:
    methods = dict(ours["KVCacheManager"].methods)
    del methods["truncate_computed_blocks"]
    broken = ours | {"KVCacheManager": replace(ours["KVCacheManager"], methods=methods)}
    assert unexplained(newest, broken) == [("KVCacheManager", "truncate_computed_blocks")]


def test_an_attribute_that_is_missing_is_found(
    ours: dict[str, Surface], newest: dict[str, Surface]
) -> None:
    manager = ours["EncoderCacheManager"]
    fewer = replace(manager, attributes=manager.attributes - {"request_hash_refs"})
    broken = ours | {"EncoderCacheManager": fewer}
    assert unexplained(newest, broken) == [("EncoderCacheManager", "request_hash_refs")]


def with_arguments(
    ours: Mapping[str, Surface], method: str, arguments: Iterable[Argument]
) -> dict[str, Surface]:
    manager = ours["KVCacheManager"]
    methods = {**manager.methods, method: tuple(arguments)}
    return {**ours, "KVCacheManager": replace(manager, methods=methods)}


def test_arguments_in_another_order_are_found(
    ours: dict[str, Surface], newest: dict[str, Surface]
) -> None:
    first, second, *rest = ours["KVCacheManager"].methods["allocate_slots"]
    swapped = with_arguments(ours, "allocate_slots", (second, first, *rest))
    assert unexplained(newest, swapped) == [("KVCacheManager", "allocate_slots()")]
    assert unexplained(surface_of("0.28.0"), swapped, "0.28.0") == [
        ("KVCacheManager", "allocate_slots()")
    ]


def test_an_argument_between_others_that_the_newest_release_does_not_have_is_found(
    ours: dict[str, Surface], newest: dict[str, Surface]
) -> None:
    first, *rest = ours["KVCacheManager"].methods["allocate_slots"]
    more = with_arguments(ours, "allocate_slots", (first, Argument("more", True), *rest))
    assert unexplained(newest, more) == [("KVCacheManager", "allocate_slots()")]


@pytest.mark.full
def test_an_argument_that_is_missing_or_asked_for_is_found(
    ours: dict[str, Surface], newest: dict[str, Surface]
) -> None:
    arguments = ours["KVCacheManager"].methods["allocate_slots"]
    fewer = with_arguments(ours, "allocate_slots", arguments[:-1])
    assert unexplained(newest, fewer) == [
        ("KVCacheManager", "allocate_slots(skip_zeroing_group_ids)")
    ]
    asking = [replace(one, has_default=False) for one in arguments]
    found = unexplained(newest, with_arguments(ours, "allocate_slots", asking))
    assert ("KVCacheManager", "allocate_slots(reserved_blocks)") in found
    further = (*arguments, Argument("more", False))
    assert unexplained(newest, with_arguments(ours, "allocate_slots", further)) == [
        ("KVCacheManager", "allocate_slots(more)")
    ]


def test_an_entry_that_no_release_has_is_found(
    ours: dict[str, Surface], newest: dict[str, Surface]
) -> None:
    table = {("KVCacheManager", "retained_hit_group_ids"), ("KVCacheManager", "nothing_of_theirs")}
    met: Names = set()
    for one in departures(newest, ours, is_newest=True):
        met |= entry_for(ours, one, table)
    assert table - met == {("KVCacheManager", "nothing_of_theirs")}
