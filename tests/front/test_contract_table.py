from pathlib import Path

from cacheproof import contract_table

PAGE = Path(__file__).parents[2] / "docs" / "contracts.md"


def test_the_page_in_docs_is_the_table_of_the_register() -> None:
    assert PAGE.read_text() == contract_table.markdown() + "\n"
