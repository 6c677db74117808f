"""Drives one encoder cache manager as a correct scheduler of its release would.

Events name what the engine does (a request arrives, up to n of its tokens are scheduled, a step
ends, its output arrives, a request is preempted or ends); this session turns each into the calls
that a scheduler makes, in its order. What no scheduler would do at that moment (an abort inside
schedule(), a request walked twice in a step) is a no-op, so a trace stays legal whatever the
manager answers and whatever events are taken out of it.
"""

from collections.abc import Callable, Iterable
from typing import NamedTuple

from ..protocol import Event, Json, Protocol
from ..scheduler.recorder import Recorder
from ..vllm_objects.encoder_cache import EncoderCacheManager

ItemShape = tuple[str, int, int, tuple[bool, ...] | None]
"""An item's identifier, offset, length and mask."""
Shape = tuple[str, int, tuple[ItemShape, ...]]
"""A request's id, the tokens of its prompt, and its items."""
Position = tuple[int, frozenset[tuple[Shape, int]], tuple[str, ...], frozenset[str]]
"""Compute budget left; requests and how far each is; requests in flight; requests met in this
step."""


class ManagerFeature:
    """One item of a request, with what managers read of it."""

    __slots__ = ("identifier",)

    def __init__(self, identifier: str) -> None:
        self.identifier = identifier


class ManagerRequest:
    """A request with what managers read of it: its id, its items and their sizes."""

    __slots__ = ("_sizes", "mm_features", "mm_hashes", "request_id")

    def __init__(self, request_id: str, identifiers: list[str], sizes: list[int]) -> None:
        self.request_id = request_id
        self.mm_features = [ManagerFeature(identifier) for identifier in identifiers]
        self.mm_hashes = identifiers
        self._sizes = sizes

    def get_num_encoder_embeds(self, input_id: int) -> int:
        return self._sizes[input_id]

    get_num_encoder_tokens = get_num_encoder_embeds


class _Window(NamedTuple):
    """Tokens [start, end) that a walk would schedule, the inputs to encode for them, and later
    occurrences of these inputs."""

    start: int
    end: int
    encode: list[int]
    duplicates: list[int]


class _Running:
    """A request, and how many tokens of its prompt are scheduled (`computed`)."""

    __slots__ = ("computed", "embeds", "ends", "offsets", "prompt", "request", "shape", "sizes")

    def __init__(self, event: Event, protocol: Protocol) -> None:
        items = event["items"]
        self.prompt: int = event["prompt"]
        self.offsets = [item["offset"] for item in items]
        self.ends = [item["offset"] + item["length"] for item in items]
        self.embeds = [item["is_embed"] for item in items]
        self.sizes = [item_size(item, protocol.counts_embeds) for item in items]
        self.computed = 0
        self.shape: Shape = (event["request"], self.prompt, tuple(map(_shape, items)))
        self.request = ManagerRequest(
            event["request"], [item["identifier"] for item in items], self.sizes
        )

    def has_embeds(self, input_id: int, start: int, end: int) -> bool:
        mask = self.embeds[input_id]
        if mask is None:
            return True
        offset = self.offsets[input_id]
        return any(mask[max(0, start - offset) : end - offset])


def _shape(item: Event) -> ItemShape:
    mask = item["is_embed"]
    return item["identifier"], item["offset"], item["length"], mask and tuple(mask)


def item_size(item: Event, counts_embeds: bool) -> int:
    """Encoder cache slots of an item: its embeddings, or before 0.13 the length of its
    placeholder."""
    mask = item["is_embed"]
    return item["length"] if mask is None or not counts_embeds else sum(mask)


class ManagerSession:
    """One trace's manager. `apply` takes an event and returns its outcome, None for a no-op."""

    def __init__(
        self,
        header: Event,
        manager: EncoderCacheManager,
        protocol: Protocol,
        *,
        shows_sizes: bool = True,
    ) -> None:
        self.recorder = Recorder(manager, shows_sizes=shows_sizes)
        self._manager = manager
        self._protocol = protocol
        self._budget_full: int = header["config"]["compute_budget"]
        self._budget = self._budget_full
        self._is_decoder = header["manager"] == "encoder_decoder"
        self._requests: dict[str, _Running] = {}
        self._made: dict[Shape, _Running] = {}
        self._in_flight: dict[str, None] = {}
        self._met_in_step: set[str] = set()
        self._drain = getattr(manager, "get_freed_mm_hashes", None) or manager.get_freed_ids
        self._admit = self._admit_shared if protocol.keyed_by_identifier else self._admit_per_input
        self._handlers: dict[str, Callable[[Event], Json]] = {
            "add": self._add,
            "walk": self._walk,
            "stall": self._stall,
            "notices": self._notices,
            "update": self._update,
            "preempt": self._preempt,
            "finish": self._finish,
            "release": self._release,
            "reset": self._reset,
        }

    def apply(self, event: Event) -> Json:
        return self._handlers[event["event"]](event)

    def position(self) -> Position:
        """All that the session holds beside its manager."""
        for running in self._requests.values():
            self._made.setdefault(running.shape, running)
        requests = frozenset((one.shape, one.computed) for one in self._requests.values())
        return self._budget, requests, tuple(self._in_flight), frozenset(self._met_in_step)

    def go_to(self, position: Position) -> None:
        """Put the session back into a position; the caller puts back the manager."""
        self._budget, requests, in_flight, met = position
        self._in_flight, self._met_in_step = dict.fromkeys(in_flight), set(met)
        self._requests = {}
        for shape, computed in requests:
            running = self._requests[shape[0]] = self._made[shape]
            running.computed = computed

    def _add(self, event: Event) -> bool | None:
        if event["request"] in self._requests:
            return None
        self._requests[event["request"]] = _Running(event, self._protocol)
        return True

    def _walk(self, event: Event) -> list[Json] | None:
        running = self._requests.get(event["request"])
        if running is None or not self._may_walk(running, event):
            return None
        start = running.computed
        encode, duplicates, end = self._admit_window(running, event)
        if end < 0:
            self._manager.free(running.request)
            del self._requests[event["request"]]
            return [-1, []]
        if end == start:
            return [0, []]
        for input_id in encode:
            self._manager.allocate(running.request, input_id)
            self._budget -= running.sizes[input_id]
        if self._protocol.claims_duplicates:
            for input_id in duplicates if encode else ():
                self._manager.check_and_update_cache(running.request, input_id)
        running.computed = end
        self._in_flight[event["request"]] = None
        return [end - start, duplicates]

    def _stall(self, event: Event) -> bool | None:
        """Walk a waiting request, which finds no KV blocks and gives back what it claimed."""
        running = self._requests.get(event["request"])
        if (
            running is None
            or running.computed > 0
            or not self._protocol.frees_stalled
            or not self._may_walk(running, event)
        ):
            return None
        self._admit_window(running, event)
        self._manager.free(running.request)
        return True

    def _may_walk(self, running: _Running, event: Event) -> bool:
        if running.computed >= running.prompt or event["request"] in self._met_in_step:
            return False
        self._met_in_step.add(event["request"])
        return True

    def _admit_window(self, running: _Running, event: Event) -> tuple[list[int], list[int], int]:
        """Inputs to encode, later occurrences of them, and the window's end (-1 when refused)."""
        start = running.computed
        end = min(start + event["tokens"], running.prompt)
        if self._is_decoder:
            inputs = list(range(len(running.ends))) if start == 0 else []
        else:
            offsets, ends = running.offsets, running.ends
            inputs = [i for i in range(len(ends)) if offsets[i] < end and ends[i] > start]
        window = _Window(start, end, [], [])
        end = self._admit(running, inputs, window)
        return window.encode, window.duplicates, end

    def _admit_shared(self, running: _Running, inputs: Iterable[int], window: _Window) -> int:
        """Fill the window; returns where it ends now, -1 if refused."""
        manager, request, budget = self._manager, running.request, self._budget
        protocol = self._protocol
        pending = 0
        seen: dict[str, int] = {}
        for input_id in inputs:
            size = running.sizes[input_id]
            if not self._is_decoder:
                identifier = request.mm_features[input_id].identifier
                if identifier in seen:
                    if protocol.refuses_resized and seen[identifier] != size:
                        return -1
                    window.duplicates.append(input_id)
                    continue
                if protocol.refuses_resized:
                    known = manager.get_cached_num_encoder_embeds(request, input_id)
                    if known is not None and known != size:
                        return -1
                if manager.check_and_update_cache(request, input_id):
                    continue
            if not manager.can_allocate(request, input_id, budget, pending):
                return max(window.start, min(window.end, running.offsets[input_id]))
            if protocol.skips_sparse and not running.has_embeds(input_id, window.start, window.end):
                continue
            pending += size
            budget -= size
            if not self._is_decoder:
                seen[identifier] = size
            window.encode.append(input_id)
        return window.end

    def _admit_per_input(self, running: _Running, inputs: Iterable[int], window: _Window) -> int:
        manager, request, budget = self._manager, running.request, self._budget
        for input_id in inputs:
            if manager.has_cache(request, input_id):
                continue
            size = running.sizes[input_id]
            if not manager.can_allocate(request, input_id) or size > budget:
                return max(window.start, running.offsets[input_id])
            budget -= size
            window.encode.append(input_id)
        return window.end

    def _notices(self, event: Event) -> bool:
        self._drain()
        self._budget = self._budget_full
        self._met_in_step.clear()
        return True

    def _update(self, event: Event) -> bool | None:
        if self._met_in_step or not self._in_flight:
            return None
        in_flight, self._in_flight = self._in_flight, {}
        manager = self._manager
        for request_id in in_flight:
            running = self._requests.get(request_id)
            if running is None:
                continue
            for input_id in list(manager.get_cached_input_ids(running.request)):
                if self._is_decoder or running.ends[input_id] <= running.computed:
                    manager.free_encoder_input(running.request, input_id)
        return True

    def _preempt(self, event: Event) -> bool | None:
        running = self._requests.get(event["request"])
        if running is None or running.computed == 0 or event["request"] in self._met_in_step:
            return None
        self._met_in_step.add(event["request"])
        running.computed = 0
        self._in_flight.pop(event["request"], None)
        if self._protocol.keyed_by_identifier:
            self._manager.free(running.request)
        return True

    def _finish(self, event: Event) -> bool | None:
        if self._met_in_step or event["request"] not in self._requests:
            return None
        running = self._requests.pop(event["request"])
        self._in_flight.pop(event["request"], None)
        self._manager.free(running.request)
        return True

    def _release(self, event: Event) -> bool | None:
        """Release a consumed item once more, as a second update or an abort would."""
        running = self._requests.get(event["request"])
        if (
            running is None
            or self._met_in_step
            or event["request"] in self._in_flight
            or not self._protocol.keyed_by_identifier
            or not 0 <= event["input"] < len(running.ends)
            or running.ends[event["input"]] > running.computed
        ):
            return None
        self._manager.free_encoder_input(running.request, event["input"])
        return True

    def _reset(self, event: Event) -> bool | None:
        if self._met_in_step or not self._protocol.resets:
            return None
        self._manager.reset()
        return True
