"""Faults to plant in the media hash of any release, by name: canaries that a search must find.

A fault wraps the session's hasher, `hash(arguments) -> digest`, in another; the release itself
stays as it is.
"""

import itertools
import sys
from collections.abc import Callable, Mapping

from ..by_name import breaks, by_name

HashArguments = Callable[[Mapping[str, object]], str]


def nothing(hash_arguments: HashArguments) -> HashArguments:
    """No fault."""
    return hash_arguments


@breaks("MH-3", kind="mode of an image")
@breaks("MH-3a", kind="shape of an array")
def forgets_forms(hash_arguments: HashArguments) -> HashArguments:
    """Arrays and images are hashed by their bytes alone."""

    def bytes_of(value: object) -> object:
        for module, name in (("numpy", "ndarray"), ("PIL.Image", "Image")):
            library = sys.modules.get(module)
            if library is not None and isinstance(value, getattr(library, name)):
                return value.tobytes()
        return value

    return _replacing(hash_arguments, bytes_of)


def forgets_frames(hash_arguments: HashArguments) -> HashArguments:
    """Media with their original bytes are hashed by those bytes alone."""
    return _replacing(hash_arguments, lambda value: getattr(value, "original_bytes", value))


@breaks("MH-3", kind="list against map")
def forgets_kinds_of_containers(hash_arguments: HashArguments) -> HashArguments:
    """A mapping is hashed as the list of its values."""

    def values_of(value: object) -> object:
        return list(value.values()) if isinstance(value, dict) else value

    return _replacing(hash_arguments, values_of)


@breaks("MH-6", kind="image or media")
def forgets_image_ids(hash_arguments: HashArguments) -> HashArguments:
    """An image that carries an id is hashed by its pixels."""

    def pixels_of(value: object) -> object:
        library = sys.modules.get("PIL.Image")
        shown = getattr(value, "media", value)
        if library is None or not isinstance(shown, library.Image):
            return value
        form = ["image", shown.mode, *shown.size]
        return [*form, shown.tobytes()] if shown.getexif() else value

    return _replacing(hash_arguments, pixels_of)


@breaks("MH-2", kind="order of arguments")
def leans_on_order(hash_arguments: HashArguments) -> HashArguments:
    """Keyword arguments count in the order in which they are given."""

    def hash_numbered(arguments: Mapping[str, object]) -> str:
        numbered = enumerate(arguments.items())
        return hash_arguments({f"{place} {name}": value for place, (name, value) in numbered})

    return hash_numbered


@breaks("MH-4", kind="layout of an array")
def leans_on_layout(hash_arguments: HashArguments) -> HashArguments:
    """Arrays count with where their elements lie in memory."""

    def with_strides(value: object) -> object:
        library = sys.modules.get("numpy")
        if library is not None and isinstance(value, library.ndarray):
            form = (value.dtype.descr, value.shape, value.strides)
            return [*map(repr, form), value.tobytes()]
        return value

    return _replacing(hash_arguments, with_strides)


@breaks("MH-4", kind="image")
def never_repeats(hash_arguments: HashArguments) -> HashArguments:
    """No digest is ever given twice."""
    given = itertools.count()

    def hash_once(arguments: Mapping[str, object]) -> str:
        return hash_arguments({**arguments, "never repeats": next(given)})

    return hash_once


@breaks("MH-5")
def raises_now_and_then(hash_arguments: HashArguments) -> HashArguments:
    """Every third call raises."""
    calls = itertools.count(1)

    def hash_or_raise(arguments: Mapping[str, object]) -> str:
        if next(calls) % 3 == 0:
            raise TypeError("not this one")
        return hash_arguments(arguments)

    return hash_or_raise


def _replacing(hash_arguments: HashArguments, replace: Callable[[object], object]) -> HashArguments:
    def replaced(value: object) -> object:
        value = replace(value)
        if isinstance(value, dict):
            return {key: replaced(element) for key, element in value.items()}
        if isinstance(value, list | tuple):
            return [replaced(element) for element in value]
        return value

    def hash_replaced(arguments: Mapping[str, object]) -> str:
        return hash_arguments({name: replaced(value) for name, value in arguments.items()})

    return hash_replaced


MEDIA_HASH_FAULTS: dict[str, Callable[[HashArguments], HashArguments]] = by_name(
    nothing,
    forgets_forms,
    forgets_frames,
    forgets_kinds_of_containers,
    forgets_image_ids,
    leans_on_order,
    leans_on_layout,
    never_repeats,
    raises_now_and_then,
)
