"""docs/reference/language.md: the language that the translator reads, from the tables that its gate
asks.

    .venv/bin/python -m cacheproof.proofs.symbolic.gate.language_page

writes it.
"""

import ast
import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path

from cacheproof.proofs.symbolic.gate import gate_module
from cacheproof.proofs.symbolic.gate.gate import CHECKS
from cacheproof.proofs.symbolic.gate.gate_surface import OF_SURFACE, not_of_requests
from cacheproof.proofs.symbolic.reading.plain import RULES, bind_self
from cacheproof.proofs.symbolic.values.language import (
    BUILTINS,
    EXPRESSIONS,
    MAY_ALIAS,
    METHODS,
    OF_POOL,
    OPERATORS,
    STATEMENTS,
)

PAGE = Path(__file__).resolve().parents[3] / "docs" / "reference" / "language.md"
_HEAD = """# The language that proofs read

    .venv/bin/python -m cacheproof.proofs.symbolic.gate.language_page

makes this page from the tables that the gate of the proofs asks
([language.py](../../proofs/symbolic/values/language.py),
[gate.py](../../proofs/symbolic/gate/gate.py),
[gate_module.py](../../proofs/symbolic/gate/gate_module.py),
[gate_surface.py](../../proofs/symbolic/gate/gate_surface.py)). Only texts in this language are
proved: managers, block pools, and the ghost beside them. A text outside is refused with file and
line. The gate refuses what its form tells, before any path is run; what hangs on the type of an
operand is refused where it is read, before anything is proved. [A suite of
texts](../../proofs/conformance) holds each line against CPython."""
_REQUESTS = """Requests are asked for `request_id`, `mm_features[i].identifier`, `mm_hashes[i]`,
`get_num_encoder_embeds(i)` and `get_num_encoder_tokens(i)`, in the releases whose requests have
them. A call of a method of the class gives every parameter that has no constant as its default,
by place or by name. An attribute of which nothing is proved may be set, but not read. A number may
be added to it where it begins as one. A loop that has moved to a helper is read there. What
attributes are called that nobody else looks at does not matter, as long as they are annotated as
in 0.33.0."""
OF_MODULE = (gate_module.of_module, gate_module.uses_of_class)
OF_CLASS: tuple[Callable[..., object], ...] = (
    gate_module.definition,
    gate_module.body,
    gate_module.unbound,
    *OF_SURFACE,
    not_of_requests,
)


def page() -> str:
    """The page's text."""
    return "\n".join(_lines()).rstrip() + "\n"


def _lines() -> Iterator[str]:
    yield from _HEAD.splitlines()
    yield ""
    yield from _table("Statements", "statement", _named(STATEMENTS))
    yield from _table("Expressions", "expression", _named(EXPRESSIONS))
    operators = " ".join(dict.fromkeys(OPERATORS.values()))
    yield f"Operators: {operators}. Block pools also have {', '.join(OF_POOL.values())}."
    yield ""
    for kind, methods in METHODS.items():
        rows = [(f"`{name}`", said) for name, said in methods.items()]
        yield from _table(f"Methods of a {kind}", "method", rows)
    yield from _table("Builtins", "name", [(f"`{name}`", said) for name, said in BUILTINS.items()])
    yield from _REQUESTS.splitlines()
    yield ""
    yield from _list("Read in other words", [*map(_said, RULES), _said(bind_self)])
    yield from _list("What may alias", MAY_ALIAS)
    yield from _list("Refused in a method", (_said(one) for one in CHECKS))
    yield from _list("Refused of a module", (_said(one) for one in OF_MODULE))
    yield from _list("Refused of a class", (_said(one) for one in OF_CLASS))


def _named(table: Mapping[type[ast.AST], str]) -> list[tuple[str, str]]:
    return [(f"`{kind.__name__}`", said) for kind, said in table.items()]


def _table(title: str, column: str, rows: Iterable[tuple[str, str]]) -> Iterator[str]:
    yield from (f"## {title}", "", f"| {column} | read |", "|---|---|")
    yield from (f"| {name} | {said or 'as in Python'} |" for name, said in rows)
    yield ""


def _list(title: str, sentences: Iterable[str]) -> Iterator[str]:
    yield from (f"## {title}", "")
    yield from (f"* {one}" for one in sentences)
    yield ""


def _said(check: Callable[..., object]) -> str:
    return " ".join(inspect.cleandoc(check.__doc__ or "").split())


if __name__ == "__main__":
    PAGE.write_text(page())
