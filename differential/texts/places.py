"""Where in a target's files the function stands that a finding is about, by its text: nothing of
vLLM is imported."""

import ast
from collections.abc import Collection, Iterator, Mapping
from functools import lru_cache
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

from cacheproof.differential.targets.host.vllm_objects.media_caches import RECEIVERS, SENDERS
from cacheproof.differential.texts.modelled import COMPONENTS
from cacheproof.differential.traces.base import tag_of
from cacheproof.differential.traces.encoder_connector import EncoderConnectorConfig
from cacheproof.differential.traces.front_end import FrontEndConfig
from cacheproof.differential.traces.trace import Trace

_PATHS = {one.name: one.paths for one in COMPONENTS} | {
    "model_runner": ("v1/worker/gpu_model_runner.py",),
    "cpu_connector": ("distributed/ec_transfer/ec_connector/cpu/connector.py",),
    "example_connector": ("distributed/ec_transfer/ec_connector/example_connector.py",),
}
_MANAGERS = {
    "encoder_cache": "EncoderCacheManager",
    "encoder_decoder": "EncoderDecoderCacheManager",
}
_OF_MANAGER: Mapping[str, tuple[str, ...]] = {
    "check": ("check_and_update_cache", "has_cache"),
    "can": ("can_allocate",),
    "allocate": ("allocate",),
    "release": ("free_encoder_input",),
    "free": ("free",),
    "inputs": ("get_cached_input_ids",),
    "embeds": ("get_cached_num_encoder_embeds",),
    "notices": ("get_freed_mm_hashes", "get_freed_ids"),
    "reset": ("reset",),
}
_OF_SCHEDULER: Mapping[str, str] = {
    "add": "add_request",
    "chunk": "add_request",
    "close": "add_request",
    "update": "update_from_output",
    "abort": "finish_requests",
    "finish": "finish_requests",
    "withdraw": "_free_request",
    "reset": "reset_encoder_cache",
    "reset_prefix": "reset_prefix_cache",
    "pause": "set_pause_state",
}
"""Method of a scheduler for each kind of event; for any other kind it is schedule()."""
_OF_KV_CACHE: Mapping[str, str] = {
    "arrive": "get_computed_blocks",
    "slots": "allocate_slots",
    "output": "cache_blocks",
    "loaded": "cache_blocks",
    "preempt": "free",
    "end": "free",
    "settle": "free",
    "skip": "remove_skipped_blocks",
    "evict_blocks": "evict_blocks",
    "reset_prefix": "reset_prefix_cache",
    "common_prefix": "get_num_common_prefix_blocks",
    "take_events": "take_events",
    "take_stats": "make_prefix_cache_stats",
}
_OF_CONNECTOR: Mapping[str, str] = {
    "plan": "build_connector_meta",
    "execute": "start_load_caches",
    "ask": "has_cache_item",
    "start": "__init__",
    "stop": "shutdown",
}

PACKAGE = "vllm/__init__.py"


class SourceFunction(NamedTuple):
    """A function of vLLM. `names` are what it is called, and was, the newest first; none where it
    is the class as a whole, or it is of a module, whose `owner` is empty."""

    component: str
    owner: str
    names: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """The function's name in the newest release."""
        return ".".join(filter(None, (self.owner, *self.names[:1])))


class SourcePlace(NamedTuple):
    """Where a function stands: a file of the tree, relative to its root, and a line from 1."""

    path: str
    line: int


def way(
    trace: Trace, event: int, operation: str, *, of_caller: bool = False
) -> list[SourceFunction]:
    """The functions through which event number `event` of a trace leads to what is broken, the last
    of them the one that it is about. `operation` is what its judge calls that: a call of a manager
    or a kind of event; `of_caller` leaves the manager out."""
    tag = tag_of(type(trace.events[event]))
    manager = _of_manager(trace.header.manager, operation)
    match trace.depth:
        case "manager":
            return [
                manager or SourceFunction("encoder_cache_manager", _MANAGERS[trace.header.manager])
            ]
        case "scheduler" | "engine":
            asked = operation if operation in _OF_SCHEDULER and manager is None else tag
            caller = SourceFunction(
                "scheduler", "Scheduler", (_OF_SCHEDULER.get(asked, "schedule"),)
            )
            return [caller] if manager is None or of_caller else [caller, manager]
        case "kv_cache":
            return [of_kv_cache(tag)]
        case "block_hash":
            return [SourceFunction("kv_cache_utils", "", ("hash_block_tokens",))]
        case "media_hash":
            return [SourceFunction("hasher", "MultiModalHasher", ("hash_kwargs",))]
        case "media_identifier":
            return [_OF_IDENTIFIERS]
        case "front_end":
            config = trace.header.config
            is_shared = isinstance(config, FrontEndConfig) and config.store == "shm"
            return [of_front_end(tag, is_shared=is_shared)]
        case _:
            return [_of_connector(trace, tag)]


EXECUTION = SourceFunction("model_runner", "GPUModelRunner", ("execute_model",))
"""The function that a contract of engines is about."""


def of_kv_cache(tag: str) -> SourceFunction:
    """The function of a KV cache manager that an event of its traces is about, or its class."""
    name = _OF_KV_CACHE.get(tag)
    return SourceFunction("kv_cache_manager", "KVCacheManager", (name,) if name else ())


def of_front_end(tag: str, *, is_shared: bool) -> SourceFunction:
    """The function of a cache of processed media that an event of its traces is about."""
    return _OF_SHARED_MEDIA if is_shared else _OF_FRONT_END[tag]


def of_class(owner: str, calls: Collection[str]) -> SourceFunction | None:
    """The class that a proof reads, or its one method that a contract judges, where its `calls` are
    of one kind; None where it is no class of vLLM's."""
    if owner in _MANAGERS.values():
        names = [_OF_MANAGER[call] for call in calls if call in _OF_MANAGER]
        return SourceFunction("encoder_cache_manager", owner, names[0] if len(names) == 1 else ())
    return SourceFunction("block_pool", owner) if owner == "BlockPool" else None


def find(tree: Path, function: SourceFunction) -> SourcePlace:
    """Where it stands in the tree; its class, the file's first line, or the package, where it is
    not there by name: code scanning takes no file in which a result has no place."""
    for path in _PATHS[function.component]:
        lines = _lines(tree / "vllm" / path)
        if lines is not None:
            names = (*lines.called(function), function.owner)
            return SourcePlace(
                f"vllm/{path}", next((lines.of[n] for n in names if n in lines.of), 1)
            )
    return SourcePlace(PACKAGE, 1)


def find_plugged(file: Path, owner: str, function: SourceFunction) -> SourcePlace | None:
    """Where the class of a plug-in has a function of the class whose place it takes, from the
    current folder; None where its module has it not, or lies elsewhere."""
    lines, here = _lines(file), Path.cwd()
    if lines is None or not file.is_relative_to(here):
        return None
    names = lines.called(function._replace(owner=owner))
    line = next((lines.of[name] for name in names if name in lines.of), None)
    return None if line is None else SourcePlace(file.relative_to(here).as_posix(), line)


def _of_manager(manager: str, operation: str) -> SourceFunction | None:
    if manager not in _MANAGERS or operation not in _OF_MANAGER:
        return None
    return SourceFunction("encoder_cache_manager", _MANAGERS[manager], _OF_MANAGER[operation])


_OF_SHARED_MEDIA = SourceFunction("shm_object_storage", "SingleWriterShmObjectStorage")
_OF_IDENTIFIERS = SourceFunction("renderer", "BaseRenderer", ("_process_mm_uuids",))
_OF_FRONT_END = {
    "process": SourceFunction("mm_processor", "BaseMultiModalProcessor", ("_merge_mm_kwargs",)),
    "withdraw": SourceFunction("processor_cache", "", SENDERS),
    "deliver": SourceFunction("processor_cache", "", RECEIVERS),
    "report": SourceFunction("processor_cache", "", SENDERS),
    "reset_media": SourceFunction("processor_cache", "", RECEIVERS),
}


def _of_connector(trace: Trace, tag: str) -> SourceFunction:
    config = trace.header.config
    is_cpu = isinstance(config, EncoderConnectorConfig) and config.store == "cpu"
    component, owner = "example_connector", "ECExampleConnector"
    if is_cpu:
        component, owner = "cpu_connector", "ECCPUConnector"
    name = _OF_CONNECTOR.get(tag)
    return SourceFunction(component, owner, (name,) if name else ())


class _Lines(NamedTuple):
    """The lines of a module's functions, classes and methods by qualified name, and the names of
    the bases of its classes."""

    of: Mapping[str, int]
    above: Mapping[str, tuple[str, ...]]

    def called(self, function: SourceFunction) -> Iterator[str]:
        """What a function may be called in the module: in its class, in what that builds on, or
        without one."""
        owners = [function.owner]
        for owner in owners:
            owners += [one for one in self.above.get(owner, ()) if one not in owners]
        names = function.names
        yield from (f"{owner}.{name}" for owner in owners for name in names if owner)
        if not function.owner:
            yield from names
        elif not names:
            yield function.owner


@lru_cache(maxsize=64)
def _lines(file: Path) -> _Lines | None:
    """The lines of a file; None of one that is not there, or is no Python that can be read here."""
    try:
        module = ast.parse(file.read_bytes())
    except (OSError, SyntaxError, ValueError, MemoryError, RecursionError):
        return None
    of: dict[str, int] = {}
    above: dict[str, tuple[str, ...]] = {}
    for node in module.body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            of.setdefault(node.name, node.lineno)
        if isinstance(node, ast.ClassDef):
            above[node.name] = tuple(one.id for one in node.bases if isinstance(one, ast.Name))
            for inner in node.body:
                if isinstance(inner, ast.FunctionDef | ast.AsyncFunctionDef):
                    of.setdefault(f"{node.name}.{inner.name}", inner.lineno)
    return _Lines(MappingProxyType(of), MappingProxyType(above))
