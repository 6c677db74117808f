"""How a store is set up, and one clear line where it cannot be."""

import sys
from pathlib import Path

import pytest

from cacheproof.reference.encoder_connector.config import BadConfig, StoreConfig
from cacheproof.reference.encoder_connector.tiers import RemoteConfig, TierConfig

DISK = {"disk_path": "/d", "disk_bytes": "64GiB"}
REMOTE = {"remote_url": "redis://user:secret@host:7/0"}


def test_tiers_are_read_fastest_first() -> None:
    read = StoreConfig.read({**DISK, "cpu_path": "/dev/shm/e", "cpu_bytes": 5, "weights": 3}, {})
    assert read == StoreConfig(
        (TierConfig(Path("/dev/shm/e"), 5), TierConfig(Path("/d"), 64 << 30)), "3"
    )


def test_the_environment_wins() -> None:
    changed = {"EC_DISK_BYTES": "2 kB", "EC_DISK_SYNC": "yes", "EC_OTHER": "x", "DISK_PATH": "/no"}
    (tier,) = StoreConfig.read(DISK, changed).tiers
    assert tier == TierConfig(Path("/d"), 2000, syncs=True)


@pytest.mark.parametrize(
    ("settings", "environment", "line"),
    [
        ({}, {}, "no tier; expected disk_path and disk_bytes, cpu_path and cpu_bytes, or remote"),
        ({"disk_path": "/d"}, {}, "setting disk_path stands alone; expected disk_bytes as well"),
        ({}, {"EC_CPU_BYTES": "1"}, "EC_CPU_BYTES stands alone; expected cpu_path as well"),
        (
            {**DISK, "cpu_path": "/x/../d", "cpu_bytes": 1},
            {},
            "cpu_path and disk_path are both /x/../d; expected two folders",
        ),
        ({**DISK, "size": 1}, {}, "setting size is unknown; expected one of cpu_path, "),
        ({**DISK, "disk_path": "d"}, {}, "setting disk_path is 'd'; expected an absolute path"),
        ({**DISK, "disk_path": 7}, {}, "setting disk_path is 7; expected an absolute path"),
        ({**DISK, "disk_sync": "maybe"}, {}, "setting disk_sync is 'maybe'; expected true or"),
        *(
            (DISK, {"EC_DISK_BYTES": size}, f"EC_DISK_BYTES is {size!r}; expected a number of")
            for size in ("", "0", "-1", "1.5GiB", "1 parsec", "9" * 40, "x")
        ),
        ({**DISK, "disk_bytes": True}, {}, "setting disk_bytes is True; expected a number of"),
        ({**DISK, "remote_pause": 1}, {}, "setting remote_pause stands alone; expected remote_url"),
        ({**REMOTE, "remote_pause": "x"}, {}, "setting remote_pause is 'x'; expected seconds"),
        ({**DISK, "remote_timeout": 1}, {}, "setting remote_timeout stands alone; expected remote"),
        *(
            ({"remote_url": url}, {}, "setting remote_url is no URL of a server; expected redis://")
            for url in ("", 7, "http://host", "redis://host:secret", "redis://h/one two", None)
        ),
        *(
            (REMOTE, {"EC_REMOTE_TIMEOUT": time}, f"EC_REMOTE_TIMEOUT is {time!r}; expected secon")
            for time in ("", "-1", "nan", "inf", "1e9", "2 s")
        ),
        (REMOTE, {"EC_REMOTE_TIMEOUT": "0"}, "EC_REMOTE_TIMEOUT is '0'; expected more than no"),
        ({"config_file": "/none.yaml"}, {}, "setting config_file is '/none.yaml', which cannot be"),
        ({"config_file": ["x"]}, {}, "setting config_file is ['x'], which cannot be read: TypeErr"),
        ({}, {"EC_CONFIG_FILE": "/\0"}, "EC_CONFIG_FILE is '/\\x00', which cannot be read: Value"),
    ],
)
def test_what_cannot_be_used_is_named_in_one_line(settings, environment, line: str) -> None:
    with pytest.raises(BadConfig) as refused:
        StoreConfig.read(settings, environment)
    assert str(refused.value).startswith(line)
    assert "\n" not in str(refused.value)
    assert "secret" not in str(refused.value)


def test_a_server_is_enough() -> None:
    assert StoreConfig.read(REMOTE, {}) == StoreConfig(
        (), "", RemoteConfig(REMOTE["remote_url"], 2.0, 5.0)
    )
    changed = {"EC_REMOTE_TIMEOUT": "0.5", "EC_REMOTE_URL": "unix:///s", "EC_REMOTE_PAUSE": "0"}
    assert StoreConfig.read(REMOTE, changed).remote == RemoteConfig("unix:///s", 0.5, 0.0)


def test_a_file_is_read_and_the_others_win(tmp_path: Path) -> None:
    file = tmp_path / "encoder.yaml"
    file.write_text("disk_path: /d\ndisk_bytes: 64GiB\ndisk_sync: true\nweights: 1\n")
    assert StoreConfig.read({"config_file": str(file)}, {}) == StoreConfig(
        (TierConfig(Path("/d"), 64 << 30, syncs=True),), "1"
    )
    settings, environment = {"disk_bytes": "1GiB", "weights": "2"}, {"EC_CONFIG_FILE": str(file)}
    assert StoreConfig.read(settings, environment | {"EC_WEIGHTS": "3"}) == StoreConfig(
        (TierConfig(Path("/d"), 1 << 30, syncs=True),), "3"
    )


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("", " is a NoneType; expected settings, such as disk_bytes: 64GiB"),
        ("- disk_path", " is a list; expected settings, such as"),
        ("disk_path: /d\ndisk_bytes: [", ", line 2, is no YAML; expected a setting a line"),
        ("a: !!python/object:os.x\n", ", line 1, is no YAML; expected a setting a line"),
        ("[" * 100_000, ", line 1, is no YAML; expected a setting a line"),
    ],
)
def test_a_file_that_cannot_be_used_is_named(tmp_path: Path, text: str, line: str) -> None:
    file = tmp_path / "encoder.yaml"
    file.write_text(text)
    with pytest.raises(BadConfig) as refused:
        StoreConfig.read({"config_file": str(file)}, {})
    assert str(refused.value).startswith(f"{file}{line}")


def test_a_setting_of_a_file_is_named_with_it(tmp_path: Path) -> None:
    file = tmp_path / "encoder.yaml"
    file.write_text("disk_path: /d\ndisk_bytes: much\n7: 8\n")
    with pytest.raises(BadConfig) as refused:
        StoreConfig.read({"config_file": str(file)}, {})
    assert str(refused.value).startswith(f"setting 7 of {file} is unknown; expected one of")
    file.write_text("disk_path: /d\ndisk_bytes: much\n")
    with pytest.raises(BadConfig) as refused:
        StoreConfig.read({"config_file": str(file)}, {})
    assert str(refused.value).startswith(f"setting disk_bytes of {file} is 'much'; expected")


def test_a_package_that_is_missing_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    for package, setting in (("redis", REMOTE), ("yaml", {"config_file": "/x"})):
        monkeypatch.setitem(sys.modules, package, None)
        with pytest.raises(BadConfig, match=r"needs the package .* python -m pip install "):
            StoreConfig.read(setting, {})
