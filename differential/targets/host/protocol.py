"""How a release's scheduler talks to its encoder cache manager: one flag per change of the walk."""

import inspect
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

Json: TypeAlias = "bool | int | float | str | Sequence[Json] | Mapping[str, Json] | None"
"""What is written into a pipe, and what that encodes alike."""
Tree: TypeAlias = "bool | int | float | str | Sequence[Tree] | None"
"""What is known of a state, as lists, strings and numbers; a list that begins with
`explorer.SET` is in no order."""
Call = Sequence[Json]
"""A call of what is driven: its name, arguments and answer, and what it changed."""
Record = tuple[Json, Sequence[Call], tuple[str, str] | None, object]
"""An event's outcome, its calls, the type and text of what was raised, and the state after it; all
of it is encoded as JSON."""
HASH_SEED = "0"
"""PYTHONHASHSEED of hosts, from which vLLM derives the first parent key."""


class Protocol(NamedTuple):
    """Flags of the call protocol.

    keyed_by_identifier: entries are shared by identifier; before, each (request, input) had its own
    counts_embeds: an item's size is its embeddings; before, the length of its placeholder
    skips_sparse: an item without embeddings in the window is neither encoded nor allocated
    refuses_resized: an identifier that comes back with another size ends the request
    claims_duplicates: a second occurrence in the same walk is claimed after the first is allocated
    resets: the encoder cache can be reset while the engine runs
    releases_on_update: what a step consumed is released when its output arrives; before 0.20, at
        the end of schedule(), after the notices are drawn
    frees_stalled: a request whose KV blocks cannot be had gives back what its walk claimed
    holds_for_drafter: an item is held until a drafter's reading is past it
    rolls_back: a chunk that ends before an item that must be whole leaves a token to a drafter; and
    clamps: so does one that ends before an item that is refused: both only of releases that do so
    """

    keyed_by_identifier: bool = True
    counts_embeds: bool = True
    skips_sparse: bool = True
    refuses_resized: bool = True
    claims_duplicates: bool = True
    resets: bool = True
    releases_on_update: bool = True
    frees_stalled: bool = True
    holds_for_drafter: bool = False
    rolls_back: bool = True
    clamps: bool = True

    @classmethod
    def detect(cls, manager: object, request: type, scheduler: type) -> "Protocol":
        """Read the flags off a release's own classes; `manager` may be one, or the class."""
        counts_embeds = hasattr(request, "get_num_encoder_embeds")
        shifts = _shifts(_text_of(scheduler, "_try_schedule_encoder_inputs"))
        return cls(
            keyed_by_identifier=not hasattr(manager, "has_cache"),
            counts_embeds=counts_embeds,
            skips_sparse=counts_embeds,
            refuses_resized=hasattr(manager, "get_cached_num_encoder_embeds"),
            claims_duplicates=hasattr(scheduler, "_allocate_encoder_inputs"),
            resets=hasattr(manager, "reset"),
            releases_on_update="_free_encoder_inputs("
            not in _text_of(scheduler, "_update_after_schedule"),
            frees_stalled="encoder_cache_manager.free(request)" in _text_of(scheduler, "schedule"),
            holds_for_drafter="lookahead" in _text_of(scheduler, "_free_encoder_inputs"),
            rolls_back=shifts[0],
            clamps=shifts[1],
        )


def _text_of(kind: type, name: str) -> str:
    return inspect.getsource(getattr(kind, name))


def _shifts(walk: str) -> tuple[bool, bool]:
    """Whether a walk over items leaves tokens to a drafter where it ends before an item that must
    be whole, and where it ends before one that is refused: it breaks off twice, in that order."""
    loop = walk.partition("disable_chunked_mm_input")[2]
    whole, refused, *_ = (*loop.split("break"), "", "")
    return "shift_computed_tokens" in whole, "shift_computed_tokens" in refused


class Illegal(Exception):
    """This configuration or request cannot be asked of the release; the message says why.

    `records` are those of the events before; only a refusal of the release's own has any.
    """

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.records: list[Record] = []


REFUSED = "refused: "
"""Beginning of the type of an exception by which a release refuses what it is asked."""


class RefusedByRelease(Illegal):
    """The release itself raises where it is configured, or given a request."""

    def __init__(self, error: BaseException, reason: str) -> None:
        super().__init__(reason)
        self.records = [(None, [], (f"{REFUSED}{type(error).__name__}", reason), None)]


class HostError(Exception):
    """The driver is at fault, not the release."""


Plain = dict[str, Any]
"""An object of JSON that came over the pipe, which the harness has made of its own records."""
Event = Plain
"""Such an object out of a trace: an event, an item, a configuration, a header, or the trace."""
