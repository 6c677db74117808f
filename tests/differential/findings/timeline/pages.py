"""Reads a page without a browser: its elements, its policy, its colours."""

import re
from base64 import b64encode
from hashlib import sha256
from html.parser import HTMLParser

LEAST_CONTRAST = 4.5
"""Of text, by WCAG 2 at level AA."""
MARKUP = re.compile(r"innerHTML|outerHTML|insertAdjacent|document\.write|eval\(|Function\(")
"""What would make elements, or code, of a text."""
SVG = "http://www.w3.org/2000/svg"
"""The name of a language, which no browser fetches."""


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

    @property
    def admitted(self) -> dict[str, str]:
        """What the page's policy admits, by directive."""
        policy = next(value for _, value in self.attributes if "default-src" in (value or ""))
        assert policy is not None
        return dict(part.strip().split(" ", 1) for part in policy.split(";"))

    def admits_its_own(self) -> bool:
        """Whether the policy admits the page's own script and style, and nothing else of these."""
        _, script = self.contents["script"]
        (style,) = self.contents["style"]
        return all(
            self.admitted[directive] == f"'sha256-{digest(text)}'"
            for directive, text in (("script-src", script), ("style-src", style))
        )


def digest(text: str) -> str:
    return b64encode(sha256(text.encode()).digest()).decode()


def names_outside(html: str) -> list[str]:
    """What of a page a browser would fetch or follow; a place within the page is none."""
    links = [value or "" for name, value in Parsed(html).attributes if name in ("src", "href")]
    found = re.findall(r"https?://|@import|url\(", html.replace(SVG, ""))
    return [*found, *(one for one in links if not one.startswith("#"))]


def palettes(style: str) -> dict[str, dict[str, str]]:
    """The colours of the light page and of the dark one."""
    found = [
        dict(re.findall(r"--([\w-]+): (#[0-9a-f]{6})", block))
        for block in re.findall(r":root[^{]*\{(.*?)\}", style, re.DOTALL)
    ]
    return dict(zip(("light", "dark"), found, strict=True))


def contrast(one: str, other: str) -> float:
    lighter, darker = sorted((luminance(one), luminance(other)), reverse=True)
    return (lighter + 0.05) / (darker + 0.05)


def luminance(colour: str) -> float:
    parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [one / 12.92 if one <= 0.04045 else ((one + 0.055) / 1.055) ** 2.4 for one in parts]
    return sum(share * one for share, one in zip((0.2126, 0.7152, 0.0722), linear, strict=True))
