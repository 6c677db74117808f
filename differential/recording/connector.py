"""What the connector of an external encoder cache was asked and answered."""

from collections.abc import Callable
from typing import Any

METHODS = (
    "has_cache_item",
    "has_caches",
    "ensure_cache_available",
    "update_state_after_alloc",
    "take_unavailable_requests",
    "request_finished",
)
ConnectorCall = tuple[str, int | None, str | int | None, Any]
"""Method, request, the identifier or the number of the item, and the answer."""


class ConnectorRecorder:
    """Logs the calls of one connector, on the scheduler's side. What goes wrong here is raised by
    `take`, never to who called the connector."""

    def __init__(
        self, connector: Any, number_of: Callable[[str], int], hashed: Callable[[str], str]
    ) -> None:
        self.connector = connector
        self._calls: list[ConnectorCall] = []
        self._has_ended = False
        self._failure: Exception | None = None
        self._number_of = number_of
        self._hashed = hashed
        for name in METHODS:
            if hasattr(connector, name):
                setattr(connector, name, self._wrap(name, getattr(connector, name)))

    def take(self) -> list[ConnectorCall]:
        """The calls since the last time."""
        if self._failure is not None:
            raise self._failure
        calls, self._calls = self._calls, []
        return calls

    def end(self) -> None:
        """Log no more."""
        self._has_ended = True
        self._calls.clear()

    def _wrap(self, name: str, method: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            answer = method(*args, **kwargs)
            if not self._has_ended:
                try:
                    self._log(name, (*args, *kwargs.values()), answer)
                except Exception as error:
                    self._failure = error
                    self.end()
            return answer

        return call

    def _log(self, name: str, given: tuple[Any, ...], answer: Any) -> None:
        request: int | None = None
        item: str | int | None = None
        if given and isinstance(given[0], str):
            item = self._hashed(given[0])
        elif given:
            request = self._number_of(given[0].request_id)
            item = given[1] if len(given) > 1 and isinstance(given[1], int) else None
        self._calls.append((name, request, item, self._plain(answer)))

    def _plain(self, answer: Any) -> Any:
        """An answer without what only the connector can read."""
        if answer is None or isinstance(answer, bool):
            return answer
        if isinstance(answer, list) and all(isinstance(one, bool) for one in answer):
            return list(answer)
        if isinstance(answer, set):
            return [self._number_of(one) for one in sorted(answer)]
        return None
