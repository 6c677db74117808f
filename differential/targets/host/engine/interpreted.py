"""Lets a CPU's worker run the second model runner, whose kernels are Triton's: interpreted.

Imported before vllm, in a process with TRITON_INTERPRET=1 and the package `triton` of the index,
which has no backend for CPUs. A CPU build of vLLM takes Triton only where it has one.

The interpreter itself stays what computes. What it does anew at each launch or operation, and what
a host's memory needs no more of, is done once: a step takes a third of the time.
`tests/differential/targets/test_interpreted.py` holds each launch to what it leaves without.
"""

import dataclasses
import functools
import inspect
import itertools
import os
from collections.abc import Callable, Iterable, Sequence, Set
from types import FunctionType
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

if TYPE_CHECKING:
    from numpy import generic
    from numpy.typing import NDArray

Found = TypeVar("Found")

INTERPRET_SETTING = "TRITON_INTERPRET"


class GridExecutor(Protocol):
    """`triton.runtime.interpreter.GridExecutor`: a kernel, and over which grid it is launched."""

    fn: Callable[..., None]
    pre_run_hooks: Sequence[Callable[..., None]]
    constexprs: Set[str]
    grid: tuple[int, ...] | Callable[[dict[str, object]], tuple[int, ...]]


class TensorHandle(Protocol):
    """`triton.runtime.interpreter.TensorHandle`: numbers, their type, and what is known of them."""

    data: "NDArray[generic]"
    dtype: object
    attr: dict[str, object]


class LanguageScope(Protocol):
    """`triton.runtime.interpreter._LangPatchScope`: changes of the language, to be undone."""

    def set_attr(self, owner: object, name: str, member: object, /) -> None: ...


class ElementType(Protocol):
    """`triton.language.core.dtype`."""

    name: str


class _Idle:
    """A driver without a device."""

    @staticmethod
    def is_active() -> bool:
        return False


class _Backend:
    """The backend that vLLM looks for; the interpreter needs none."""

    driver = _Idle
    compiler = None


def interpret() -> None:
    """Let a CPU's worker launch Triton's interpreter."""
    from triton.backends import backends

    if os.environ.get(INTERPRET_SETTING) != "1":
        raise RuntimeError(f"{INTERPRET_SETTING} must be 1: there is nothing to compile for")
    backends.setdefault("cpu", _Backend)
    # What models have torch compile asks Triton for the driver of a device.
    os.environ.setdefault("TORCHDYNAMO_DISABLE", "1")
    _keep_conditions()
    hasten()


def hasten() -> None:
    """Make launches faster, with the same results."""
    from triton import language
    from triton.language import core
    from triton.runtime import interpreter

    # As compiled, where sums are not looked at for an overflow unless one debugs.
    builder = interpreter.interpreter_builder
    builder.options = dataclasses.replace(builder.options, sanitize_overflow=False)
    interpreter.GridExecutor.__call__ = _launch
    interpreter._patch_lang = _changed_once(interpreter._patch_lang)
    interpreter._get_np_dtype = _kept_with_type(interpreter._get_np_dtype)
    _make_types_once(core.block_type)
    language.str_to_ty = _of_each_text(language.str_to_ty)
    _keep_shapes_with_type(core.tensor)
    interpreter.TensorHandle.__init__ = _without_a_look
    interpreter._patch_attr = _interpret_member


def _launch(self: GridExecutor, *given: object, **named: object) -> None:
    """Launch a kernel over tensors of the host, which are not copied."""
    from triton.runtime import interpreter

    names, defaults = _parameters(self.fn)
    for hook in self.pre_run_hooks:
        hook(*given, **named)
    interpreter._patch_lang(self.fn)
    arguments = dict(defaults)
    arguments |= zip(names, given, strict=False)
    arguments |= {name: value for name, value in named.items() if name in names}
    arguments = {
        name: value if name in self.constexprs else interpreter._implicit_cvt(value)
        for name, value in arguments.items()
    }
    grid = self.grid(arguments) if callable(self.grid) else self.grid
    grid += (1,) * (3 - len(grid))
    builder = interpreter.interpreter_builder
    builder.set_grid_dim(*grid)
    for place in itertools.product(*map(range, grid)):
        builder.set_grid_idx(*place)
        self.fn(**arguments)


@functools.cache
def _parameters(kernel: Callable[..., None]) -> tuple[tuple[str, ...], dict[str, object]]:
    """The names of a kernel's parameters, and the defaults of those that have one."""
    parameters = inspect.signature(kernel).parameters
    optional = {
        name: one.default for name, one in parameters.items() if one.default is not one.empty
    }
    return tuple(parameters), optional


def _without_a_look(
    self: TensorHandle,
    data: "NDArray[generic]",
    dtype: object,
    attr: dict[str, object] | None = None,
) -> None:
    """Skip the check that a number has the size of its type, which the interpreter has just given
    it."""
    self.data, self.dtype, self.attr = data, dtype, {} if attr is None else attr


def _interpret_member(
    owner: object, name: str, member: Callable[..., object], builder: object, scope: LanguageScope
) -> None:
    """An operation of the language as it is interpreted; who calls it says for whom, or not."""
    from triton.runtime import interpreter

    operation: Callable[..., object] = getattr(member, "__wrapped__", member)

    def interpreted(*given: object, **named: object) -> object:
        named["_semantic"] = interpreter.interpreter_semantic
        return operation(*given, **named)

    scope.set_attr(owner, name, interpreted)


class _Kept:
    """Changes of a launch that are not undone."""

    def restore(self) -> None:
        pass


def _changed_once(
    change: Callable[[FunctionType], object],
) -> Callable[[FunctionType], _Kept]:
    """Change `triton.language` for each module of kernels once, for good."""
    changed = set[int]()

    def once(kernel: FunctionType) -> _Kept:
        module = id(kernel.__globals__)
        if module not in changed:
            change(kernel)
            changed.add(module)
        return _Kept()

    return once


def _kept_with_type(find: Callable[[object], Found]) -> Callable[[object], Found]:
    """Look something up for a type once, and keep it with the type."""

    def kept(kind: object) -> Found:
        facts = vars(kind)
        if "_found" not in facts:
            facts["_found"] = find(kind)
        found: Found = facts["_found"]
        return found

    return kept


def _of_each_text(
    find: Callable[[object, object], Found],
) -> Callable[[object, object], Found]:
    """Look something up for a text once; a tuple of texts has names besides."""
    found: dict[str, Found] = {}

    def kept(name: object, context: object) -> Found:
        if not isinstance(name, str) or context is not None:
            return find(name, context)
        if name not in found:
            found[name] = find(name, context)
        return found[name]

    return kept


def _make_types_once(block_type: Any) -> None:
    """Make one type of a block for each shape and type of elements, and use it again."""
    make, made = block_type.__init__, dict[tuple[object, ...], object]()

    def new(kind: type, element_ty: ElementType, shape: Iterable[object]) -> object:
        sizes = [getattr(one, "value", one) for one in shape]
        # A pointer's name says all of it but where it points to.
        key = element_ty.name, getattr(element_ty, "address_space", None), *sizes
        if key not in made:
            made[key] = object.__new__(kind)
        return made[key]

    def init(self: object, element_ty: ElementType, shape: Iterable[object]) -> None:
        if not vars(self):
            make(self, element_ty, shape)

    block_type.__new__, block_type.__init__ = new, init


def _keep_shapes_with_type(tensor: Any) -> None:
    """Work out what a tensor's type says of its shape once."""
    make = tensor.__init__

    def init(self: Any, handle: Any, kind: Any) -> None:
        facts = vars(kind)
        if "_shape" in facts:
            self.handle, self.type = handle, kind
            self.shape, self.numel, self.dtype = facts["_shape"]
        else:
            make(self, handle, kind)
            facts["_shape"] = self.shape, self.numel, self.dtype

    tensor.__init__ = init


def _keep_conditions() -> None:
    """Let a condition of one number be one still where it meets a block: the interpreter makes
    integers of it, and takes no mask of those (findings/triton-interpreted-condition.sh)."""
    from triton.runtime import interpreter

    builder = interpreter.InterpreterBuilder
    own = builder.create_splat

    def splat(self: object, kind: object, given: TensorHandle) -> TensorHandle:
        made = own(self, kind, given)
        if given.data.dtype == bool:
            made.data = made.data.astype(bool)
        return made

    builder.create_splat = splat
