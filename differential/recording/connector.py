"""What connectors were asked and answered: those of external encoder caches and of external KV
caches."""

from collections.abc import Callable, Sequence
from typing import ParamSpec, TypeVar

from cacheproof.differential.targets.host.vllm_objects.scheduler import ConfiguredScheduler

METHODS = {
    "ec_connector": (
        "has_cache_item",
        "has_caches",
        "ensure_cache_available",
        "update_state_after_alloc",
        "take_unavailable_requests",
        "request_finished",
    ),
    "connector": (
        "get_num_new_matched_tokens",
        "update_state_after_alloc",
        "update_connector_output",
        "build_connector_meta",
        "request_finished",
        "request_finished_all_groups",
    ),
}
"""The methods that are logged, by the scheduler's attribute that has the connector."""
SAID_AS = {"ec_connector": "connector", "connector": "kv_connector"}
"""The key in `Scheduled.rest` of the calls of each connector."""
PlainAnswer = bool | int | list[int | None] | None
ConnectorCall = tuple[str, int | None, str | int | None, PlainAnswer]
"""Method, request, then an item's identifier or number, or a number of tokens, and the answer:
truths and numbers, alone or several; None in the place of what only the connector can read."""


def connectors_of(
    scheduler: ConfiguredScheduler, number_of: Callable[[str], int], hashed: Callable[[str], str]
) -> "dict[str, ConnectorRecorder]":
    """Recorders of the connectors that a scheduler has."""
    return {
        SAID_AS[name]: ConnectorRecorder(connector, methods, number_of, hashed)
        for name, methods in METHODS.items()
        if (connector := getattr(scheduler, name, None)) is not None
    }


P = ParamSpec("P")
R = TypeVar("R")


class ConnectorRecorder:
    """Logs the calls of one connector, on the scheduler's side. What goes wrong here is raised by
    `take`, never to who called the connector."""

    def __init__(
        self,
        connector: object,
        methods: Sequence[str],
        number_of: Callable[[str], int],
        hashed: Callable[[str], str],
    ) -> None:
        self._calls: list[ConnectorCall] = []
        self._has_ended = False
        self._failure: Exception | None = None
        self._number_of = number_of
        self._hashed = hashed
        for name in methods:
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

    def _wrap(self, name: str, method: Callable[P, R]) -> Callable[P, R]:
        def call(*args: P.args, **kwargs: P.kwargs) -> R:
            answer = method(*args, **kwargs)
            if not self._has_ended:
                try:
                    self._log(name, (*args, *kwargs.values()), answer)
                except Exception as error:
                    self._failure = error
                    self.end()
            return answer

        return call

    def _log(self, name: str, given: tuple[object, ...], answer: object) -> None:
        request: int | None = None
        item: str | int | None = None
        if given and isinstance(given[0], str):
            item = self._hashed(given[0])
        elif given and hasattr(given[0], "request_id"):
            request = self._number_of(given[0].request_id)
            item = next((one for one in given[1:] if isinstance(one, int)), None)
        self._calls.append((name, request, item, self._plain(answer)))

    def _plain(self, answer: object) -> PlainAnswer:
        """An answer without what only the connector can read."""
        if answer is None or isinstance(answer, (bool, int)):
            return answer
        if isinstance(answer, (list, tuple)):
            return [one if isinstance(one, (bool, int)) else None for one in answer]
        if isinstance(answer, set):
            return [self._number_of(one) for one in sorted(answer)]
        return None
