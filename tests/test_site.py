"""Links of the site's pages lead where those of the files lead."""

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

SCRIPT = Path(__file__).resolve().parent.parent / "setup" / "site.py"


@pytest.fixture(scope="module")
def site() -> ModuleType:
    """The hook, which mkdocs runs by its path."""
    spec = importlib.util.spec_from_file_location("site_hook", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize(
    ("path", "link", "there"),
    [
        ("docs/tutorial.md", "[a](how-to/ci.md#x)", "[a](how-to/ci.md#x)"),
        ("docs/how-to/ci.md", "[a](../../README.md)", "[a](../overview.md)"),
        ("docs/how-to/ci.md", "[a](../../faults/)", "[a](../faults/README.md)"),
        ("README.md", "[a](docs/tutorial.md)", "[a](tutorial.md)"),
        ("README.md", "[its text](spec/ghost.py)", "its text (`spec/ghost.py`)"),
        ("README.md", "[spec/ghost.py](spec/ghost.py)", "spec/ghost.py"),
        ("README.md", "[a](https://example.org)", "[a](https://example.org)"),
        ("faults/README.md", "[a](../docs/tutorial.md)", "[a](../tutorial.md)"),
    ],
)
def test_a_link_leads_on_the_site_to_the_same_page(
    site: ModuleType, path: str, link: str, there: str
) -> None:
    place = site.place_of(path)
    assert site.linked(f"See {link}.", path, place) == f"See {there}."


def test_code_and_traces_are_not_on_the_site(site: ModuleType) -> None:
    assert site.place_of("spec/ghost.py") is None
    assert site.place_of("faults/lost-budget/trace.jsonl") is None
