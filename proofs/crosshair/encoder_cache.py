"""Conditions on an encoder cache manager: from any state of two entries, what a scheduler may call.

Each function asserts its preconditions first, then makes the calls; an assertion of a contract that
fails is a counterexample.
"""

from cacheproof.proofs.crosshair.episode import METHODS, Episode, SymbolicCondition, subject
from cacheproof.proofs.crosshair.states import (
    CALLER,
    NEW,
    OTHER,
    Shape,
    Situation,
    SymbolicRequest,
    recall,
    state_of,
)
from cacheproof.spec.ghost import Ghost

SCOPE = "at most 2 entries, sizes unbounded"
PRECONDITION = (
    "an identifier has one size of at least 1; what is allocated is absent and fits; what is "
    "released was got past"
)


def begin(shape: Shape, need: int = 1) -> tuple[Situation, Episode]:
    """The state of a shape, of the subject's class; the caller's new item takes `need`."""
    situation = Situation(subject().manager(0), shape, need)
    return situation, Episode(
        situation.manager,
        situation.ghost,
        state_of,
        recall,
        subject().rules,
        situation.claims,
    )


def start(capacity: int) -> None:
    """A manager is made, and asked what a request without claims may release."""
    assert capacity >= 0
    episode = Episode(subject().manager(capacity), Ghost(), state_of, recall, subject().rules)
    episode.call("inputs", SymbolicRequest(CALLER, ["a"], [1]))


def check(shape: Shape) -> None:
    """The caller looks up its first item, resident or not; after a miss it is admitted."""
    assert shape.has_sizes()
    assert not shape.claims_first
    situation, episode = begin(shape)
    if not episode.call("check", situation.caller, 0):
        situation.admit(0, shape.a.size, 0, episode)


def admit(shape: Shape, need: int, budget: int, pending: int) -> None:
    """The caller asks for room for an item that is not resident, and takes it."""
    assert shape.has_sizes()
    assert not shape.repeats
    assert need >= 1
    assert pending >= 0
    situation, episode = begin(shape, need)
    situation.admit(NEW, budget, pending, episode)


def allocate(shape: Shape, need: int) -> None:
    """The caller's item was admitted: it is not resident and fits."""
    assert shape.has_sizes()
    assert not shape.repeats
    assert 1 <= need <= shape.free
    situation, episode = begin(shape, need)
    episode.call("allocate", situation.caller, NEW)


def release(shape: Shape, second: bool, past_both: bool) -> None:
    """The caller got past its first item, or past both, and releases one, held or not."""
    assert shape.has_sizes()
    situation, episode = begin(shape)
    situation.ghost.consume(CALLER, 2 if second or past_both else 1)
    episode.call("release", situation.caller, 1 if second else 0)


def free(shape: Shape) -> None:
    """The caller ended, or was preempted, whatever it holds."""
    assert shape.has_sizes()
    situation, episode = begin(shape)
    episode.call("free", situation.caller)


def draw(shape: Shape, need: int, departed: bool, returns: bool) -> None:
    """A step ends in which an entry may have been evicted, and allocated again."""
    assert shape.has_sizes()
    assert not shape.repeats
    assert 1 <= need <= shape.free
    situation, episode = begin(shape, need)
    if departed:
        situation.depart("c")
    if returns:
        episode.call("allocate", situation.caller, NEW)
    episode.step(ledger=True)


def read(shape: Shape) -> None:
    """The scheduler asks what the caller may release, and for the size of an entry."""
    assert shape.has_sizes()
    situation, episode = begin(shape)
    episode.call("inputs", situation.caller)
    if hasattr(situation.manager, METHODS["embeds"]):
        episode.call("embeds", situation.caller, 0)


def reset(shape: Shape) -> None:
    """The encoder cache is reset."""
    assert shape.has_sizes()
    assert not shape.repeats
    _, episode = begin(shape)
    episode.call("reset")


def update(shape: Shape, other_first: bool, past_both: bool, need: int) -> None:
    """The caller and the other each hold an entry and get past items; a new item is admitted."""
    assert shape.has_sizes()
    assert shape.claims_first
    assert shape.claims_second
    assert need >= 1
    assert shape.b.shared
    assert not shape.a.shared
    situation, episode = begin(shape, need)
    if other_first:
        situation.get_past(OTHER, 2, episode)
    situation.get_past(CALLER, 1, episode)
    if not other_first:
        situation.get_past(OTHER, 2, episode)
    if past_both:
        situation.get_past(CALLER, 2, episode)
    episode.call("can", situation.caller, NEW, need, 0)


def release_resized(shape: Shape, resized: int, need: int) -> None:
    """The caller's first item hit an entry of another size; it is released, and another admitted.

    Schedulers that can ask for the size of an entry refuse such a request; older ones let it pass.
    """
    assert shape.has_sizes()
    assert not shape.claims_second
    assert resized >= 1
    assert need >= 1
    situation, episode = begin(shape, need)
    situation.caller.resize(0, resized)
    situation.get_past(CALLER, 1, episode)
    episode.call("can", situation.caller, NEW, need, 0)


CONDITIONS = (
    *[
        SymbolicCondition(function, operations, SCOPE, PRECONDITION)
        for function, operations in (
            (start, ("inputs",)),
            (check, ("check", "can", "allocate")),
            (admit, ("can", "allocate")),
            (allocate, ("allocate",)),
            (release, ("release",)),
            (free, ("free",)),
            (draw, ("allocate", "notices")),
            (read, ("inputs", "embeds")),
            (reset, ("reset",)),
            (update, ("inputs", "release", "can")),
        )
    ],
    SymbolicCondition(
        release_resized,
        ("inputs", "release", "can"),
        f"{SCOPE}; an identifier has several",
        "what is released was got past",
        lacking=METHODS["embeds"],
    ),
)
