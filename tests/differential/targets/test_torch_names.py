"""What a release asks of a torch that has it no longer is answered by name, and told."""

import importlib
import sys
from types import ModuleType
from typing import Any

import pytest

from cacheproof.differential.targets.host import torch_names


def torch_with(**names: Any) -> dict[str, ModuleType]:
    """A torch whose `_C._cpu` has these names, and whose `cpu` has all of today's."""
    modules = {name: ModuleType(name) for name in ("torch", "torch._C", "torch._C._cpu")}
    today = modules["torch.cpu"] = ModuleType("torch.cpu")
    for name in torch_names._MOVED:
        setattr(today, name, lambda: "today's answer")
    vars(modules["torch._C._cpu"]).update(names)
    modules["torch._C"]._cpu = modules["torch._C._cpu"]  # type: ignore[attr-defined]
    modules["torch"]._C = modules["torch._C"]  # type: ignore[attr-defined]
    modules["torch"].cpu = today  # type: ignore[attr-defined]
    for name, module in modules.items():
        module.__spec__ = importlib.machinery.ModuleSpec(name, None)
    return modules


def answered(monkeypatch: pytest.MonkeyPatch, **names: Any) -> Any:
    """The `_C._cpu` of a torch with these names, once releases are answered."""
    modules = torch_with(**names)
    for name, module in modules.items():
        monkeypatch.setitem(sys.modules, name, module)
    torch_names.answer()
    return modules["torch._C._cpu"]


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> dict[str, None]:
    monkeypatch.setattr(torch_names, "_asked", {})
    return torch_names._asked


def test_a_name_that_moved_is_answered_and_told(
    asked: dict[str, None], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    cpu = answered(monkeypatch)
    assert cpu._is_avx512_supported() == "today's answer"
    torch_names.tell()
    assert capsys.readouterr().out == (
        "torch lacks torch._C._cpu._is_avx512_supported, which the release asks for: "
        "torch.cpu._is_avx512_supported answers\n"
    )


def test_what_torch_has_stays_as_it_is_and_nothing_is_told(
    asked: dict[str, None], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    cpu = answered(monkeypatch, _is_avx512_supported=lambda: "its own")
    assert cpu._is_avx512_supported() == "its own"
    torch_names.tell()
    assert capsys.readouterr().out == ""
