"""Texts that leave out one part of what they wrote, or write one thing for another.

Every place of a text at which an operator applies is a mutant of its own, so none is chosen.
"""

import ast
from collections.abc import Callable, Container, Iterator
from dataclasses import dataclass
from typing import Any

Edit = Callable[[ast.AST], list[tuple[str, ast.AST]]]
"""The changes that an operator makes of a node: what each is called, and what stands there then."""
HARMLESS = {
    "tag m for l in _shape": "a shape is always the second node of its array or tensor",
    "tag S for X in _array": "elements are always the third node of their array",
    "tag S for X in _tensor": "elements are always the third node of their tensor",
    "tag S for X in _image": "pixels are always the third node of their image",
    "no first of first + size in hasher": "nothing is hashed twice: the loop does not start either",
    "no size of first + size in hasher": "nothing is hashed early: the loop does not start either",
    "end_of(items[item]) < start for end_of(items[item]) <= start in _of_items": (
        "an item that is not passed is not named either"
    ),
    "no (yield adapter.lora_int_id) in _adapter_keys": "not the ideal's way",
    "no (yield adapter.lora_name) in _adapter_keys": "not the ideal's way",
    "no feature.identifier of (feature.identifier, offset) in _item_key": "not the ideal's way",
    "no offset of (feature.identifier, offset) in _item_key": "not the ideal's way",
    "no digest of ('prompt_embeds', digest) in _embeds_keys": "not the ideal's way",
    "no 'prompt_embeds' of ('prompt_embeds', digest) in _embeds_keys": "not the ideal's way",
    "no part 1 of adapter ':' key in identifier": "not the ideal's way",
    "no part 2 of adapter ':' key in identifier": "not the ideal's way",
    "no part 3 of adapter ':' key in identifier": "not the ideal's way",
    "no part 4 of len(adapter or '') ':' adapter or '' ':' key in identifier": (
        "the length in front says where the adapter's name ends"
    ),
    "no 'mm' of ('mm', feature.identifier, offset) in _item_key": "no other pair ends in a number",
    "no 'cache_salt' of ('cache_salt', salt) in _salt_keys": "no other extra key is a text",
    "no 'prompt_embeds' of ('prompt_embeds', digest, bytes(embeds.given[start:end])) in "
    "_embeds_keys": "no other extra key is a pair of bytes",
}
"""Changes by which no two contents get one key, and why; that none does is checked as well."""


@dataclass(frozen=True)
class TextMutant:
    """A changed text; `name` says what was changed, and in which function."""

    name: str
    text: str


def mutants(text: str, functions: Container[str], *edits: Edit) -> Iterator[TextMutant]:
    """Every text that one of the edits makes of it in one place of these functions' bodies."""
    tree = ast.parse(text)
    unpacked = {
        id(node.value)
        for node in ast.walk(tree)
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Tuple)
    }
    for function in ast.walk(tree):
        if not isinstance(function, ast.FunctionDef) or function.name not in functions:
            continue
        for node in (node for statement in function.body for node in ast.walk(statement)):
            if id(node) in unpacked:
                continue
            for edit in edits:
                for name, changed in edit(node):
                    yield TextMutant(f"{name} in {function.name}", _replaced(text, node, changed))


def harmful(changed: Iterator[TextMutant]) -> Iterator[TextMutant]:
    """The changed texts that are to be refuted."""
    return (one for one in changed if one.name not in HARMLESS)


def _replaced(text: str, node: Any, changed: ast.AST) -> str:
    """The text with another node in place of this one."""
    lines = [line.encode() for line in text.splitlines(keepends=True)]
    before = [*lines[: node.lineno - 1], lines[node.lineno - 1][: node.col_offset]]
    after = [lines[node.end_lineno - 1][node.end_col_offset :], *lines[node.end_lineno :]]
    return b"".join([*before, ast.unparse(changed).encode(), *after]).decode()


def without_an_element(node: ast.AST) -> list[tuple[str, ast.AST]]:
    """Tuples of several elements lose each in turn."""
    if not isinstance(node, ast.Tuple) or not isinstance(node.ctx, ast.Load):
        return []
    if len(node.elts) < 2:
        return []
    return [
        (
            f"no {ast.unparse(one)} of {ast.unparse(node)}",
            ast.Tuple([other for other in node.elts if other is not one], ast.Load()),
        )
        for one in node.elts
    ]


def without_a_part(node: ast.AST) -> list[tuple[str, ast.AST]]:
    """A text that is put together lacks one part."""
    if not isinstance(node, ast.JoinedStr):
        return []
    return [
        (
            f"no part {number} of {' '.join(map(_shown, node.values))}",
            ast.JoinedStr([other for other in node.values if other is not one]),
        )
        for number, one in enumerate(node.values, start=1)
    ]


def _shown(part: ast.expr) -> str:
    return ast.unparse(part.value if isinstance(part, ast.FormattedValue) else part)


def without_an_operand(node: ast.AST) -> list[tuple[str, ast.AST]]:
    """Two parts that are added lose each in turn."""
    if not isinstance(node, ast.BinOp) or not isinstance(node.op, ast.Add):
        return []
    whole = ast.unparse(node)
    return [
        (f"no {ast.unparse(node.left)} of {whole}", node.right),
        (f"no {ast.unparse(node.right)} of {whole}", node.left),
    ]


_BESIDE: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
}


def shifted_comparison(node: ast.AST) -> list[tuple[str, ast.AST]]:
    """What may be equal may not, and the other way round."""
    if not isinstance(node, ast.Compare) or type(node.ops[0]) not in _BESIDE:
        return []
    shifted = ast.Compare(node.left, [_BESIDE[type(node.ops[0])]()], node.comparators)
    return [(f"{ast.unparse(shifted)} for {ast.unparse(node)}", shifted)]


def without_a_yield(node: ast.AST) -> list[tuple[str, ast.AST]]:
    """A generator leaves something out."""
    if not isinstance(node, ast.Expr) or not isinstance(node.value, ast.Yield | ast.YieldFrom):
        return []
    return [(f"no {ast.unparse(node.value)}", ast.Pass())]
