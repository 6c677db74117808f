"""A definition's digest changes with what it does, and with nothing else, on every Python."""

import json
import shutil
import subprocess
from fnmatch import fnmatchcase
from pathlib import Path

import pytest

from cacheproof.differential.errors import InputError
from cacheproof.differential.texts import known_texts, texts
from cacheproof.differential.texts.modelled import COMPONENTS, LEFT_OUT, ModelledComponent
from cacheproof.reference.releases import MODELLED

ROOT = Path(__file__).resolve().parents[3]
MANAGER = "vllm/v1/core/encoder_cache_manager.py"
SOURCE = '''
import math

logger = init_logger(__name__)
LARGEST: int = 4


class EncoderCacheManager(Base):
    """A manager."""

    slots: int = 3

    def __init__(self, cache_size: int) -> None:
        """How it begins."""
        self.cached = {}
        self.size, self.left = cache_size, cache_size

    @property
    def free(self) -> int:  # what is left
        if self.left > 0:
            self.asked = True
        return self.left

    @free.setter
    def free(self, left: int) -> None:
        self.left = left


def budget(width: int, name: str) -> str:
    return f"{name!r:>{width}} of " "all", (width,)
'''


def read(tmp_path: Path, source: str) -> texts.TreeText:
    file = tmp_path / MANAGER
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(source)
    return texts.read(tmp_path)


def changed(tmp_path: Path, old: str, new: str) -> set[str]:
    """The names whose digests another text changes."""
    assert old in SOURCE
    before = read(tmp_path, SOURCE).digests
    after = read(tmp_path, SOURCE.replace(old, new)).digests
    return {
        name.partition(":")[2]
        for name in before.keys() | after.keys()
        if before.get(name) != after.get(name)
    }


def test_each_definition_has_a_name_of_its_own(tmp_path: Path) -> None:
    text = read(tmp_path, SOURCE)
    members = {"slots", "__init__", "free"}
    names = {"LARGEST", "EncoderCacheManager", "budget"}
    names |= {f"EncoderCacheManager.{member}" for member in members}
    assert text.digests.keys() == {f"encoder_cache_manager:{name}" for name in names}
    attributes = {"cached", "size", "left", "asked"}
    assert text.members == {f"EncoderCacheManager.{name}" for name in members | attributes}


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("  # what is left", "  # another comment"),
        ('"""How it begins."""', '"""Otherwise said."""'),
        ('"""How it begins."""', ""),
        ('"""A manager."""', ""),
        ("{}\n", "{\n        }\n"),
        ('of " "all"', 'of all"'),
        ("import math", "import cmath"),
    ],
)
def test_comments_docstrings_and_formatting_are_no_difference(
    tmp_path: Path, old: str, new: str
) -> None:
    assert changed(tmp_path, old, new) == set()


@pytest.mark.parametrize(
    ("old", "new", "names"),
    [
        ("self.left > 0", "self.left >= 0", {"EncoderCacheManager.free"}),
        ("        return self.left", "            return self.left", {"EncoderCacheManager.free"}),
        ("self.left = left", "self.left = left + 1", {"EncoderCacheManager.free"}),
        ("@property", "@cached_property", {"EncoderCacheManager.free"}),
        ("slots: int = 3", "slots: int = 4", {"EncoderCacheManager.slots"}),
        ("(Base)", "(Other)", {"EncoderCacheManager"}),
        ("!r:>", "!s:>", {"budget"}),
        ("(width,)", "(width)", {"budget"}),
        ("LARGEST: int = 4", "LARGEST: int = 5", {"LARGEST"}),
        ("def budget(", "def limit(", {"budget", "limit"}),
    ],
)
def test_whatever_a_definition_does_otherwise_is_a_difference(
    tmp_path: Path, old: str, new: str, names: set[str]
) -> None:
    assert changed(tmp_path, old, new) == names


def test_a_file_that_is_no_python_is_the_users_error(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"encoder_cache_manager\.py, line 1: .*expected Python"):
        read(tmp_path, "def broken(:\n")


@pytest.mark.parametrize("value", [f"1{' + 0' * 900}", f"1{' + 0' * 9000}", f"{'-' * 20000}1"])
def test_a_file_that_is_nested_too_deeply_is_the_users_error(tmp_path: Path, value: str) -> None:
    with pytest.raises(InputError, match=r"encoder_cache_manager\.py: nested too deeply; expected"):
        read(tmp_path, f"def budget() -> int:\n    return {value}\n")


def test_a_definition_may_move_between_the_files_of_its_component(tmp_path: Path) -> None:
    component = next(one for one in COMPONENTS if one.name == "encoder_budget")
    digests = []
    for path in component.paths:
        tree = tmp_path / path.replace("/", "-")
        (tree / "vllm" / path).parent.mkdir(parents=True)
        (tree / "vllm" / path).write_text("class MultiModalBudget:\n    pass\n")
        digests.append(texts.read(tree).digests)
    assert digests[0] == digests[1] != {}


@pytest.mark.full
def test_every_reason_to_leave_something_out_has_something_to_leave_out(
    trees: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    if missing := set(MODELLED) - trees.keys():
        pytest.skip(f"not installed: {', '.join(sorted(missing))}")
    monkeypatch.setattr(texts, "LEFT_OUT", ())
    found = {name for tree in trees.values() for name in texts.read(tree).digests}
    patterns = {pattern for one in LEFT_OUT for pattern in one.names}
    assert {one for one in patterns if not any(fnmatchcase(name, one) for name in found)} == set()


@pytest.mark.parametrize("component", COMPONENTS, ids=lambda one: one.name)
def test_every_component_and_every_name_of_it_is_in_some_release(
    component: ModelledComponent,
) -> None:
    found = {name for digests in known_texts.load().of_release.values() for name in digests}
    assert {f"{component.name}:{name}" for name in component.only} <= found
    assert any(name.startswith(f"{component.name}:") for name in found)


@pytest.mark.full
@pytest.mark.parametrize("python", ["3.11", "3.12", "3.13"])
def test_every_python_gives_the_digests_of_the_table(
    python: str, tmp_path: Path, trees: dict[str, Path]
) -> None:
    interpreter = _interpreter(python)
    code = (
        "import json, pathlib, sys, types\n"
        "package = sys.modules['cacheproof'] = types.ModuleType('cacheproof')\n"
        f"package.__path__ = [{str(ROOT / 'cacheproof')!r}]\n"
        "from cacheproof.differential.texts.texts import read\n"
        "print(json.dumps([dict(read(pathlib.Path(one)).digests) for one in sys.argv[1:]]))\n"
    )
    read(tmp_path, SOURCE)
    everything = [tmp_path, *trees.values()]
    said = subprocess.run(
        [interpreter, "-P", "-B", "-c", code, *map(str, everything)],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    known = known_texts.load().of_release
    assert json.loads(said) == [
        texts.read(tmp_path).digests,
        *(known[release] for release in trees),
    ]


def _interpreter(python: str) -> str:
    """An interpreter of that Python; where there is none that runs, the test says nothing."""
    found = shutil.which(f"python{python}")
    if found is None or subprocess.run([found, "--version"], capture_output=True).returncode:
        pytest.skip(f"no Python {python} here")
    return found
