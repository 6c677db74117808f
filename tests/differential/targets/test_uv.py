"""uv is told what pip was told, from the words of `pip config list`."""

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from cacheproof.differential.provision import environment, releases, uv
from cacheproof.differential.provision.installing import _LEASHED_UV
from cacheproof.differential.provision.uv import Untranslatable, Uv

PYTHON = Path("/env/bin/python")


def like(listed: str, environ: dict[str, str] | None = None) -> Uv:
    return Uv.like_pip("/uv", listed, environ or {})


@pytest.mark.parametrize(
    ("setting", "variable", "value"),
    [
        ("index-url='https://me:secret@mirror/simple'", "UV_INDEX_URL",
         "https://me:secret@mirror/simple"),
        ("extra-index-url='\\nfile:///a\\nfile:///b'", "UV_EXTRA_INDEX_URL",
         "file:///a file:///b"),
        ("find-links='/wheels https://more/'", "UV_FIND_LINKS", "/wheels,https://more/"),
        ("cert='/ca.pem'", "SSL_CERT_FILE", "/ca.pem"),
        ("client-cert='/me.pem'", "SSL_CLIENT_CERT", "/me.pem"),
        ("proxy='http://proxy:3128'", "HTTPS_PROXY", "http://proxy:3128"),
        ("default-timeout='180'", "UV_HTTP_TIMEOUT", "180"),
        ("retries='9'", "UV_HTTP_RETRIES", "9"),
    ],
)  # fmt: skip
def test_a_setting_reaches_uv_in_its_environment(setting: str, variable: str, value: str) -> None:
    told = like(f"global.{setting}\n")
    assert told.environ[variable] == value
    assert "secret" not in " ".join(told.install(PYTHON))


@pytest.mark.parametrize(
    ("setting", "words"),
    [
        ("constraint='/a.txt /b.txt'", "--constraints /a.txt --constraints /b.txt"),
        ("trusted-host='mirror'", "--allow-insecure-host mirror"),
        ("no-index='true'", "--no-index"),
        ("no-cache-dir='1'", "--no-cache"),
    ],
)
def test_a_setting_reaches_uv_in_its_command(setting: str, words: str) -> None:
    assert words in " ".join(like(f":env:.{setting}\n").install(PYTHON, "x"))


def test_a_switch_that_is_off_is_off() -> None:
    assert like("global.no-index='false'\n") == like("")


def test_a_hashed_install_leaves_constraints_out() -> None:
    told = like("global.constraint='/a.txt'\n")
    assert "/a.txt" not in told.install(PYTHON, "x", is_constrained=False)


def test_the_environment_counts_before_the_command_and_the_command_before_all() -> None:
    listed = [":env:.cert='/3'", "global.cert='/1'", "install.cert='/2'", "download.cert='/0'"]
    assert like("\n".join(listed)).environ["SSL_CERT_FILE"] == "/3"
    assert like("\n".join(listed[1:])).environ["SSL_CERT_FILE"] == "/2"
    assert like("\n".join([":env:.cert=''", *listed[1:]])).environ["SSL_CERT_FILE"] == "/2"


@pytest.mark.parametrize("name", ["prefer-binary", "use-feature", "keyring-provider", "no-binary"])
def test_a_setting_without_a_word_in_uv_is_refused(name: str) -> None:
    with pytest.raises(Untranslatable, match=f"pip's setting {name}"):
        like(f"global.{name}='x'\n")


def test_settings_that_change_nothing_of_what_is_installed_do_not_matter() -> None:
    assert like("global.disable-pip-version-check='1'\nglobal.cache-dir='/x'\n") == like("")


def test_of_the_settings_of_uv_those_of_its_cache_hold() -> None:
    environ = {"UV_INDEX_URL": "https://other", "UV_CACHE_DIR": "/cache", "HOME": "/home"}
    told = like("", environ).environ
    assert "UV_INDEX_URL" not in told
    assert (told["UV_CACHE_DIR"], told["HOME"]) == ("/cache", "/home")


def test_a_bundle_of_certificates_of_pip_s_own_library_is_taken_over() -> None:
    assert like("", {"REQUESTS_CA_BUNDLE": "/ca.pem"}).environ["SSL_CERT_FILE"] == "/ca.pem"


def test_uv_is_found_on_the_path_before_the_folders(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("path", "beside"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "uv").touch(mode=0o755)
    monkeypatch.setenv("PATH", str(tmp_path / "path"))
    assert uv.find(tmp_path / "beside") == str(tmp_path / "path" / "uv")
    (tmp_path / "path" / "uv").unlink()
    assert uv.find(tmp_path / "beside") == str(tmp_path / "beside" / "uv")
    assert uv.find() is None


def test_uv_is_fetched_by_its_hashes_alone() -> None:
    assert "--require-hashes" in uv.FETCH
    (entry,) = re.split(r"^(?=[\w.-]+==)", uv.LOCK.read_text(), flags=re.MULTILINE)[1:]
    assert re.match(r"uv==[\d.]+ \\\n( +--hash=sha256:[0-9a-f]{64}( \\)?\n)+\Z", entry)


@pytest.mark.skipif(sys.platform != "linux", reason="no other system has a word for it")
def test_uv_does_not_outlive_who_waits_for_it(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "lives")
    work = f"exec 3> {tmp_path / 'lives'}; exec sleep 1000"
    command = [sys.executable, "-P", "-c", _LEASHED_UV, "/bin/sh", "-c", work]
    parent = subprocess.Popen(
        [sys.executable, "-c", f"import subprocess; subprocess.run({command!r})"]
    )
    with open(tmp_path / "lives") as lives:
        parent.send_signal(signal.SIGKILL)
        parent.wait()
        assert lives.read() == ""  # ends when nobody has it open for writing


@pytest.mark.full
def test_most_of_what_an_import_compiles_is_compiled_beforehand() -> None:
    """And little else: the folders are read off the import of a release of today."""
    release = releases.install("0.33.0", report=print)
    code = releases._import_statements(releases.PROVEN_MODULES) + (
        "; print(*(one.__file__ for one in sys.modules.values()"
        " if getattr(one, '__file__', None)), sep='\\n')"
    )
    command, env = releases.host_command(release)
    printed = subprocess.check_output([*command, "-P", "-c", code], env=env, text=True)
    loaded = {Path(line) for line in printed.splitlines() if "site-packages" in line}
    packages = next(
        parent for parent in next(iter(loaded)).parents if parent.name == "site-packages"
    )
    folders = [packages / name for name in environment.compiled_folders()]
    compiled = {path for folder in folders for path in folder.glob("*.py")}

    def size(paths: set[Path]) -> int:
        return sum(path.stat().st_size for path in paths if path.suffix == ".py")

    assert [folder for folder in folders if not folder.is_dir()] == []
    assert size(loaded & compiled) > 0.75 * size(loaded)
    assert size(loaded & compiled) > 0.75 * size(compiled)
