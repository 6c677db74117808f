"""The vLLM release in this interpreter, with one function of its text read otherwise for a while.

An import takes seconds, a fork milliseconds: in the child each function that was made from the text
of the changed one gets the code of the change. Whoever holds the function (a class, a decorator,
another module) then runs that code, so the child is what an import of the changed text gives,
unless the function has run before. This process has run nothing but imports; what they have called
of the release cannot be changed.
"""

import ctypes
import gc
import os
import signal
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from types import CodeType, FrameType, FunctionType, TracebackType
from typing import TypeAlias

from .protocol import HostError, Json, Plain

LineTracer: TypeAlias = "Callable[[FrameType, str, object], LineTracer | None]"

_PR_SET_PDEATHSIG = 1
_called: set[tuple[str, str]] = set()
"""(file, qualified name) of each function that has been called."""


def _note_call(frame: FrameType, event: str, _: object) -> None:
    _called.add((frame.f_code.co_filename, frame.f_code.co_qualname))


sys.setprofile(_note_call)
from vllm.distributed.ec_transfer.ec_connector.cpu import scheduler as _of_scheduler  # noqa: E402, F401

from .connectors import cpu as _connector_cpu  # noqa: E402, F401
from .connectors import release as _connector_release  # noqa: E402, F401
from .managers import front_end_release as _front_end_release  # noqa: E402, F401
from .managers import kv_cache_build as _kv_cache_build  # noqa: E402, F401
from .managers import media_hash  # noqa: E402  (what these import is what is noted)
from .release import ManagersHost as _Release  # noqa: E402

media_hash.hasher_module()
sys.setprofile(None)
_CALLED_BY_IMPORTS = frozenset(_called)


class ChangedHost(_Release):
    """Runs traces on the release; between `change` and `restore`, on the changed text."""

    def __init__(self) -> None:
        super().__init__()
        import vllm

        self._root = f"{Path(vllm.__file__).parents[1]}{os.sep}"
        self._made: dict[tuple[str, str], list[FunctionType]] = {}
        self._lines_left: dict[CodeType, set[int]] = {}
        self._lines: dict[str, set[int]] = {}

    def hello(self, plug_in: str | None) -> dict[str, Json]:
        """The release's answer, with the functions that were called while it was imported."""
        called = [
            f"{file.removeprefix(self._root)}:{name}"
            for file, name in sorted(_CALLED_BY_IMPORTS)
            if file.startswith(self._root)
        ]
        return {**super().hello(plug_in), "called_by_imports": called}

    def change(self, request: Plain) -> dict[str, Json] | None:
        """Change the function `name` of the module `path` (from the tree's root) to what `text`, a
        text of the whole module, says that it is.

        A child answers, with how many functions have the new code, and takes all further requests
        until it is told to `restore`. If it ends otherwise, its parent says with which status.

        Raises:
            HostError: the text has no such function, or an import has called it already.
        """
        file, name = self._root + request["path"], request["name"]
        if (file, name) in _CALLED_BY_IMPORTS:
            raise HostError(f"{name} of {request['path']} was called when it was imported")
        new = _code_of(compile(request["text"], file, "exec"), name)
        made = self._functions().get((file, name))
        if made is None:
            raise HostError(f"{name} of {request['path']} is not there once all is imported")
        child = os.fork()
        if child == 0:
            _end_with_parent()
            sys.excepthook = _end_at_once
            for function in made:
                function.__code__ = new
            return {"functions": len(made)}
        _, status = os.waitpid(child, 0)
        return {"ended": os.waitstatus_to_exitcode(status)} if status else None

    def trace(self, request: Plain) -> dict[str, object]:
        """The result of one trace, the functions in the files `paths` that it calls, and the lines
        of them that no trace before it has reached."""
        files = {self._root + path for path in request["paths"]}
        called: set[str] = set()
        self._lines = {}

        def note(frame: FrameType, event: str, _: object) -> "LineTracer | None":
            code = frame.f_code
            if code.co_filename not in files:
                return None
            called.add(f"{code.co_filename.removeprefix(self._root)}:{code.co_qualname}")
            left = self._lines_left.setdefault(
                code, {line for _, _, line in code.co_lines() if line is not None}
            )
            return self._note_line if left else None

        sys.settrace(note)
        try:
            (result,) = self.run({"traces": [request["trace"]]})
        finally:
            sys.settrace(None)
        lines = {path: sorted(reached) for path, reached in self._lines.items()}
        return {"result": result, "called": sorted(called), "lines": lines}

    def _note_line(self, frame: FrameType, event: str, _: object) -> "LineTracer":
        if event == "line" and frame.f_lineno in (left := self._lines_left[frame.f_code]):
            left.discard(frame.f_lineno)
            path = frame.f_code.co_filename.removeprefix(self._root)
            self._lines.setdefault(path, set()).add(frame.f_lineno)
        return self._note_line

    def _functions(self) -> dict[tuple[str, str], list[FunctionType]]:
        """Every function in this process, by file and qualified name."""
        if not self._made:
            gc.unfreeze()  # what the process that forked this one has imported
            for one in gc.get_objects():
                if type(one) is FunctionType:
                    code = one.__code__
                    self._made.setdefault((code.co_filename, code.co_qualname), []).append(one)
        return self._made


def _code_of(module: CodeType, name: str) -> CodeType:
    """The code of a function in the code of its module. Raises HostError where there is none."""
    inner = [module]
    while inner:
        code = inner.pop()
        if code.co_qualname == name:
            return code
        inner += [one for one in code.co_consts if isinstance(one, CodeType)]
    raise HostError(f"the text has no function {name}")


def _end_with_parent() -> None:
    """Let the system end this process with its parent: a child that hangs would outlive it."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def _end_at_once(
    kind: type[BaseException], error: BaseException, where: TracebackType | None
) -> None:
    """End a child without flushing the part of an answer that it has written."""
    traceback.print_exception(kind, error, where)
    sys.stderr.flush()
    os._exit(1)


HOST = ChangedHost
