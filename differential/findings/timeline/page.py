"""A timeline as a page: one file of HTML that needs nothing else, and no network.

What a trace says reaches the page as JSON and is put in as text alone. The page's policy admits its
own script and its own style by their digests, and nothing else.
"""

from base64 import b64encode
from collections.abc import Sequence
from hashlib import sha256
from importlib import resources
from importlib.resources.abc import Traversable

import jinja2
import msgspec
from markupsafe import Markup

from cacheproof.differential.findings.short_names import ShortNames
from cacheproof.differential.findings.timeline.model import Timeline

_FILES = resources.files("cacheproof.differential.findings.timeline")
_SCRIPTS = ("lanes.js", "canvas.js", "page.js")
_ESCAPES = {ord(one): f"\\u{ord(one):04x}" for one in "<>&\u2028\u2029"}
"""What could end a script, or begin a comment in one; in JSON it stands in strings alone."""


def page(timeline: Timeline) -> bytes:
    """The HTML file."""
    return self_contained(
        _FILES / "page.html.jinja",
        _FILES / "page.css",
        [_FILES / name for name in _SCRIPTS],
        _shortened(msgspec.json.encode(timeline).decode()),
    )


def _shortened(json: str) -> str:
    """The JSON of an object with its hashes shortened, and `names`: what each stands for."""
    names = ShortNames([json])
    full = msgspec.json.encode(names.full).decode()
    return f'{names.say(json).removesuffix("}")},"names":{full}}}'


def self_contained(
    template: Traversable,
    style: Traversable,
    scripts: Sequence[Traversable],
    json: str,
    *,
    policy: str = "",
    **values: str,
) -> bytes:
    """The page that a template makes of a style, of scripts and of JSON. It asks for nothing,
    except what more its `policy` admits. `values` are for the template too."""
    environment = jinja2.Environment(undefined=jinja2.StrictUndefined, autoescape=True)
    css = style.read_text()
    script = _script([one.read_text() for one in scripts])
    return (
        environment.from_string(template.read_text())
        .render(
            policy=_policy(css, script) + policy,
            style=Markup(css),
            script=Markup(script),
            data=Markup(escaped(json)),
            **values,
        )
        .encode()
    )


def escaped(json: str) -> str:
    """JSON that is nothing but data wherever it stands in HTML."""
    return json.translate(_ESCAPES)


def _policy(style: str, script: str) -> str:
    return (
        f"default-src 'none'; style-src '{_digest(style)}'; script-src '{_digest(script)}'; "
        "base-uri 'none'; form-action 'none'"
    )


def _digest(text: str) -> str:
    return f"sha256-{b64encode(sha256(text.encode()).digest()).decode()}"


def _script(texts: Sequence[str]) -> str:
    """The scripts as one, whose names are its own."""
    parts = "\n".join(texts)
    return f'"use strict";\n{{\n{parts}}}\n'
