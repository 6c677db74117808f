"""What the symbolic executor reads, and what it refuses."""

import ast
import textwrap
from dataclasses import replace

import pytest

from cacheproof.proofs.symbolic.deciding.play import Play
from cacheproof.proofs.symbolic.rules.readings import RuleLanguage
from cacheproof.proofs.symbolic.subjects.encoder_cache import of_reference
from cacheproof.proofs.symbolic.values.language import NotTranslated
from cacheproof.proofs.symbolic.values.values import Universe

SUBJECT = of_reference()


def with_method(text: str) -> None:
    """Run the reference's check() with this text in place of its own."""
    (method,) = ast.parse(textwrap.dedent(text).strip()).body
    assert isinstance(method, ast.FunctionDef)
    source = SUBJECT.sources["m"]
    changed = replace(source, methods={**source.methods, method.name: method})
    subject = replace(SUBJECT, sources={**SUBJECT.sources, "m": changed})
    (check,) = [one for one in subject.operations if one.name == "check"]
    Play(subject, check, RuleLanguage(Universe()))


@pytest.mark.parametrize(
    ("statement", "named"),
    [
        ("try:\n        pass\n    except KeyError:\n        pass", "try:"),
        ("for holder in self.cached:\n        pass", "for holder in self.cached:"),
        ("self.cached = {h: set() for h in self.freeable}", "{h: set() for h in self.freeable}"),
        ("print(input_id)", "print(input_id)"),
        ("self.cached.popleft()", "self.cached.popleft()"),
        ("identifier = lambda: 0", "lambda: 0"),
    ],
)
def test_a_construct_without_a_reading_is_named_with_file_and_line(
    statement: str, named: str
) -> None:
    text = (
        f"def check_and_update_cache(self, request, input_id):\n    {statement}\n    return False"
    )
    with pytest.raises(NotTranslated) as refused:
        with_method(text)
    assert "encoder_cache.py:2: no reading of" in str(refused.value)
    assert named in str(refused.value)


def test_what_can_be_read_is_run() -> None:
    with_method(
        """
        def check_and_update_cache(self, request, input_id):
            identifier = request.mm_features[input_id].identifier
            if identifier not in self.cached:
                return False
            return any(holder != request.request_id for holder in self.cached[identifier])
        """
    )
