"""docs/evidence.md speaks of the texts as they are."""

from pathlib import Path

import pytest

from cacheproof.proofs.symbolic.evidence import SUBJECTS, digest_of_texts
from cacheproof.spec.registry import contracts

PAGE = Path(__file__).parents[3] / "docs" / "evidence.md"
NOT_PROVED = {"EC-8b", "BP-6"}


def rows_of(subject: str, digest: str) -> list[str]:
    """The first cells of a class's proofs, of a text with this digest."""
    rows = [line.strip("| ").split(" | ") for line in PAGE.read_text().splitlines() if "|" in line]
    return [row[0] for row in rows if row[2:4] == [subject, "proof"] and row[-1] == digest]


@pytest.mark.parametrize("subject", SUBJECTS)
def test_each_contract_has_a_row_of_the_text_as_it_is(subject: str) -> None:
    about = SUBJECTS[subject]
    digest = digest_of_texts(about.of_reference())
    listed = {one for cell in rows_of(subject, digest) for one in cell.split(", ")}
    judged = {rule.id for rule in contracts() if rule.component == about.COMPONENT} - NOT_PROVED
    assert judged <= listed, (
        "write the output of `cacheproof prove --target reference --target vllm@0.33.0 "
        "--markdown` to docs/evidence.md"
    )


def test_a_row_of_another_text_is_no_row() -> None:
    assert rows_of("EncoderCacheManager", "000000000000") == []
