"""Which branches are not taken, and which of them no trace can take."""

import ast

import pytest

METHOD = """
def schedule(self):
    if self.use_pp:
        for request in self.running:
            if request.done:
                return
    while self.waiting:
        pass
"""


def test_a_line_that_decides_has_the_conditions_around_it(script) -> None:
    (method,) = ast.parse(METHOD).body
    assert script._conditions(method) == {
        3: ("self.use_pp",),
        4: ("self.use_pp", "self.running"),
        5: ("self.use_pp", "self.running", "request.done"),
        7: ("self.waiting",),
    }


@pytest.mark.parametrize(
    ("conditions", "is_refused"),
    [
        (("self.use_pp", "request.done"), True),
        (("self.need_mamba_block_aligned_split",), True),
        (("request.done",), False),
        ((), False),
    ],
)
def test_a_branch_is_refused_by_any_condition_on_the_way(
    script, conditions: tuple[str, ...], is_refused: bool
) -> None:
    branch = script.Branch("Scheduler.schedule", 5, 6, conditions)
    assert (branch.reason(script.REFUSED, "0.33.0") is not None) is is_refused


def test_a_feature_may_be_refused_before_a_release(script) -> None:
    branch = script.Branch("Scheduler.schedule", 5, 6, ("request.spec_token_ids",))
    assert branch.reason(script.REFUSED, "0.11.0") == "drafts, not modelled before 0.11.1"
    assert branch.reason(script.REFUSED, "0.11.1") is None


def test_a_branch_that_could_be_taken_and_is_not_is_listed(script, capsys) -> None:
    missing = [
        ("Scheduler.schedule", 5, 6, ("request.done",)),
        ("Scheduler.schedule", 9, 10, ("self.use_pp",)),
    ]
    functions = {"Scheduler.schedule": {"branches": 10, "taken": 8, "missing": missing}}
    script.report(functions, "0.33.0")
    printed = capsys.readouterr().out
    assert "| Scheduler.schedule | 10 | 1 | 9 | 8 (89%) |" in printed
    assert "Not taken: 1\n\n- Scheduler.schedule, line 5 to 6: `request.done`: not met\n" in printed
