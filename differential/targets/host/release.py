"""The vLLM release in this interpreter: what it is, and how to run a batch of traces on it."""

import functools
import importlib
import inspect
import os
import signal
import sys
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import vllm
from vllm.v1.core import encoder_cache_manager
from vllm.v1.core.kv_cache_manager import KVCacheManager
from vllm.v1.core.sched.scheduler import Scheduler
from vllm.v1.request import Request

from .called import WatchedSession
from .explorer import Expansion, Explorer, ManagerStates
from .faults.entry_table import TABLE_FAULTS
from .faults.kv_cache import KV_CACHE_FAULTS
from .faults.manager import FAULTS
from .faults.scheduler import SCHEDULER_FAULTS
from .managers import media_hash
from .managers.block_hash_release import block_hash_session
from .managers.entry_table import Region, TableSession, TableStates
from .managers.kv_cache import KVCacheSession
from .managers.manager import ManagerSession, Position
from .package import offer
from .protocol import Event, HostError, Illegal, Json, Plain, Protocol, Record
from .scheduler.built import built_otherwise
from .scheduler.scheduler import build
from .scheduler.session import SchedulerSession
from .session import (
    DrivenSession,
    closed,
    is_raised_by_release,
    limit_events,
    raised_of,
    run_events,
)
from .vllm_objects.encoder_cache import EncoderCacheManager

if TYPE_CHECKING:
    from .connectors.encoder_connector import ConnectorSession
    from .connectors.engine import MakeKit

CLASSES = {
    "encoder_cache": "EncoderCacheManager",
    "encoder_decoder": "EncoderDecoderCacheManager",
}
KV_CACHE = "kv_cache"
CONNECTOR = "encoder_connector"
TABLE = "entry_table"
ASKED_OF_MANAGERS = ("can_allocate", "allocate", "free_encoder_input", "free")
"""Methods of an encoder cache manager that the scheduler of every release calls."""
IMPORT_SECONDS = 30
"""Limit for importing a plug-in's own code: vLLM is imported by then."""


class ManagersHost:
    """Runs traces on the managers of this vLLM, or on a plug-in's in their place."""

    def __init__(self) -> None:
        if os.environ.get("PYTHONHASHSEED") != "0":
            raise HostError("PYTHONHASHSEED must be 0: set order would differ between runs")
        limit_events()
        self.protocol = Protocol.detect(
            encoder_cache_manager.EncoderCacheManager, Request, Scheduler
        )

    def hello(self, plug_in: str | None) -> dict[str, Json]:
        """Versions and protocol flags.

        `plug_in` is the kind of manager that the plug-in is, `refusal` why it cannot be used.
        """
        kind, refusal = None, None
        if plug_in is not None:
            _import_from_here()
            kind, refusal = _kind(plug_in)
        return {
            "python": sys.version.split()[0],
            "vllm": vllm.__version__,
            "protocol": self.protocol._asdict(),
            "plug_in": kind,
            "refusal": refusal,
        }

    def run(self, request: Plain) -> Iterator[dict[str, object]]:
        """One result per trace of the batch, in order. What the release raises while a trace's
        managers or scheduler are made counts as raised in the trace's first event."""
        plug_in = request.get("manager")
        fault = request.get("fault")
        for trace in request["traces"]:
            yield self._run_trace(trace, plug_in, fault)

    def called(self, request: Plain) -> dict[str, Json]:
        """The functions of the release that each event of a trace calls, as far as it is run."""
        asked = AskedTrace(request["trace"], request["manager"], request["fault"], self.protocol)
        root = f"{Path(vllm.__file__).parents[1]}{os.sep}"
        called: list[list[str]] = []
        with suppress(Illegal), closed(SESSIONS[asked.header["depth"]](asked)) as session:
            run_events(WatchedSession(session, root, called), asked.trace["events"])
        return {"called": called}

    def built(self, request: Plain) -> dict[str, Json]:
        """What schedulers of these traces build that is not of the proved classes, or change in it;
        and how many were built with a manager of each class."""
        found: dict[str, None] = {}
        built: Counter[str] = Counter()
        for trace in request["traces"]:
            kind = trace["header"]["manager"]
            with suppress(Illegal):
                found |= dict.fromkeys(built_otherwise(trace, _manager_class(kind, None)))
                built[CLASSES[kind]] += 1
        return {"otherwise": list(found), "built": built}

    def explore(self, request: Plain) -> dict[str, Json]:
        """Begin to explore a manager or a table; returns its first state and its text's digest."""
        try:
            self._explorer = self._explorer_of(request)
        except Illegal as reason:
            return {"illegal": str(reason)}
        explorer = self._explorer
        return {
            "tree": explorer.tree(),
            "source": explorer.source,
            "capacity": explorer.capacity,
        }

    def _explorer_of(self, request: Plain) -> Explorer[bytes] | Explorer[tuple[Position, bytes]]:
        """What explores the manager or the table. Raises Illegal where the release has none."""
        header, alphabet = request["header"], request["alphabet"]
        if header["manager"] == TABLE:
            table = _table_session(header["config"], request["fault"])
            return Explorer(table, TableStates(table), alphabet)
        manager = _make_manager(
            header["manager"], request["manager"], request["fault"], header["config"]["capacity"]
        )
        session = ManagerSession(header, manager, self.protocol)
        return Explorer(session, ManagerStates(session), alphabet, manager.cache_size)

    def expand(self, states: list[int]) -> Expansion:
        """What the explorer makes of these states."""
        return self._explorer.expand(states)

    def _run_trace(self, trace: Event, plug_in: str | None, fault: str | None) -> dict[str, object]:
        asked = AskedTrace(trace, plug_in, fault, self.protocol)
        depth = trace["header"]["depth"]
        if depth not in SESSIONS:
            raise HostError(f"a {depth}-depth trace for a release without an engine")
        try:
            begun = SESSIONS[depth](asked)
        except Illegal as reason:
            return {"records": reason.records, "illegal": str(reason)}
        except Exception as error:
            if not is_raised_by_release(error):
                raise
            first: Record = (None, [], raised_of(error), None)
            # A trace without events has no record that could say it.
            return {"records": [first for _ in trace["events"][:1]]}
        try:
            with closed(begun) as session:
                result: dict[str, object] = {"records": run_events(session, trace["events"])}
        except Illegal as reason:
            return {"records": reason.records, "illegal": str(reason)}
        if isinstance(session, ManagerSession | SchedulerSession):
            result["capacity"] = session.recorder.manager.cache_size
        return result


@dataclass(frozen=True)
class AskedTrace:
    """A trace that is to be run, on a plug-in or none, with a fault planted or none; `protocol` is
    the release's."""

    trace: Event
    plug_in: str | None
    fault: str | None
    protocol: Protocol

    @property
    def header(self) -> Event:
        """The trace's first line."""
        header: Event = self.trace["header"]
        return header

    def make_manager(self, capacity: int) -> EncoderCacheManager:
        """A manager of the trace's kind, with the fault planted."""
        return _make_manager(self.header["manager"], self.plug_in, self.fault, capacity)


def _manager_session(asked: AskedTrace) -> ManagerSession:
    manager = asked.make_manager(asked.header["config"]["capacity"])
    return ManagerSession(asked.header, manager, asked.protocol)


def _scheduler_session(asked: AskedTrace) -> SchedulerSession:
    manager = _manager_class(asked.header["manager"], asked.plug_in)
    kit = build(
        asked.trace,
        functools.partial(_plant, asked.fault),
        # A release's own manager is made by the scheduler itself, as it does for users.
        None if manager.__module__ == encoder_cache_manager.__name__ else manager,
        _make_kv_cache_manager(asked.plug_in),
    )
    if asked.fault in SCHEDULER_FAULTS:
        SCHEDULER_FAULTS[asked.fault](kit.scheduler)
    return SchedulerSession(kit, asked.header["config"])


SESSIONS: dict[str, Callable[[AskedTrace], DrivenSession]] = {
    "manager": _manager_session,
    "scheduler": _scheduler_session,
    "block_hash": lambda asked: block_hash_session(asked.header, asked.fault),
    "media_hash": lambda asked: media_hash.of_release(
        asked.header["config"]["algorithm"], asked.fault
    ),
    "media_identifier": lambda asked: _media_identifier(asked),
    "kv_cache": lambda asked: _kv_cache(asked.header["config"], asked.fault),
    "front_end": lambda asked: _front_end(asked),
    CONNECTOR: lambda asked: _connectors(asked),
}
"""Depth -> what makes the session of a trace; engines have a host of their own."""


def _front_end(asked: AskedTrace) -> DrivenSession:
    from .managers.front_end_release import front_end_session

    return front_end_session(asked.header, asked.fault)


def _media_identifier(asked: AskedTrace) -> DrivenSession:
    from .managers.media_identifier_release import media_identifier_session

    return media_identifier_session(asked.header, asked.fault)


def _kv_cache(config: Event, fault: str | None) -> KVCacheSession:
    """A session on the release's KV cache manager. Raises Illegal where it is too old for it."""
    if (
        "num_external_computed_tokens"
        not in inspect.signature(KVCacheManager.allocate_slots).parameters
    ):
        raise Illegal("KV cache traces ask for slots as vLLM 0.14.0 and later do")
    from .managers import kv_cache_build

    kit = kv_cache_build.build(config)
    if fault is not None:
        KV_CACHE_FAULTS[fault](kit.manager)
    return KVCacheSession(config, kit)


def _connectors(asked: AskedTrace) -> "ConnectorSession":
    """A session on engines with connectors. Raises Illegal where the release has none yet."""
    from .connectors.encoder_connector import ConnectorSession

    connector = None if asked.plug_in is None else _plugged_in(asked.plug_in)
    return ConnectorSession(asked.header["config"], _kits_of(connector), asked.fault)


@functools.cache
def _kits_of(connector: type | None) -> "MakeKit":
    """What makes the kits of a trace's engines. Raises Illegal where there can be none."""
    try:
        from .connectors.release import kit_of
    except ImportError:
        raise Illegal(f"vLLM {vllm.__version__} has no connectors of encoder caches") from None
    with suppress(ImportError):  # engines are forks that have imported it
        importlib.import_module("host.connectors.cpu")
    return functools.partial(kit_of, connector)


def _table_session(config: Event, fault: str | None) -> TableSession:
    """A session on the release's table of entries, with a fault planted in it or none. Raises
    Illegal where the release has none."""
    try:
        from vllm.distributed.ec_transfer.ec_connector.cpu.scheduler import embedding_cache
    except ImportError:
        raise Illegal(f"vLLM {vllm.__version__} has no EmbeddingCache") from None
    table = embedding_cache.EmbeddingCache(config["capacity"])
    if fault is not None:
        TABLE_FAULTS[fault](table)
    return TableSession(config, Region(table))


def _make_manager(
    kind: str, plug_in: str | None, fault: str | None, capacity: int
) -> EncoderCacheManager:
    """A manager with a fault planted in it or none. Raises Illegal where there is no such kind."""
    manager = _manager_class(kind, plug_in)(cache_size=capacity)
    _plant(fault, manager)
    return manager


def _manager_class(kind: str, plug_in: str | None) -> Any:
    if plug_in is not None and _kind_of(found := _plugged_in(plug_in)) != KV_CACHE:
        return found
    try:
        return getattr(encoder_cache_manager, CLASSES[kind])
    except AttributeError:
        raise Illegal(f"vLLM {vllm.__version__} has no {CLASSES[kind]}") from None


def _import_from_here() -> None:
    """Let plug-ins be imported from the working folder, after the release and before libraries."""
    searched = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    behind = [number for number, path in enumerate(sys.path, start=1) if path in searched]
    sys.path.insert(max(behind, default=0), os.getcwd())


def _plugged_in(plug_in: str) -> Any:
    """The plug-in's class. It may build on the reference managers, or be one of them."""
    offer()
    module, _, name = plug_in.partition(":")
    return getattr(importlib.import_module(module), name)


def _kind(plug_in: str) -> tuple[str | None, str | None]:
    """(kind of manager, None), or (None, why the plug-in cannot be used)."""
    # An import that does not end would show as a host that gives no answer.
    signal.signal(signal.SIGALRM, _take_too_long)
    signal.alarm(IMPORT_SECONDS)
    try:
        found = _plugged_in(plug_in)
    except (Exception, SystemExit) as error:
        return None, _told(error)
    finally:
        signal.alarm(0)
    if not isinstance(found, type):
        return None, f"{plug_in} is no class"
    kind = _kind_of(found)
    missing = [name for name in ASKED_OF_MANAGERS if not hasattr(found, name)]
    if kind in CLASSES and missing:
        return None, (
            f"{plug_in} is no manager of an encoder cache: it has no {', '.join(missing)}"
        )
    if kind == KV_CACHE and not (issubclass(found, KVCacheManager) or _takes_stand_ins()):
        return None, (
            f"vLLM {vllm.__version__} asks a KV cache manager for more than {plug_in} answers; one "
            f"stands in from 0.32.0 on"
        )
    return kind, None


def _take_too_long(*_: object) -> None:
    raise TimeoutError(f"not imported after {IMPORT_SECONDS} s")


def _told(error: BaseException) -> str:
    """Exception and message in one line, with the place in the plug-in's code, if it was raised
    there."""
    said = f"{type(error).__name__}: {' '.join(str(error).split())}"
    if isinstance(error, SyntaxError):
        return said  # says where
    theirs = [
        frame
        for frame in traceback.extract_tb(error.__traceback__)
        if frame.filename != __file__ and "importlib" not in frame.filename
    ]
    return f"{said} ({theirs[-1].filename}:{theirs[-1].lineno})" if theirs else said


def _kind_of(found: type) -> str:
    """The kind of manager that a plug-in is, by the names of its class and its bases."""
    names = [base.__name__ for base in found.__mro__]
    if KVCacheManager.__name__ in names:
        return KV_CACHE
    if "ECConnectorBase" in names:
        return CONNECTOR
    return "encoder_decoder" if CLASSES["encoder_decoder"] in names else "encoder_cache"


def _takes_stand_ins() -> bool:
    """Whether the release's scheduler asks a KV cache manager only for what a stand-in answers: it
    counts common prefixes no longer."""
    return "get_num_common_prefix_blocks" not in inspect.getsource(Scheduler.schedule)


def _make_kv_cache_manager(plug_in: str | None) -> Callable[..., KVCacheManager] | None:
    """What makes a plug-in from the arguments of a release's KV cache manager; None where it is of
    another kind, or there is none."""
    if plug_in is None or _kind_of(found := _plugged_in(plug_in)) != KV_CACHE:
        return None
    if issubclass(found, KVCacheManager):
        return found
    from .managers.kv_cache_stand_in import stand_in

    return functools.partial(stand_in, found)


def _plant(fault: str | None, manager: EncoderCacheManager) -> None:
    """Plant a manager's fault by name; None and the name of a scheduler's fault plant nothing."""
    if fault is not None and fault not in SCHEDULER_FAULTS:
        FAULTS[fault](manager)


HOST = ManagersHost
