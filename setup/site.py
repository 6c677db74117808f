"""What mkdocs is told beside mkdocs.yml: pages that do not lie in docs/, and links that leave it.

A page that lies elsewhere (the README, faults/) is taken from there, so that none stands twice. A
link to code becomes the path that it names: a reader of the site has no checkout beside it.
"""

import re
from pathlib import Path
from posixpath import dirname, join, normpath, relpath
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
BESIDE = {"README.md": "overview.md", "CONTRIBUTING.md": "contributing.md"}
ORDER = ("README.md", "overview.md", "tutorial.md", "Faults", "How to", "Explain", "Reference")
"""Pages by their file, sections by their title; what is not named comes last."""
LINK = re.compile(r"\[((?:[^\[\]]|\[[^\]]*\])*)\]\(([^)\s#]+)(#[^)\s]*)?\)")


def place_of(path: str) -> str | None:
    """Where a file of the repository is on the site; None: it is not there."""
    if path in BESIDE:
        return BESIDE[path]
    if path.startswith("docs/"):
        return path.removeprefix("docs/")
    return path if path.startswith("faults/") and path.endswith(".md") else None


def on_files(files: Any, config: Any) -> Any:
    """Add the pages that lie beside docs/."""
    from mkdocs.structure.files import File

    paths = [*BESIDE, *(one.relative_to(ROOT).as_posix() for one in ROOT.glob("faults/**/*.md"))]
    for path in paths:
        place = place_of(path)
        assert place is not None
        files.append(File.generated(config, place, content=(ROOT / path).read_text()))
    return files


def on_nav(nav: Any, config: Any, files: Any) -> Any:
    """What a stranger reads comes first, generated pages last."""
    rank = {name: number for number, name in enumerate(ORDER)}
    nav.items.sort(key=lambda one: rank.get(one.file.src_uri if one.is_page else one.title, 99))
    return nav


def on_page_markdown(markdown: str, page: Any, config: Any, files: Any) -> str:
    """Links as they lead on the site."""
    place = page.file.src_uri
    origin = {there: path for path, there in BESIDE.items()}.get(place)
    path = origin or (place if place.startswith("faults/") else join("docs", place))
    return linked(markdown, path, place)


def linked(markdown: str, path: str, place: str) -> str:
    """The text of a file of the repository, its links as they lead from a place of the site."""

    def led(link: re.Match[str]) -> str:
        text, target, anchor = link[1], link[2], link[3] or ""
        if "://" in target:
            return link[0]
        meant = normpath(join(dirname(path), target))
        if (ROOT / meant).is_dir() and (ROOT / meant / "README.md").is_file():
            meant = join(meant, "README.md")
        there = place_of(meant)
        if there is None:
            return f"{text} (`{meant}`)" if meant not in text else text
        return f"[{text}]({relpath(there, dirname(place) or '.')}{anchor})"

    return LINK.sub(led, markdown)
