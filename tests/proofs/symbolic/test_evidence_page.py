"""docs/evidence/evidence.md and docs/evidence/evidence-releases.md speak of the texts as they
are."""

from pathlib import Path

import pytest

from cacheproof.differential.provision import releases
from cacheproof.proofs.symbolic.evidence import digest_of_texts
from cacheproof.proofs.symbolic.reading.source import source_of
from cacheproof.proofs.symbolic.texts import SUBJECTS, ReadClass, texts_of
from cacheproof.proving.page import markdown
from cacheproof.proving.targets import MANAGERS
from cacheproof.reference.releases import NEWEST
from cacheproof.spec.evidence import Evidence, Outcome
from cacheproof.spec.registry import contracts

DOCS = Path(__file__).parents[3] / "docs" / "evidence"
PAGE = DOCS / "evidence.md"
OF_RELEASES = DOCS / "evidence-releases.md"
NOT_PROVED = {"EC-8b", "BP-6", "BP-10", "BP-11", "TB-6", "TB-7"}
IN_RELEASES = ["EncoderCacheManager", "EncoderDecoderCacheManager"]


def rows_of(subject: str, digest: str) -> list[str]:
    """The first cells of a class's proofs, of a text with this digest."""
    rows = [line.strip("| ").split(" | ") for line in PAGE.read_text().splitlines() if "|" in line]
    return [row[0] for row in rows if row[2:4] == [subject, "proof"] and row[-1] == digest]


def table_of(subject: str) -> dict[str, dict[str, str]]:
    """What the page of releases says of a class: release -> first cell of a row -> cell."""
    (section,) = [
        one for one in OF_RELEASES.read_text().split("\n## ") if one.partition("\n")[0] == subject
    ]
    rows = [
        [cell.strip() for cell in line.strip("|").split("|")]
        for line in section.splitlines()
        if line.startswith("|") and "---" not in line
    ]
    return {
        release: {row[0]: row[number] for row in rows[1:]}
        for number, release in enumerate(rows[0])
        if release
    }


def judged(subject: str, release: str | None = None) -> set[str]:
    component = SUBJECTS[subject].COMPONENT
    of_it = {rule.id for rule in contracts(release=release) if rule.component == component}
    return of_it - NOT_PROVED


@pytest.mark.parametrize("subject", SUBJECTS)
def test_each_contract_has_a_row_of_the_text_as_it_is(subject: str) -> None:
    digest = digest_of_texts(SUBJECTS[subject].of_reference())
    listed = {one for cell in rows_of(subject, digest) for one in cell.split(", ")}
    assert judged(subject) <= listed, (
        "write the output of `cacheproof prove --target reference --target vllm@0.33.0 "
        "--markdown` to docs/evidence/evidence.md"
    )


def test_a_row_of_another_text_is_no_row() -> None:
    assert rows_of("EncoderCacheManager", "000000000000") == []


@pytest.mark.parametrize("subject", IN_RELEASES)
def test_the_page_of_releases_is_of_their_texts_as_they_are(subject: str) -> None:
    """Of those that are installed, the newest among them."""
    releases.install(NEWEST, report=print)
    table = table_of(subject)
    installed = [one for one in releases.list_installed() if one.version in table]
    sources = [
        ReadClass(f"vllm@{one.version}", one.version, source_of(one.tree / MANAGERS, subject))
        for one in installed
    ]
    digests = {
        target.removeprefix("vllm@"): digest_of_texts(
            SUBJECTS[subject].of_release(text.release, text.source)
        )
        for text in texts_of(subject, sources)
        if text.release is not None
        for target in text.targets
    }
    assert NEWEST in digests
    assert {one: table[one]["text"] for one in digests} == digests, (
        "write the output of `cacheproof prove --markdown`, with all releases from 0.10.2 on that "
        "have been read here installed, to docs/evidence/evidence-releases.md"
    )


@pytest.mark.parametrize("subject", IN_RELEASES)
def test_the_page_of_releases_has_an_outcome_of_each_contract(subject: str) -> None:
    for release, cells in table_of(subject).items():
        told = {
            contract
            for name, cell in cells.items()
            for contract in name.split(", ")
            if cell.startswith("holds, ") or cell == "refuted"
        }
        assert told == judged(subject, release), release


def test_of_several_releases_contracts_stand_beside_one_another() -> None:
    def row(contract: str, release: str, outcome: Outcome, scope: str) -> Evidence:
        target, digest = f"vllm@{release}", f"digest of {release}"
        return Evidence(contract, target, "Class", "proof", scope, outcome, "", digest, 1.0, ())

    page = markdown(
        [
            row("EC-1", "0.9.0", Outcome.HOLDS, "any caller"),
            row("EC-1", "0.10.0", Outcome.HOLDS, "some callers"),
            row("EC-2", "0.9.0", Outcome.REFUTED, "some callers"),
            row("EC-3", "0.9.0", Outcome.UNKNOWN, "some callers"),
        ],
        {},
    )
    assert page.splitlines()[-11:] == [
        "- a: any caller",
        "- b: some callers",
        "",
        "## Class",
        "",
        "| | 0.10.0 | 0.9.0 |",
        "|---|---|---|",
        "| EC-1 | holds, b | holds, a |",
        "| EC-2 |  | refuted |",
        "| EC-3 |  | unknown |",
        "| text | digest of 0.10.0 | digest of 0.9.0 |",
    ]
