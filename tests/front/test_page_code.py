"""The Python of the page of a fault does on a release what the page says."""

from pathlib import Path

import pytest

from cacheproof.differential.provision import releases
from cacheproof.listed.pages import FOLDER
from cacheproof.reference.releases import NEWEST
from cacheproof.replay import page_code
from cacheproof.replay.page_code import CodeBlock, RanBlock, blocks_of, run
from tests.front.conftest import Run

PAGES = {page.parent.name: page.read_text() for page in sorted(FOLDER.glob("*/page.md"))}
BLOCKS = [block for name, text in PAGES.items() for block in blocks_of(name, text)]
OLDER = sorted({block.release for block in BLOCKS} - {NEWEST})
CHEAPEST = "media-hash-order"
"""Needs the hasher alone."""
PAGE = """\
# A page

```python
x = 1
```

```
no Python
```

```python on 0.28.0
assert x
```
"""


@pytest.mark.parametrize(
    ("release", "page"),
    [
        (NEWEST, CHEAPEST),
        *(pytest.param(release, "", marks=pytest.mark.full) for release in (NEWEST, *OLDER)),
    ],
)
def test_what_pages_say_of_a_release_is_so(release: str, page: str) -> None:
    wrong = CodeBlock("wrong.md", 1, release, "x = 1\nassert x == 2, 'one is not two'")
    blocks = [block for block in BLOCKS if block.release == release and page in ("", block.page)]
    *ran, last = run([*blocks, wrong], releases.install(release, report=print))
    assert [(one.block.where, one.error) for one in ran if one.error] == []
    assert last.error == "AssertionError: one is not two"
    printed = [(one, line) for one in ran for line in one.said.splitlines()]
    assert [line for one, line in printed if f"    {line}\n" not in PAGES[one.block.page]] == []


def test_pages_of_keys_hashes_and_blocks_have_python() -> None:
    assert {block.page for block in BLOCKS} >= {
        *(CHEAPEST, "discarded-token", "kv-event-tokens", "loaded-prompt"),
    }


def test_a_block_is_run_where_it_says_unless_another_release_is_asked_for() -> None:
    assert blocks_of("page.md", PAGE) == [
        CodeBlock("page.md", 4, NEWEST, "x = 1\n"),
        CodeBlock("page.md", 12, "0.28.0", "assert x\n"),
    ]
    assert {block.release for block in blocks_of("page.md", PAGE, "0.31.0")} == {"0.31.0"}


@pytest.fixture
def page(tmp_path: Path) -> Path:
    path = tmp_path / "page.md"
    path.write_text(PAGE)
    return path


@pytest.fixture
def raising(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What blocks raise in turn, in the place of a release that runs them."""
    errors: list[str] = []

    def ran(blocks: list[CodeBlock], _: object) -> list[RanBlock]:
        return [RanBlock(block, "two\n", errors.pop(0) if errors else "") for block in blocks]

    monkeypatch.setattr(page_code, "run", ran)
    monkeypatch.setattr(releases, "install", lambda version, **_: version)
    return errors


def test_a_page_whose_python_comes_to_its_end_is_right(
    run: Run, page: Path, raising: list[str]
) -> None:
    ran = run("replay", page)
    assert ran.code == 0
    assert ran.out.splitlines()[-1] == (
        f"The Python of page.md does what the page says on vllm@{NEWEST} and vllm@0.28.0: "
        "2 blocks of it came to the end."
    )
    assert "  prints: two\n" in ran.out


def test_a_page_whose_python_raises_is_wrong(run: Run, page: Path, raising: list[str]) -> None:
    raising += ["", "AssertionError"]
    ran = run("replay", page, "--target", "vllm@0.31.0")
    assert ran.code == 1
    assert ran.out.splitlines()[-1] == (
        "The Python of page.md does not do what the page says on vllm@0.31.0: "
        "1 of 2 blocks raised, first at line 12: AssertionError."
    )


@pytest.mark.parametrize(
    ("text", "words", "refusal"),
    [
        (
            "# No Python\n",
            (),
            "no block of Python; expected a page such as faults/discarded-token/page.md",
        ),
        (PAGE, ("--target", "reference"), "expected vllm@VERSION"),
        (PAGE, ("--html", "run.html"), "a page has no timeline; expected no --html"),
    ],
)
def test_a_page_that_cannot_be_run_is_refused(
    text: str, words: tuple[str, ...], refusal: str, run: Run, page: Path
) -> None:
    page.write_text(text)
    assert run("replay", page, *words).refusal.endswith(refusal)


def test_a_page_that_is_no_text_or_not_there_is_refused(run: Run, page: Path) -> None:
    page.write_bytes(b"\xff")
    assert run("replay", page).refusal.endswith("no UTF-8; expected a page in Markdown")
    page.unlink()
    assert run("replay", page).refusal.endswith("give a page")
