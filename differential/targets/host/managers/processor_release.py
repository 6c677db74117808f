"""The processor of media of this vLLM, with stand-ins for what a model adds to it: it looks items
up, has the new ones processed, and puts both together, as the release's own does."""

import __future__

import ast
import inspect
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
import vllm
from vllm.multimodal import hasher, parse
from vllm.multimodal.inputs import MultiModalFieldConfig
from vllm.multimodal.processing import BaseMultiModalProcessor

from ..protocol import Illegal
from ..vllm_objects.media_caches import MODALITIES, Asked, Content, ProcessorError

_BASE: Any = BaseMultiModalProcessor
_TELLS_OF_PROMPT = "tuple" in str(
    inspect.signature(_BASE._apply_hf_processor_main).return_annotation
)
"""Whether what is processed comes with the prompt's tokens, and whether these were changed."""


_NAMING = ("_get_mm_hashes", "_hash_mm_items")
"""Methods of a processor that name items."""


def bare(base: type, **attributes: object) -> Any:
    """An object of a release's class that was never initialised, with these attributes alone."""
    names = dict.fromkeys(getattr(base, "__abstractmethods__", ()))
    for name, value in {"tokenizer": None, **attributes}.items():
        names[name] = staticmethod(value) if callable(value) else value
    return object.__new__(type(base.__name__, (base,), names))


@cache
def naming_processor(model: str) -> type:
    """The processor of a model of this release, as far as it names items: of the text of its class
    these methods alone, since the module imports what a host has not.

    Raises:
        Illegal: the release has no such model.
    """
    path = Path(vllm.__file__).parent / "model_executor" / "models" / f"{model}.py"
    if not path.is_file():
        raise Illegal(f"vLLM {vllm.__version__} has no model {model}")
    (own,) = (
        node
        for node in ast.parse(path.read_text()).body
        if isinstance(node, ast.ClassDef) and node.name.endswith("MultiModalProcessor")
    )
    methods = [one for one in own.body if getattr(one, "name", None) in _NAMING]
    own.body = [*methods] or [ast.Pass()]
    own.bases, own.decorator_list = [ast.Name("BaseMultiModalProcessor", ast.Load())], []
    found: dict[str, Any] = {**vars(parse), **vars(hasher)}
    found["BaseMultiModalProcessor"] = BaseMultiModalProcessor
    whole = ast.fix_missing_locations(ast.Module([own], []))
    exec(compile(whole, str(path), "exec", __future__.annotations.compiler_flag), found)
    kind: type = found[own.name]
    return kind


def called(function: Any, **named: object) -> Any:
    """What the function returns for those of the arguments that it takes."""
    taken = inspect.signature(function).parameters
    return function(**{name: value for name, value in named.items() if name in taken})


def nothing(*asked: object, **named: object) -> None:
    """Answers whatever is asked with None."""


class Processor:
    """A processor that has this cache of a front end."""

    def __init__(self, kept: Any) -> None:
        self._asked: Asked | None = None
        self._named: dict[str, list[str]] = {}
        self._cache = kept
        self._processor = bare(
            BaseMultiModalProcessor,
            cache=kept,
            info=_INFO,
            data_parser=_INFO,
            validate_num_items=nothing,
            _hash_mm_items=self._names,
            _apply_hf_processor_main=self._process,
            _get_mm_fields_config=_fields,
            _get_mm_prompt_updates=_updates,
            _recompute_cached_prompt_update=nothing,
        )

    def process(self, asked: Asked) -> list[Any]:
        """The items of a request as they are handed on, in the order of its prompt. Raises
        ProcessorError where that is what is asked for."""
        places: dict[str, list[int]] = {one: [] for one in MODALITIES if one in asked.modalities}
        for at, modality in enumerate(asked.modalities):
            places[modality].append(at)
        self._asked = asked
        self._named = {one: [asked.names[at] for at in numbers] for one, numbers in places.items()}
        given = {
            one: _Given(one, [asked.contents[at] for at in numbers], asked.skips_cache)
            for one, numbers in places.items()
        }
        inputs = SimpleNamespace(
            prompt=[],
            cache=self._cache,
            mm_data_items=given,
            hf_processor_mm_kwargs={},
            tokenization_kwargs={},
            get_mm_hashes=self._names,
        )
        told = called(
            self._processor._cached_apply_hf_processor,
            **vars(inputs),
            inputs=inputs,
            timing_ctx=_UNTIMED,
        )
        merged = (told if hasattr(told, "kwargs") else told[1]).kwargs
        payload: list[Any] = [None] * len(asked.names)
        for modality, numbers in places.items():
            for at, item in zip(numbers, merged[modality], strict=True):
                payload[at] = item
        return payload

    def _names(self, *asked: object, **named: object) -> dict[str, list[str]]:
        return self._named

    def _process(self, *, mm_items: Mapping[str, "_Given"], **named: object) -> Any:
        assert self._asked
        if self._asked.fails:
            raise ProcessorError
        data = {field_of(one): [*map(tensor_of, items)] for one, items in mm_items.items()}
        return ([], data, False) if _TELLS_OF_PROMPT else data


class _Given(list[Content]):
    """Items of one modality that are to be processed, as a release's parser of items has them."""

    def __init__(self, modality: str, items: Sequence[Content], are_passed_on: bool) -> None:
        super().__init__(items)
        self.modality = modality
        self._are_passed_on = are_passed_on

    def get_count(self) -> int:
        return len(self)

    def get_processor_data(self) -> dict[str, object]:
        return {} if self._are_passed_on else {self.modality: [*self]}

    def get_passthrough_data(self) -> dict[str, object]:
        return {self.modality: [*self]} if self._are_passed_on else {}


def _parsed(data: Mapping[str, Sequence[Content]], **named: object) -> dict[str, _Given]:
    return {modality: _Given(modality, items, False) for modality, items in data.items()}


def field_of(modality: str) -> str:
    """The field of an item that has its tensor."""
    return f"{modality}_values"


def tensor_of(content: Content) -> torch.Tensor:
    """What a processor makes of an item: a text, in so many bytes."""
    text, size = content
    data = torch.zeros(size, dtype=torch.uint8)
    data._cacheproof_text = text  # type: ignore[attr-defined]
    return data


def _fields(data: Mapping[str, object], options: object) -> dict[str, MultiModalFieldConfig]:
    return {
        field_of(modality): MultiModalFieldConfig.batched(modality)
        for modality in MODALITIES
        if field_of(modality) in data
    }


def _updates(given: Mapping[str, _Given], *asked: object) -> dict[str, list[list[object]]]:
    return {modality: [[] for _ in items] for modality, items in given.items()}


_INFO = SimpleNamespace(
    parse_mm_data=_parsed,
    model_id="",
    ctx=SimpleNamespace(
        get_mm_config=lambda: SimpleNamespace(mm_hasher_algorithm=""),
        model_config=SimpleNamespace(
            get_multimodal_config=lambda: SimpleNamespace(enable_mm_embeds=True)
        ),
    ),
)
_UNTIMED = SimpleNamespace(record=lambda *_: nullcontext())
