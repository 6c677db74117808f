"""Whoever asks which contracts judge is told of all of them."""

import subprocess
import sys
from importlib import import_module
from pkgutil import iter_modules

from cacheproof import spec
from cacheproof.spec.registry import contracts

ASKED = """
import cacheproof.differential.judges.rules
from cacheproof.spec.registry import contracts

print(*(rule.id for rule in contracts()))
"""


def test_every_contract_is_known_where_rules_are_asked_for_whatever_was_imported_before() -> None:
    for module in iter_modules(spec.__path__):
        import_module(f"{spec.__name__}.{module.name}")
    told = subprocess.run(
        [sys.executable, "-c", ASKED], capture_output=True, text=True, check=True
    ).stdout.split()
    assert set(told) == {rule.id for rule in contracts()}
