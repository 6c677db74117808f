"""The page of Hypothesis' traces says what they meet and find."""

from pathlib import Path

PAGE = Path(__file__).parents[2] / "docs" / "evidence" / "hypothesis-traces.md"


def test_every_faulty_manager_of_the_gallery_is_on_the_page_and_found(script) -> None:
    page = PAGE.read_text()
    assert page.startswith(script.HEAD)
    assert "not found" not in page
    missing = [one.name for one in script.VARIANTS if f"| {one.name} | " not in page]
    assert missing == [], "make its rows: .venv/bin/python benchmarks/pages.py hypothesis-traces.md"
    assert {variant.name for variant in script.VARIANTS} >= set(script.SHRUNK)


def test_a_fault_that_is_found_says_after_how_many_examples(script) -> None:
    (variant,) = (one for one in script.VARIANTS if one.name == "allocation-debits-once")
    found = script.by_hypothesis(variant, shrinks=False, examples=200)
    assert found.after is not None
    assert found.after <= found.tried < 200
    assert (found.contract, found.events > 2) == ("EC-2", True)


def test_one_that_is_not_found_says_so(script) -> None:
    (variant,) = (one for one in script.VARIANTS if one.name == "second-release-renews-entry")
    assert script.by_hypothesis(variant, shrinks=False, examples=20).after is None
