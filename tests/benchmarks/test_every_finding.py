"""Replays of the findings: which releases a row names, and which it must not."""


def test_a_row_tells_what_broke_from_what_held_and_what_was_refused(script) -> None:
    found = [
        script.Replay("0.10.2", "lost", "first", None),
        script.Replay("0.10.2", "lost", "second", None),
        script.Replay("0.11.0", "lost", "first", frozenset({"SC-2", "SC-8"})),
        script.Replay("0.11.0", "lost", "second", frozenset({"SC-8"})),
        script.Replay("0.11.1", "lost", "first", frozenset()),
        script.Replay("0.11.1", "lost", "second", frozenset()),
    ]
    rows = script.page(found).splitlines()[-2:]
    assert rows == [
        "| lost | SC-2 | 0.11.0 |  | 0.10.2 |",
        "| lost | SC-8 | 0.11.0 | 0.11.0 | 0.10.2 |",
    ]


def test_a_trace_that_breaks_no_contract_has_a_row(script) -> None:
    held = [script.Replay("0.33.0", "held", runner, frozenset()) for runner in script.RUNNERS]
    assert script.page(held).splitlines()[-1] == "| held | none |  |  |  |"


def test_the_page_has_every_trace_that_needs_no_engine(script) -> None:
    rows = {line.split(" | ")[0].removeprefix("| ") for line in script.PAGE.read_text().split("\n")}
    assert {name for name, _ in script.traces()} <= rows


def test_a_trace_that_is_run_alone_leaves_the_rows_of_the_others(script) -> None:
    def page(*names: str, broken: str) -> str:
        replays = [script.Replay("0.33.0", name, "first", frozenset({broken})) for name in names]
        text: str = script.page(replays)
        return text

    before = page("held", "kept", "lost", broken="SC-8")
    after = script.merged(before, page("kept", "late", broken="SC-2")).splitlines()[-4:]
    told = [line.split(" | ")[:2] for line in after]
    assert told == [["| held", "SC-8"], ["| kept", "SC-2"], ["| late", "SC-2"], ["| lost", "SC-8"]]
    assert script.merged(before, page("kept", broken="SC-8")) == before
    text = script.PAGE.read_text()
    assert script.merged(text, text) == text
