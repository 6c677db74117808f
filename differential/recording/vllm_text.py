"""Which text of vLLM an engine runs: whether what the reference models reads there as in a release.

Files are read, and that what runs was made of them is asked of the classes and functions that run:
a plug-in may put its own in their place.
"""

import contextlib
import inspect
import logging
import os
import sys
import sysconfig
import threading
from collections.abc import Callable, Collection, Iterator
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import NamedTuple

from cacheproof.differential.recording.messages import Text
from cacheproof.differential.targets.host.vllm_objects.scheduler import ConfiguredScheduler
from cacheproof.differential.texts import known_texts, texts
from cacheproof.differential.texts.known_texts import Reading
from cacheproof.differential.texts.modelled import COMPONENTS
from cacheproof.differential.texts.texts import is_left_out
from cacheproof.spec.versions import release_key

REPLACED = "replaced"
ITS_OWN = "its own"
_SCHEDULER = "vllm.v1.core.sched.scheduler"
_PARTS = (
    "encoder_cache_manager",
    "kv_cache_manager",
    "kv_cache_manager.coordinator",
    "kv_cache_manager.block_pool",
)
"""Attributes of a scheduler with which it decides."""
_COMPONENT = {
    f"vllm.{path.removesuffix('.py').removesuffix('/__init__').replace('/', '.')}": component.name
    for component in COMPONENTS
    for path in component.paths
}
"""The component that each module holds."""
_OURS = f"{Path(__file__).parents[2]}{os.sep}"
_OF_PYTHON = f"{sysconfig.get_path('stdlib')}{os.sep}"
_DECORATING = ("torch", "typing_extensions")
"""Libraries with whose decorators vLLM's functions are written."""
_UNSAID = "cacheproof: the record does not say which text of vLLM ran"
_logger = logging.getLogger("vllm.cacheproof")


WAIT_SECONDS = 5.0


def begin_reading() -> Callable[[ConfiguredScheduler], Text | None]:
    """Have the files read by a thread, since that takes up to half a second of processor time, and
    nobody waits for it before the first request. Returns `text_of`, which waits for the thread."""
    reading = threading.Thread(target=_read_ahead, name="cacheproof-text", daemon=True)
    reading.start()

    def waiting(scheduler: ConfiguredScheduler) -> Text | None:
        reading.join(WAIT_SECONDS)
        if reading.is_alive():
            _logger.warning("%s: reading it takes too long", _UNSAID)
            return None
        return text_of(scheduler)

    return waiting


def _read_ahead() -> None:
    with contextlib.suppress(Exception):  # `text_of` will tell of it
        of_files()


def text_of(scheduler: ConfiguredScheduler) -> Text | None:
    """How the vLLM of a scheduler reads; None where that cannot be read, which is logged."""
    try:
        read, names = of_files()
        if read is None:
            return None
        differing = dict.fromkeys(_replaced(names), REPLACED)
        differing |= dict.fromkeys(_own(scheduler), ITS_OWN)
        return Text(read.nearest, read.modelled, {**read.differing, **differing})
    except Exception as error:  # whatever it is, the engine is recorded without
        _logger.warning("%s: %s: %s", _UNSAID, type(error).__name__, error)
        return None


@cache
def of_files() -> tuple[Reading | None, Collection[str]]:
    """What lies in the folder that vLLM was imported from, and the names of what of it is modelled.
    It is read once in a process.

    Raises:
        InputError: a file is no Python that can be read here.
    """
    import vllm

    text = texts.read(_folder().parent)
    release: str | None = vllm.__version__.partition("+")[0]
    try:
        release_key(release or "")
    except ValueError:  # what a checkout without tags calls itself
        release = None
    return known_texts.load().reading_of(text, release), text.digests.keys()


def _folder() -> Path:
    """Folder of the imported package vllm."""
    file = sys.modules[_SCHEDULER].__file__
    assert file is not None
    return Path(file).parents[_SCHEDULER.count(".") - 1]


def _own(scheduler: ConfiguredScheduler) -> Iterator[str]:
    """The classes of a scheduler, and of what it decides with, that no modelled file defines."""
    parts: list[object] = [scheduler]
    for path in _PARTS:
        part: object = scheduler
        for name in path.split("."):
            part = getattr(part, name, None)
        parts.append(part)
    for part in parts:
        for owner in type(part).__mro__ if part is not None else ():
            module = owner.__module__
            if module not in _COMPONENT and module not in sys.stdlib_module_names:
                yield f"{module}.{owner.__qualname__}"


def _replaced(names: Collection[str]) -> Iterator[str]:
    """What is modelled and imported, and in whose place others run."""
    modules = [(sys.modules[one], of) for one, of in _COMPONENT.items() if one in sys.modules]
    decorating = filter(None, map(sys.modules.get, _DECORATING))
    places = _Places(
        {module.__file__ or "" for module, _ in modules},
        (f"{_folder()}{os.sep}", _OURS, *(_place_of(module) for module in decorating)),
    )
    for module, component in modules:
        for name, value in list(vars(module).items()):
            if f"{component}:{name}" not in names:
                continue
            if not inspect.isclass(value):
                if any(map(places.are_foreign, _functions_of(value))):
                    yield name
            elif value.__module__ not in _COMPONENT:
                yield name
            else:
                yield from (
                    f"{name}.{member}"
                    for member, one in list(vars(value).items())
                    if not is_left_out(f"{component}:{name}.{member}")
                    and any(map(places.are_foreign, _functions_of(one)))
                )


def _functions_of(value: object) -> Iterator[object]:
    match value:
        case property():
            yield from filter(None, (value.fget, value.fset, value.fdel))
        case staticmethod() | classmethod():
            yield value.__func__
        case _ if hasattr(value, "__code__") or hasattr(value, "__wrapped__"):
            yield value


class _Places(NamedTuple):
    """The files that are modelled, and where functions stand that may be around theirs: files, and
    folders with a separator behind them."""

    modelled: Collection[str]
    around: tuple[str, ...]

    def are_foreign(self, function: object) -> bool:
        """Whether a function stands in no modelled file, or what is around it is a stranger's."""
        *around, own = _files_of(function)
        return not (own in self.modelled or _is_of_python(own)) or not all(
            file.startswith(self.around) or _is_of_python(file) for file in around
        )


def _place_of(module: ModuleType) -> str:
    """A module's file, or a package's folder."""
    file = module.__file__ or os.devnull
    return f"{Path(file).parent}{os.sep}" if Path(file).stem == "__init__" else file


def _files_of(function: object) -> list[str]:
    """The files of a function and of what it wraps; empty for what was written in none."""
    files = []
    while function is not None:
        files.append(getattr(getattr(function, "__code__", None), "co_filename", ""))
        function = getattr(function, "__wrapped__", None)
    return files


def _is_of_python(file: str) -> bool:
    is_made = not file or file.startswith("<")
    return is_made or (file.startswith(_OF_PYTHON) and "site-packages" not in file)
