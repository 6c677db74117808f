"""A page is one file, its data are data, its colours can be read."""

import json
from importlib import resources

import pytest

from cacheproof.differential.findings.timeline import page as pages
from cacheproof.differential.findings.timeline.page import escaped, page
from tests.differential.findings.timeline.pages import (
    LEAST_CONTRAST,
    MARKUP,
    Parsed,
    contrast,
    names_outside,
    palettes,
)
from tests.differential.findings.timeline.runs import FAULTY, drawn, needed_entry

HOSTILE = "</script><script>document.title='ran'</script><img src=x onerror=document.title='ran'>"
FOLDER = resources.files("cacheproof.differential.findings.timeline")
STYLE = (FOLDER / "page.css").read_text()


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
    assert parsed.admitted["default-src"] == "'none'"
    assert parsed.admits_its_own()


def test_a_script_of_another_text_is_not_admitted() -> None:
    parsed = Parsed(html_of())
    parsed.contents["script"][1] += " "
    assert not parsed.admits_its_own()


def test_a_page_names_nothing_outside_itself() -> None:
    assert names_outside(html_of()) == []


def test_scripts_put_text_in_as_text() -> None:
    _, script = Parsed(html_of()).contents["script"]
    assert "textContent" in script
    assert not MARKUP.search(script)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_can_be_read_on_what_it_stands_on(scheme: str) -> None:
    colours = palettes(STYLE)[scheme]
    pairs = [(name, name.removeprefix("on-")) for name in colours if name.startswith("on-")]
    assert len(pairs) > 9
    pairs += [(text, paper) for text in ("ink", "quiet", "broken") for paper in ("paper", "stripe")]
    pairs += [("ink", "level"), ("paper", "ink")]
    weak = [pair for pair in pairs if contrast(*map(colours.get, pair)) < LEAST_CONTRAST]  # type: ignore[arg-type]
    assert weak == []


def test_a_contrast_that_is_too_weak_is_seen() -> None:
    assert contrast("#000000", "#ffffff") == pytest.approx(21)
    assert contrast("#9da7b3", "#ffffff") < LEAST_CONTRAST
