"""The scopes of managers that are explored, each as small as what it is about allows; and all
scopes there are, those of tables among them.

What red twins break at once comes first.
"""

from functools import partial

from cacheproof.differential.search.explore import scheduler_scopes as schedulers
from cacheproof.differential.search.explore import tables
from cacheproof.differential.search.explore.scope import ManagerScope, Prompt, Scope, prompt
from cacheproof.differential.search.explore.tables import TableScope

X, W, V, Y, Z = ("x", 1), ("w", 1), ("v", 1), ("y", 2), ("z", 2)
HALF_EMPTY, EMPTY = ("y", 2, (True, False)), ("z", 1, (False,))


def _each(*items: tuple[str, int]) -> tuple[Prompt, ...]:
    """A prompt for each item."""
    return tuple(map(prompt, items))


_encoder = partial(ManagerScope, manager="encoder_cache", lane="encoder cache", requests="ab")
_decoder = partial(
    ManagerScope,
    manager="encoder_decoder",
    lane="encoder-decoder",
    requests="ab",
    transitions_max=8_000,
)

SMALL = (
    _encoder(
        "refused behind a hit",
        capacity=2,
        compute_budget=2,
        prompts=(prompt(X, Y), prompt(V)),
        strides=(3,),
    ),
    _encoder(
        "several items in a window",
        capacity=3,
        compute_budget=2,
        prompts=(prompt(X, W), prompt(Y)),
        strides=(2,),
    ),
    _encoder(
        "order of eviction",
        capacity=2,
        compute_budget=2,
        prompts=_each(X, W, V),
        strides=(1,),
    ),
    _encoder(
        "budget below the capacity",
        capacity=2,
        compute_budget=1,
        prompts=(prompt(X, W), prompt(W)),
        strides=(1, 2),
    ),
    _encoder(
        "repeated item",
        capacity=2,
        compute_budget=2,
        prompts=(prompt(Y, Y), prompt(X)),
        strides=(1, 3),
    ),
    _encoder(
        "sparse items",
        capacity=2,
        compute_budget=2,
        prompts=(prompt(X), prompt(HALF_EMPTY), prompt(EMPTY)),
        strides=(1,),
    ),
    _encoder(
        "three requests",
        requests="abc",
        capacity=2,
        compute_budget=2,
        prompts=_each(X, W),
        strides=(1,),
    ),
    _encoder(
        "reused media ids",
        lane="reused media ids",
        capacity=2,
        compute_budget=2,
        prompts=_each(X, ("x", 2), W),
        strides=(2,),
    ),
    _decoder("sizes", capacity=2, compute_budget=2, prompts=_each(X, Y), strides=(1,)),
    _decoder(
        "budget below the capacity",
        capacity=2,
        compute_budget=1,
        prompts=_each(X, W),
        strides=(1,),
    ),
)
LARGE = (
    _encoder(
        "repeated item beside others",
        capacity=3,
        compute_budget=3,
        prompts=(prompt(Y, Y), prompt(X), prompt(W)),
        strides=(1, 3),
        transitions_max=1_000_000,
    ),
    _encoder(
        "three requests and identifiers",
        requests="abc",
        capacity=2,
        compute_budget=2,
        prompts=_each(X, W, V),
        strides=(1,),
        transitions_max=1_000_000,
    ),
    _encoder(
        "four identifiers",
        capacity=3,
        compute_budget=3,
        prompts=_each(X, W, V, Y),
        strides=(2,),
        transitions_max=1_000_000,
    ),
    _decoder(
        "three requests",
        requests="abc",
        capacity=2,
        compute_budget=2,
        prompts=_each(X, W),
        strides=(1,),
        transitions_max=20_000,
    ),
)
SCOPES: dict[str, tuple[Scope | TableScope, ...]] = {
    "small": (*SMALL, *schedulers.SMALL, *tables.SMALL),
    "full": (
        *SMALL,
        *LARGE,
        *schedulers.SMALL,
        *schedulers.LARGE,
        *tables.SMALL,
        *tables.LARGE,
    ),
}
