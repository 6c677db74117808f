"""Puts a watch around classes of a vLLM in this process, wherever it was imported from, by wrapping
their public methods at the classes, those of subclasses too.

Nothing is imported: a module is wrapped when somebody else imports it. A call that a manager makes
of itself is its own business; the watch is asked of those that come from outside. A method that is
put in the place of a wrapped one, as tests do, is what is called.
"""

import functools
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from inspect import getattr_static
from types import ModuleType
from typing import Any, NamedTuple, Protocol

from cacheproof.differential.targets.after_import import after_import
from cacheproof.differential.targets.host.managers.kv_cache_recorder import POOL_CHANGES
from cacheproof.differential.targets.host.scheduler.recorder import OPERATIONS

BEGIN = "begin"
"""The operation that makes a watched object."""
Method = Callable[..., Any]


class WatchedClasses(NamedTuple):
    """Classes of a module, and the operations by which a watch calls their public methods."""

    module: str
    classes: tuple[str, ...]
    operations: Mapping[str, str]


ENCODER_MANAGERS = WatchedClasses(
    "vllm.v1.core.encoder_cache_manager",
    ("EncoderCacheManager", "EncoderDecoderCacheManager"),
    OPERATIONS,
)
BLOCK_POOLS = WatchedClasses(
    "vllm.v1.core.block_pool",
    ("BlockPool",),
    {name: f"pool.{name}" for name in (*POOL_CHANGES, "take_events")},
)
KV_CACHE_MANAGERS = WatchedClasses(
    "vllm.v1.core.kv_cache_manager",
    ("KVCacheManager",),
    {
        name: name
        for name in (
            "get_computed_blocks",
            "allocate_slots",
            "free",
            "pop_blocks_for_free",
            "cache_blocks",
            "remove_skipped_blocks",
            "evict_blocks",
            "reset_prefix_cache",
            "get_num_common_prefix_blocks",
            "take_events",
            "record_prefix_cache_stats",
            "make_prefix_cache_stats",
        )
    },
)


class Watch(Protocol):
    """Makes each call of a watched object."""

    def call(
        self, manager: Any, operation: str, method: Method, args: Sequence[Any], kwargs: Any
    ) -> Any:
        """Answer or raise what `method(manager, *args, **kwargs)` does; `operation` is BEGIN or one
        of those watched."""


class Attachment:
    """The wrapped classes, from `attach` to `detach`."""

    def __init__(self, watch: Watch, watched: WatchedClasses = ENCODER_MANAGERS) -> None:
        self._watch = watch
        self._watched = watched
        self._inside = threading.local()
        self._undo: list[tuple[type, str, Any]] = []
        self._cancel: Callable[[], None] = lambda: None

    def attach(self) -> None:
        """Wrap the classes, now or when their module is imported."""
        self._cancel = after_import(self._watched.module, self._wrap_module)

    def detach(self) -> None:
        """Put everything back as it was."""
        self._cancel()
        for owner, name, method in reversed(self._undo):
            if method is None:
                delattr(owner, name)
            else:
                setattr(owner, name, method)
        self._undo.clear()

    def wrap(self, base: type) -> None:
        """Wrap a class, and those that are or will be derived from it."""
        if hasattr(base.__init_subclass__, _MARK):
            return
        for owner in _family(base):
            self._wrap_class(owner)
        self._wrap_subclasses_of(base)

    def _wrap_module(self, module: ModuleType) -> None:
        for name in self._watched.classes:
            if hasattr(module, name):
                self.wrap(getattr(module, name))

    def _wrap_class(self, owner: type) -> None:
        """Wrap what a class defines, and what it inherits from a class that is not wrapped."""
        for name, operation in {"__init__": BEGIN, **self._watched.operations}.items():
            method = getattr_static(owner, name, None)
            if callable(method) and not hasattr(method, _MARK):
                self._put(owner, name, self._wrapped(operation, method))

    def _wrap_subclasses_of(self, base: type) -> None:
        """Let classes that are yet to be derived be wrapped when they are."""
        given = base.__init_subclass__
        of_class = getattr(given, "__func__", lambda cls, **arguments: given(**arguments))

        def init_subclass(cls: type, **arguments: Any) -> None:
            of_class(cls, **arguments)
            self._wrap_class(cls)

        setattr(init_subclass, _MARK, True)
        self._put(base, "__init_subclass__", classmethod(init_subclass))

    def _put(self, owner: type, name: str, wrapped: Any) -> None:
        self._undo.append((owner, name, vars(owner).get(name)))
        setattr(owner, name, wrapped)

    def _wrapped(self, operation: str, method: Method) -> Method:
        @functools.wraps(method)
        def call(manager: Any, *args: Any, **kwargs: Any) -> Any:
            inside = vars(self._inside).setdefault("managers", set())
            if id(manager) in inside:
                return method(manager, *args, **kwargs)
            inside.add(id(manager))
            try:
                return self._watch.call(manager, operation, method, args, kwargs)
            finally:
                inside.discard(id(manager))

        setattr(call, _MARK, True)
        return call


_MARK = "_is_watched_by_cacheproof"


def _family(base: type) -> Iterator[type]:
    yield base
    derived: list[type] = base.__subclasses__()
    for one in derived:
        yield from _family(one)
