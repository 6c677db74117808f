"""docs/reference/traces.md names every event and every field that a trace may have."""

import re
from collections.abc import Collection, Iterator
from pathlib import Path

from cacheproof.differential.depths import DEPTHS
from cacheproof.differential.traces.base import tag_of
from tests.differential.traces.fields import config_of, paths

DOCS = Path(__file__).parents[3] / "docs"
PAGES = (DOCS / "reference" / "traces.md", DOCS / "explain" / "kv-cache.md")
"""The second, which the first refers to, has the events and groups of KV caches."""


def named(text: str) -> set[str]:
    """What stands as code, or as a key of JSON."""
    return set(re.findall(r"[`\"]([a-z_0-9]+)[`\"]", text))


def unnamed(names: Collection[str]) -> Iterator[str]:
    """The events and fields that are not among the names."""
    for depth, record in DEPTHS.items():
        for holder in (config_of(depth), *record.events):
            where = "config" if holder is config_of(depth) else tag_of(holder)
            if where not in {"config", *names}:
                yield f"{depth}: {where}"
            for path in paths(holder):
                if path[-1] not in names:
                    yield f"{depth}: {where}.{'.'.join(path)}"


def test_the_page_names_every_event_and_field() -> None:
    names = named("".join(page.read_text() for page in PAGES))
    assert list(unnamed(names)) == []
    assert "manager: walk" in list(unnamed(names - {"walk"}))
    assert "scheduler: config.max_loras" in list(unnamed(names - {"max_loras"}))
