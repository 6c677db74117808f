"""A class that is not what its module's text says, once all is imported, is told."""

import builtins
import inspect
from contextlib import closing
from types import ModuleType
from typing import Any

import pytest

from cacheproof.differential.provision import releases
from cacheproof.differential.targets.host import __main__ as host_main
from cacheproof.differential.targets.host.as_imported import differences, replaced
from cacheproof.differential.targets.process import HostTarget
from cacheproof.differential.targets.resolve import resolve
from cacheproof.proving.targets import MANAGERS, SCHEDULER
from cacheproof.reference.releases import NEWEST

TEXT = '''
from collections import OrderedDict


class Base:
    def given(self, more=False, *, most=[1]):
        return sorted(OrderedDict())

    @property
    def kept(self):
        return 1


class Manager(Base):
    """Manages."""

    @classmethod
    def create(cls):
        return cls()

    def free(self, request):
        return [one for one in request]
'''
NAMES = ["Manager"]


@pytest.fixture
def module() -> ModuleType:
    made = ModuleType("made")
    made.__file__ = "made.py"
    exec(compile(TEXT, "made.py", "exec"), vars(made))
    return made


def _told(module: Any) -> list[str]:
    return list(differences(module, TEXT, NAMES))


def test_a_class_is_what_its_text_says(module: Any) -> None:
    assert _told(module) == []


@pytest.mark.parametrize(
    ("owner", "name"),
    [("Manager", "free"), ("Base", "given"), ("Base", "kept"), ("Manager", "__setattr__")],
)
def test_a_method_that_another_module_sets_is_told(module: Any, owner: str, name: str) -> None:
    setattr(getattr(module, owner), name, lambda self, *given: None)
    assert _told(module) == [f"{owner}.{name}"]


def test_other_code_of_a_method_is_told(module: Any) -> None:
    module.Manager.free.__code__ = (lambda self, request: None).__code__
    assert _told(module) == ["Manager.free"]


def test_other_defaults_of_a_method_are_told(module: Any) -> None:
    module.Base.given.__defaults__ = (True,)
    assert _told(module) == ["Base.given"]
    module.Base.given.__defaults__ = (False,)
    assert _told(module) == []
    module.Base.given.__defaults__ = (0,)
    assert _told(module) == ["Base.given"]
    module.Base.given.__defaults__ = (False,)
    module.Base.given.__kwdefaults__ = {"most": []}
    assert _told(module) == ["Base.given"]
    module.Base.given.__kwdefaults__ = None
    assert _told(module) == ["Base.given"]


def test_a_method_that_is_gone_is_told(module: Any) -> None:
    del module.Manager.free
    assert _told(module) == ["Manager.free"]


def test_a_class_that_is_another_is_told(module: Any) -> None:
    module.Manager = type("Manager", (module.Manager,), {})
    assert "Manager.free" in _told(module)


def test_a_base_from_elsewhere_is_told(module: Any) -> None:
    module.Manager.__bases__ = (type("Other", (module.Base,), {}),)
    assert _told(module) == ["Other, a base of Manager"]


def test_a_name_that_means_something_else_is_told(
    module: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    module.OrderedDict = dict
    assert _told(module) == ["OrderedDict"]
    del module.OrderedDict
    with monkeypatch.context() as patched:
        patched.setattr(builtins, "sorted", lambda found: list(found))
        assert _told(module) == ["sorted"]
    module.sorted = sorted
    assert _told(module) == ["sorted"]


def test_a_user_that_has_another_class_of_that_name_is_told(module: Any) -> None:
    user = ModuleType("user")
    assert list(replaced(module, [user], NAMES)) == []
    vars(user)["Manager"] = module.Manager
    assert list(replaced(module, [user], NAMES)) == []
    vars(user)["Manager"] = module.Base
    assert list(replaced(module, [user], NAMES)) == ["user.Manager"]


def test_a_release_is_asked_once_it_has_imported_its_scheduler() -> None:
    own = releases.install(NEWEST, report=print).tree / MANAGERS
    text, module = own.read_text(), MANAGERS.removesuffix(".py").replace("/", ".")
    other = text.replace("return freed", "return list(freed)")
    assert other != text
    with closing(resolve(f"vllm@{NEWEST}", report=print)) as target:
        assert isinstance(target, HostTarget)
        names = ["EncoderCacheManager", "EncoderDecoderCacheManager"]
        assert target.imported_otherwise([module, SCHEDULER], module, text, names) == []
        (told, *_) = target.imported_otherwise([module, SCHEDULER], module, other, names)
    assert told == "EncoderCacheManager.get_freed_mm_hashes"


def test_builtins_are_noted_before_anything_of_a_release_is_imported() -> None:
    code = inspect.getsource(host_main)
    first = code.index('import_module("host.as_imported")')
    others = [code.index(f'import_module("host.{one}")') for one in ("session", "torch_names")]
    assert first < min([*others, code.index("host.release")])
