"""uv in the place of pip: where it is found, and the user's settings of pip in its words.

Nothing but the standard library: set-up loads this file before anything is installed. What pip does
stays what counts. Where uv is not to be had, has no word for a setting, or fails, pip does the
whole work.
"""

import ast
import os
import re
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

LOCK = Path(__file__).with_name("uv.lock")

FETCH = ("install", "--no-deps", "--require-hashes", "--only-binary=:all:", "--retries=1")
"""pip's arguments that fetch uv, before `-r LOCK`. One retry: pip itself comes next, and asks the
index as often as the user wants."""

_SETTING = re.compile(r"(global|install|:env:)\.([\w-]+)=(.*)")
_OPTIONS = {"constraint": "--constraints", "trusted-host": "--allow-insecure-host"}
_SWITCHES = {"no-index": "--no-index", "no-cache-dir": "--no-cache"}
_VARIABLES = {
    "index-url": ("UV_INDEX_URL",),
    "extra-index-url": ("UV_EXTRA_INDEX_URL",),
    "cert": ("SSL_CERT_FILE",),
    "client-cert": ("SSL_CLIENT_CERT",),
    "proxy": ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"),
    "timeout": ("UV_HTTP_TIMEOUT",),
    "default-timeout": ("UV_HTTP_TIMEOUT",),
    "retries": ("UV_HTTP_RETRIES",),
}
"""Addresses may hold passwords, and so stay out of commands, which logs and `ps` show."""

_OF_NO_MATTER = {
    *("cache-dir", "compile", "config-file", "disable-pip-version-check", "log", "no-color"),
    *("no-compile", "no-input", "no-python-version-warning", "no-warn-script-location"),
    *("progress-bar", "quiet", "require-virtualenv", "root-user-action", "user", "verbose"),
}
"""Settings of pip that change neither what is installed nor from where."""

_KEPT_VARIABLES = {"UV_CACHE_DIR", "UV_LINK_MODE", "UV_NO_CACHE"}
"""The user's settings of uv that are kept; others could name other indexes than pip's."""

_TRUE = {"1", "true", "yes", "on", "y", "t"}


class Untranslatable(ValueError):
    """A setting of pip that uv has no word for."""


@dataclass(frozen=True)
class Uv:
    """uv, set up to fetch what pip would fetch."""

    program: str
    options: tuple[str, ...]
    constraints: tuple[str, ...]
    environ: Mapping[str, str]
    """The whole environment of uv's processes."""

    @classmethod
    def like_pip(cls, program: str, listed: str, environ: Mapping[str, str]) -> "Uv":
        """uv under the settings of pip that `pip config list` printed as `listed`.

        Raises:
            Untranslatable: pip obeys a setting that uv has no word for.
        """
        # pip takes the best match of all indexes; uv by itself that of the first that has any.
        options = ["--no-config", "--index-strategy", "unsafe-best-match"]
        constraints: list[str] = []
        variables = {"NO_COLOR": "1", "UV_PYTHON_DOWNLOADS": "never"}
        if bundle := environ.get("REQUESTS_CA_BUNDLE") or environ.get("CURL_CA_BUNDLE"):
            variables["SSL_CERT_FILE"] = bundle
        for name, value in _settings(listed).items():
            words = value.split()
            if name in _OPTIONS:
                into = constraints if name == "constraint" else options
                into += [part for word in words for part in (_OPTIONS[name], word)]
            elif name in _SWITCHES:
                options += [_SWITCHES[name]] if value.lower() in _TRUE else []
            elif name == "find-links":
                variables["UV_FIND_LINKS"] = ",".join(map(os.path.expanduser, words))
            elif name in _VARIABLES:
                variables |= dict.fromkeys(_VARIABLES[name], " ".join(words))
            elif name not in _OF_NO_MATTER:
                raise Untranslatable(f"pip's setting {name}")
        kept = {
            name: value
            for name, value in environ.items()
            if name in _KEPT_VARIABLES or not name.startswith("UV_")
        }
        return cls(program, tuple(options), tuple(constraints), kept | variables)

    def install(
        self, python: Path, *arguments: str | Path, is_constrained: bool = True
    ) -> list[str]:
        """The command that installs for `python` what the `arguments` name."""
        constraints = self.constraints if is_constrained else ()
        command = [self.program, "pip", "install", "--python", python, *self.options]
        return [str(word) for word in (*command, *constraints, *arguments)]

    def check(self, python: Path) -> list[str]:
        """The command that checks whether all installed packages fit together."""
        return [self.program, "pip", "check", "--python", str(python)]


def find(*folders: Path) -> str | None:
    """uv on PATH, else in one of the folders; None where it is in neither."""
    search = (os.environ.get("PATH", os.defpath), *map(str, folders))
    return shutil.which("uv", path=os.pathsep.join(search))


def _settings(listed: str) -> dict[str, str]:
    """The settings that hold for `pip install`: those of the environment override those of the
    command, and these the global ones; empty values do not count."""
    found: dict[str, dict[str, str]] = {"global": {}, "install": {}, ":env:": {}}
    for line in listed.splitlines():
        setting = _SETTING.fullmatch(line)
        if setting and (value := str(ast.literal_eval(setting[3]))):
            found[setting[1]][setting[2]] = value
    return found["global"] | found["install"] | found[":env:"]
