"""How a store is set up: by a mapping, and by variables of the environment, which win.

    cpu_path, cpu_bytes     a folder in memory (/dev/shm), and what it may hold
    disk_path, disk_bytes   a folder on a disk
    disk_sync               whether an entry must survive a power failure before it is offered
    weights                 a version of the weights; who updates them in place counts it up

A variable is the name in capitals behind EC_: EC_DISK_BYTES=2GiB.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cacheproof.reference.encoder_connector.tiers import TierConfig

FIELDS = ("cpu_path", "cpu_bytes", "disk_path", "disk_bytes", "disk_sync", "weights")
PREFIX = "EC_"
_UNITS = {"": 1, "kB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12}
_UNITS |= {"KiB": 2**10, "MiB": 2**20, "GiB": 2**30, "TiB": 2**40}
_SIZE = re.compile(r"(\d{1,18}) ?([A-Za-z]*)", re.ASCII)
_TRUTH = {"true": True, "1": True, "yes": True, "false": False, "0": False, "no": False}


class BadConfig(ValueError):
    """A setting cannot be used; one line says which, what was expected, and where it stands."""


@dataclass(frozen=True)
class StoreConfig:
    """The tiers of a store, fastest first, and the version of the weights."""

    tiers: tuple[TierConfig, ...]
    weights: str

    @classmethod
    def read(cls, settings: Mapping[str, Any], environment: Mapping[str, str]) -> "StoreConfig":
        """From both.

        Raises:
            BadConfig: a setting is unknown, misses its other half, or is no size or truth; there is
                no tier, or both are in one folder.
        """
        given = {name: (value, f"setting {name}") for name, value in settings.items()}
        for name, value in environment.items():
            field = name.removeprefix(PREFIX).lower()
            if name.startswith(PREFIX) and field in FIELDS:
                given[field] = value, name
        for name in given:
            if name not in FIELDS:
                raise BadConfig(f"setting {name} is unknown; expected one of {', '.join(FIELDS)}")
        tiers = [tier for kind in ("cpu", "disk") for tier in _tier(kind, given)]
        if len({tier.root.resolve() for tier in tiers}) < len(tiers):
            both = tiers[0].root
            raise BadConfig(f"cpu_path and disk_path are both {both}; expected two folders")
        if not tiers:
            raise BadConfig("no tier; expected disk_path and disk_bytes, or cpu_path and cpu_bytes")
        return cls(tuple(tiers), str(given.get("weights", ("", ""))[0]))


def _tier(kind: str, given: Mapping[str, tuple[Any, str]]) -> list[TierConfig]:
    halves = [f"{kind}_path", f"{kind}_bytes"]
    missing = [name for name in halves if name not in given]
    if len(missing) == 2:
        return []
    if missing:
        other = given[next(name for name in halves if name in given)][1]
        raise BadConfig(f"{other} stands alone; expected {missing[0]} as well")
    path, bytes_max = given[halves[0]][0], _size(*given[halves[1]])
    syncs = _truth(*given[f"{kind}_sync"]) if f"{kind}_sync" in given else False
    if not isinstance(path, str) or not Path(path).is_absolute():
        raise BadConfig(f"{given[halves[0]][1]} is {path!r}; expected an absolute path")
    return [TierConfig(Path(path), bytes_max, syncs)]


def _size(value: Any, where: str) -> int:
    found = _SIZE.fullmatch(str(value)) if not isinstance(value, bool) else None
    if found is None or found[2] not in _UNITS or int(found[1]) == 0:
        raise BadConfig(f"{where} is {value!r}; expected a number of bytes, such as 2GiB")
    return int(found[1]) * _UNITS[found[2]]


def _truth(value: Any, where: str) -> bool:
    if str(value).lower() not in _TRUTH:
        raise BadConfig(f"{where} is {value!r}; expected true or false")
    return _TRUTH[str(value).lower()]
