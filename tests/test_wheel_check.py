"""The wheel check passes an install of cacheproof alone and names whatever else one brings."""

import importlib.util
from pathlib import Path

import pytest

SCRIPT = Path(__file__).resolve().parent.parent / "setup" / "wheel_check.py"
module_spec = importlib.util.spec_from_file_location("wheel_check", SCRIPT)
wheel_check = importlib.util.module_from_spec(module_spec)
module_spec.loader.exec_module(wheel_check)

EXPECTED = {"cacheproof/__init__.py", "cacheproof/spec/__init__.py"}


@pytest.fixture
def site_packages(tmp_path: Path) -> Path:
    for name in (*EXPECTED, "cacheproof-0.1.0.dist-info/METADATA"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    return tmp_path


def test_an_install_of_cacheproof_alone_has_no_faults(site_packages: Path) -> None:
    assert wheel_check.faults(site_packages, EXPECTED) == []


@pytest.mark.parametrize(
    ("file", "said"),
    [
        ("cacheproof.pth", "cacheproof.pth"),
        ("cacheproof/leftover.py", "brings cacheproof/leftover.py"),
    ],
)
def test_a_file_too_many_is_a_fault(site_packages: Path, file: str, said: str) -> None:
    (site_packages / file).touch()
    (fault,) = wheel_check.faults(site_packages, EXPECTED)
    assert said in fault


def test_a_second_top_level_name_is_a_fault(site_packages: Path) -> None:
    (site_packages / "spec").mkdir()
    (fault,) = wheel_check.faults(site_packages, EXPECTED)
    assert "site-packages gained spec" in fault


def test_a_missing_dist_info_is_a_fault(site_packages: Path) -> None:
    (site_packages / "cacheproof-0.1.0.dist-info").rename(site_packages / "other-1.0.dist-info")
    assert len(wheel_check.faults(site_packages, EXPECTED)) == 2


def test_a_file_that_the_wheel_lost_is_a_fault(site_packages: Path) -> None:
    (site_packages / "cacheproof/spec/__init__.py").unlink()
    (fault,) = wheel_check.faults(site_packages, EXPECTED)
    assert fault == "the wheel lacks cacheproof/spec/__init__.py"


def test_every_file_of_a_linked_folder_is_expected_once(tmp_path: Path) -> None:
    (tmp_path / "cacheproof").mkdir()
    (tmp_path / "cacheproof/__init__.py").touch()
    for folder in wheel_check.FOLDERS:
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "rules.toml").touch()
        (tmp_path / "cacheproof" / folder).symlink_to(Path("..") / folder)
    for folder, called in wheel_check.PAGES.items():
        (tmp_path / folder).mkdir(parents=True)
        (tmp_path / folder / "page.md").touch()
        (tmp_path / "cacheproof" / called).symlink_to(Path("..") / folder)
    assert wheel_check.package_files(tmp_path) == {
        "cacheproof/__init__.py",
        *(f"cacheproof/{folder}/rules.toml" for folder in wheel_check.FOLDERS),
        *(f"cacheproof/{called}/page.md" for called in wheel_check.PAGES.values()),
    }
