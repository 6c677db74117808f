"""Proofs in a process of their own, as `cacheproof prove` makes them."""

import pickle
import subprocess
import sys
from collections.abc import Callable, Mapping

import pytest

from cacheproof.proofs.conformance.cpython import OfCPython
from cacheproof.proofs.conformance.judges import OfTranslator
from cacheproof.proofs.symbolic.deciding.prove import RuleOutcome

PROVE = """
import pickle, sys
from cacheproof.proofs.symbolic.subjects import {component}
from cacheproof.proofs.symbolic.deciding.prove import prove
sys.stdout.buffer.write(pickle.dumps(prove({component}.of_reference())))
"""


@pytest.fixture(scope="package")
def prove_alone() -> Callable[[str], Mapping[str, RuleOutcome]]:
    """What is proved of the reference of a component. What a solver takes hangs on what its process
    did before, and here that is what other tests left."""

    def alone(component: str) -> Mapping[str, RuleOutcome]:
        command = [sys.executable, "-c", PROVE.format(component=component)]
        found: Mapping[str, RuleOutcome] = pickle.loads(
            subprocess.run(command, capture_output=True, check=True).stdout
        )
        return found

    return alone


@pytest.fixture(scope="module")
def cpython() -> OfCPython:
    return OfCPython()


@pytest.fixture(scope="module")
def translator() -> OfTranslator:
    return OfTranslator()
