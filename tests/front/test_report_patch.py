"""Mends as patches of the release's own files."""

import shutil
import subprocess
from pathlib import Path

import pytest

from cacheproof.differential.texts import mends
from cacheproof.listed.facts import fault_called
from cacheproof.reference.releases import NEWEST
from cacheproof.reporting.patch import Patch, PatchPlace, patch_of
from cacheproof.reporting.subject import ReportSubject

PATH = "vllm/a.py"
OLD = '''"""A module."""


def least(some):
    return min(some)


class Box:
    limit = 3

    def put(self, thing):
        if self.full:
            raise ValueError
        self.things.append(thing)

    def empty(self):
        self.things = []
'''
NEW = OLD.replace("if self.full:", "if self.is_full():") + "\n\ndef added(box):\n    return box\n"
COMMANDS = [
    ["git", "apply"],
    pytest.param(
        ["patch", "-p1", "--silent", "-i"],
        marks=pytest.mark.skipif(shutil.which("patch") is None, reason="no patch on PATH"),
    ),
]


def applied(
    patch: Patch, folder: Path, texts: dict[str, str], command: list[str]
) -> dict[str, str]:
    """What files read after a command has patched them."""
    for path, text in texts.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(text)
    (folder / "mend.patch").write_text(patch.text)
    subprocess.run([*command, "mend.patch"], cwd=folder, check=True)
    return {path: (folder / path).read_text() for path in texts}


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("old", [OLD, OLD.rstrip("\n"), OLD.replace("limit", "größe")])
def test_a_patch_makes_the_new_text_of_the_old(
    tmp_path: Path, command: list[str], old: str
) -> None:
    new = old.replace("return min(some)", "return sorted(some)[0]") + "\n# more"
    patch = patch_of({PATH: (old, new)})
    assert applied(patch, tmp_path, {PATH: old}, command) == {PATH: new}


def test_a_patch_of_another_text_is_refused(tmp_path: Path) -> None:
    patch = patch_of({PATH: (OLD, NEW)})
    with pytest.raises(subprocess.CalledProcessError):
        applied(patch, tmp_path, {PATH: OLD.replace("self.full", "self.fuller")}, ["git", "apply"])


def test_a_patch_names_the_functions_that_it_changes_and_adds() -> None:
    patch = patch_of({PATH: (OLD, NEW)})
    assert patch.places == (PatchPlace(PATH, 12, "Box.put"),)
    assert patch.added == ("added",)


def test_a_change_outside_of_functions_is_in_none() -> None:
    patch = patch_of({PATH: (OLD, OLD.replace("limit = 3", "limit = 4"))})
    assert patch.places == ()
    assert "-    limit = 3\n+    limit = 4\n" in patch.text


def test_a_function_that_is_changed_twice_is_named_once() -> None:
    new = OLD.replace("raise ValueError", "return").replace("append(thing)", "add(thing)")
    assert patch_of({PATH: (OLD, new)}).places == (PatchPlace(PATH, 13, "Box.put"),)


@pytest.mark.parametrize("name", mends.mended_in(NEWEST))
def test_a_mend_is_a_patch_of_the_release(name: str, tmp_path: Path) -> None:
    subject = ReportSubject(fault_called(name), f"vllm@{NEWEST}", None)
    patch = subject.patch(print)
    tree, mended = subject.installed(print).tree, subject.installed_mended(print).tree
    text = mends.mends()[name].for_release(NEWEST)
    assert text is not None
    paths = {edit.path for edit in text.edit}
    old = {path: (tree / path).read_text() for path in paths}
    new = {path: (mended / path).read_text() for path in paths}
    assert applied(patch, tmp_path, old, ["git", "apply"]) == new
    assert patch.places or patch.added
    assert all(f"+++ b/{path}\n" in patch.text for path in paths)
