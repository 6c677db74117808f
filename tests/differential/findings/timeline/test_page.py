"""A page is one file, its data are data, its colours can be read."""

import json
import re
from base64 import b64encode
from hashlib import sha256
from html.parser import HTMLParser
from importlib import resources

import pytest

from cacheproof.differential.findings.timeline import page as pages
from cacheproof.differential.findings.timeline.page import escaped, page
from tests.differential.findings.timeline.runs import FAULTY, drawn, needed_entry

HOSTILE = "</script><script>document.title='ran'</script><img src=x onerror=document.title='ran'>"
FOLDER = resources.files("cacheproof.differential.findings.timeline")
STYLE = (FOLDER / "page.css").read_text()
LEAST_CONTRAST = 4.5
"""Of text, by WCAG 2 at level AA."""


class Parsed(HTMLParser):
    """The elements of a page, and what is in its scripts and its style."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str | None]] = []
        self.contents: dict[str, list[str]] = {"script": [], "style": []}
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += attrs
        if tag in self.contents:
            self.contents[tag].append("")

    def handle_data(self, data: str) -> None:
        if self.tags and self.tags[-1] in self.contents and self.cdata_elem is not None:
            self.contents[self.tags[-1]][-1] += data


def html_of(item: str = "x") -> str:
    return page(drawn(needed_entry(item=item), FAULTY)).decode()


def test_a_hostile_name_is_data_and_nothing_else() -> None:
    plain, hostile = Parsed(html_of()), Parsed(html_of(HOSTILE))
    assert hostile.tags == plain.tags
    data = json.loads(hostile.contents["script"][0])
    assert HOSTILE in data["events"][1]["words"]


def test_without_escapes_it_would_be_markup(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pages, "escaped", lambda json: json)
    assert Parsed(html_of(HOSTILE)).tags != Parsed(html_of()).tags


def test_escapes_are_json_of_the_same_text() -> None:
    text = json.dumps("<!-- </script> & \u2028 \u2029", ensure_ascii=False)
    assert not set(escaped(text)) & set("<>&\u2028\u2029")
    assert json.loads(escaped(text)) == json.loads(text)


def test_the_policy_admits_the_pages_own_script_and_style_alone() -> None:
    parsed = Parsed(html_of())
    policy = next(value for name, value in parsed.attributes if "default-src" in (value or ""))
    assert policy is not None
    admitted = dict(part.strip().split(" ", 1) for part in policy.split(";"))
    assert admitted["default-src"] == "'none'"
    _, script = parsed.contents["script"]
    for directive, text in (("script-src", script), ("style-src", *parsed.contents["style"])):
        digest = b64encode(sha256(text.encode()).digest()).decode()
        assert admitted[directive] == f"'sha256-{digest}'"


def test_a_page_names_nothing_outside_itself() -> None:
    html = html_of()
    assert not re.search(r"https?://|@import|url\(", html)
    assert not {"src", "href"} & {name for name, _ in Parsed(html).attributes}


def test_scripts_put_text_in_as_text() -> None:
    script = pages._script()
    assert "textContent" in script
    assert not re.search(
        r"innerHTML|outerHTML|insertAdjacent|document\.write|eval\(|Function\(", script
    )


def palettes() -> dict[str, dict[str, str]]:
    """The colours of the light page and of the dark one."""
    found = [
        dict(re.findall(r"--([\w-]+): (#[0-9a-f]{6})", block))
        for block in re.findall(r":root[^{]*\{(.*?)\}", STYLE, re.DOTALL)
    ]
    return dict(zip(("light", "dark"), found, strict=True))


def contrast(one: str, other: str) -> float:
    lighter, darker = sorted((luminance(one), luminance(other)), reverse=True)
    return (lighter + 0.05) / (darker + 0.05)


def luminance(colour: str) -> float:
    parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [one / 12.92 if one <= 0.04045 else ((one + 0.055) / 1.055) ** 2.4 for one in parts]
    return sum(share * one for share, one in zip((0.2126, 0.7152, 0.0722), linear, strict=True))


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_can_be_read_on_what_it_stands_on(scheme: str) -> None:
    colours = palettes()[scheme]
    pairs = [(name, name.removeprefix("on-")) for name in colours if name.startswith("on-")]
    assert len(pairs) > 9
    pairs += [(text, paper) for text in ("ink", "quiet", "broken") for paper in ("paper", "stripe")]
    pairs += [("ink", "level"), ("paper", "ink")]
    weak = [pair for pair in pairs if contrast(*map(colours.get, pair)) < LEAST_CONTRAST]  # type: ignore[arg-type]
    assert weak == []


def test_a_contrast_that_is_too_weak_is_seen() -> None:
    assert contrast("#000000", "#ffffff") == pytest.approx(21)
    assert contrast("#9da7b3", "#ffffff") < LEAST_CONTRAST
