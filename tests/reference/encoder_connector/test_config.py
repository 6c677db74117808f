"""How a store is set up, and one clear line where it cannot be."""

from pathlib import Path

import pytest

from cacheproof.reference.encoder_connector.config import BadConfig, StoreConfig
from cacheproof.reference.encoder_connector.tiers import TierConfig

DISK = {"disk_path": "/d", "disk_bytes": "64GiB"}


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
        ({}, {}, "no tier; expected disk_path and disk_bytes, or cpu_path and cpu_bytes"),
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
    ],
)
def test_what_cannot_be_used_is_named_in_one_line(settings, environment, line: str) -> None:
    with pytest.raises(BadConfig) as refused:
        StoreConfig.read(settings, environment)
    assert str(refused.value).startswith(line)
    assert "\n" not in str(refused.value)
