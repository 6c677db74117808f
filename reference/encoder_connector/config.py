"""How a store is set up: by a file, by a mapping, by variables of the environment; the later win.

    cpu_path, cpu_bytes     a folder in memory (/dev/shm), and what it may hold
    disk_path, disk_bytes   a folder on a disk
    disk_sync               whether an entry must survive a power failure before it is offered
    remote_url              a Redis or Valkey server: redis://, rediss:// or unix://
    remote_timeout          seconds that an entry may take from it
    remote_pause            seconds for which it is left alone when it took longer
    weights                 a version of the weights; who updates them in place counts it up
    config_file             a YAML file with these settings

A variable is the name in capitals behind EC_: EC_DISK_BYTES=2GiB.
"""

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cacheproof.reference.encoder_connector.tiers import RemoteConfig, TierConfig

FIELDS = (
    "cpu_path",
    "cpu_bytes",
    "disk_path",
    "disk_bytes",
    "disk_sync",
    "remote_url",
    "remote_timeout",
    "remote_pause",
    "weights",
)
FILE = "config_file"
PREFIX = "EC_"
TIMEOUT_SECONDS = 2.0
PAUSE_SECONDS = 5.0
SECONDS_MAX = 3600.0
_UNITS = {"": 1, "kB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12}
_UNITS |= {"KiB": 2**10, "MiB": 2**20, "GiB": 2**30, "TiB": 2**40}
_SIZE = re.compile(r"(\d{1,18}) ?([A-Za-z]*)", re.ASCII)
_URL = re.compile(r"(redis|rediss|unix)://\S+")
_TRUTH = {"true": True, "1": True, "yes": True, "false": False, "0": False, "no": False}


class BadConfig(ValueError):
    """A setting cannot be used; one line says which, what was expected, and where it stands."""


Given = Mapping[str, tuple[Any, str]]
"""The value of each setting, and where it stands."""


@dataclass(frozen=True)
class StoreConfig:
    """The tiers of a store, fastest first, a server behind them, and the version of the weights."""

    tiers: tuple[TierConfig, ...]
    weights: str = ""
    remote: RemoteConfig | None = None

    @classmethod
    def read(cls, settings: Mapping[str, object], environment: Mapping[str, str]) -> "StoreConfig":
        """The configuration from file, mapping and environment together.

        Raises:
            BadConfig: a setting is unknown, misses its other half, or cannot be used; the file
                cannot be read; there is no tier, or both are in one folder; a package is missing.
        """
        given = {name: (value, f"setting {name}") for name, value in settings.items()}
        for name, value in environment.items():
            field = name.removeprefix(PREFIX).lower()
            if name.startswith(PREFIX) and field in (*FIELDS, FILE):
                given[field] = value, name
        if FILE in given:
            given = _in_file(*given.pop(FILE)) | given
        for name, (_, where) in given.items():
            if name not in FIELDS:
                raise BadConfig(f"{where} is unknown; expected one of {', '.join(FIELDS)}")
        tiers = [tier for kind in ("cpu", "disk") for tier in _tier(kind, given)]
        if len({tier.root.resolve() for tier in tiers}) < len(tiers):
            both = tiers[0].root
            raise BadConfig(f"cpu_path and disk_path are both {both}; expected two folders")
        remote = _remote(given)
        if not tiers and remote is None:
            raise BadConfig(
                "no tier; expected disk_path and disk_bytes, cpu_path and cpu_bytes, or remote_url"
            )
        return cls(tuple(tiers), str(given.get("weights", ("", ""))[0]), remote)


def _in_file(path: Any, where: str) -> dict[str, tuple[Any, str]]:
    """The settings of a YAML file."""
    try:
        import yaml
    except ModuleNotFoundError:
        raise BadConfig(_needs(where, "PyYAML")) from None
    try:
        text = Path(path).read_text()
    except (OSError, TypeError, ValueError) as error:
        reason = getattr(error, "strerror", None) or type(error).__name__
        raise BadConfig(f"{where} is {path!r}, which cannot be read: {reason}") from None
    try:
        found = yaml.safe_load(text)
    except (yaml.YAMLError, RecursionError) as error:
        line = getattr(getattr(error, "problem_mark", None), "line", 0) + 1
        raise BadConfig(f"{path}, line {line}, is no YAML; expected a setting a line") from None
    if not isinstance(found, dict):
        kind = type(found).__name__
        raise BadConfig(f"{path} is a {kind}; expected settings, such as disk_bytes: 64GiB")
    return {str(name): (value, f"setting {name} of {path}") for name, value in found.items()}


def _remote(given: Given) -> RemoteConfig | None:
    if "remote_url" not in given:
        for name in ("remote_timeout", "remote_pause"):
            if name in given:
                raise BadConfig(f"{given[name][1]} stands alone; expected remote_url as well")
        return None
    url, where = given["remote_url"]
    no_url = f"{where} is no URL of a server; expected redis://HOST:PORT/DATABASE"
    if _URL.fullmatch(str(url)) is None:
        raise BadConfig(no_url)
    try:
        import redis
    except ModuleNotFoundError:
        raise BadConfig(_needs(where, "redis")) from None
    try:
        redis.Redis.from_url(url).close()
    except ValueError:  # its text may have the password
        raise BadConfig(no_url) from None
    said, where = given.get("remote_timeout", (TIMEOUT_SECONDS, ""))
    timeout = _seconds(said, where)
    if not timeout:
        raise BadConfig(f"{where} is {said!r}; expected more than no time")
    return RemoteConfig(url, timeout, _seconds(*given.get("remote_pause", (PAUSE_SECONDS, ""))))


def _needs(where: str, package: str) -> str:
    return (
        f"{where} needs the package {package}, which this Python has not; expected what "
        f"python -m pip install {package} brings"
    )


def _seconds(value: Any, where: str) -> float:
    try:
        seconds = math.nan if isinstance(value, bool) else float(value)
    except (TypeError, ValueError):
        seconds = math.nan
    if not 0 <= seconds <= SECONDS_MAX:
        raise BadConfig(f"{where} is {value!r}; expected seconds, such as {TIMEOUT_SECONDS:g}")
    return seconds


def _tier(kind: str, given: Given) -> list[TierConfig]:
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


def _size(value: object, where: str) -> int:
    found = _SIZE.fullmatch(str(value)) if not isinstance(value, bool) else None
    if found is None or found[2] not in _UNITS or int(found[1]) == 0:
        raise BadConfig(f"{where} is {value!r}; expected a number of bytes, such as 2GiB")
    return int(found[1]) * _UNITS[found[2]]


def _truth(value: object, where: str) -> bool:
    if str(value).lower() not in _TRUTH:
        raise BadConfig(f"{where} is {value!r}; expected true or false")
    return _TRUTH[str(value).lower()]
