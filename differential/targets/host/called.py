"""Which functions of the release each event of a trace calls."""

import sys
from types import CodeType, FrameType

from .protocol import Event, Json
from .session import CallLog, DrivenSession


class WatchedSession:
    """A session that notes in `called`, for each event, the functions of the tree at `root` that it
    calls, as module:qualified name. A function that is defined within another counts as that
    one."""

    def __init__(self, session: DrivenSession, root: str, called: list[list[str]]) -> None:
        self._session = session
        self._called = called
        self._root = root
        self._codes: set[CodeType] = set()

    def apply(self, event: Event) -> Json:
        """Apply an event. One that raises has called what it called until then."""
        self._codes = set()
        sys.setprofile(self._note)
        try:
            return self._session.apply(event)
        finally:
            sys.setprofile(None)
            self._called.append(sorted({self._name(code) for code in self._codes}))

    @property
    def recorder(self) -> CallLog:
        return self._session.recorder

    def _note(self, frame: FrameType, event: str, _: object) -> None:
        if event == "call" and frame.f_code.co_filename.startswith(self._root):
            self._codes.add(frame.f_code)

    def _name(self, code: CodeType) -> str:
        path = code.co_filename.removeprefix(self._root).removesuffix(".py")
        module = path.replace("/", ".").removesuffix(".__init__")
        return f"{module}:{code.co_qualname.partition('.<')[0]}"
