"""What the other commands conclude: for each exit code a sentence of its own, in words."""

import io
from contextlib import redirect_stdout
from dataclasses import replace
from types import SimpleNamespace

import pytest

from cacheproof.audit.listing import Listing
from cacheproof.audit.report import AuditReport
from cacheproof.differential.search.bisection import Bisection, ReleaseAnswer
from cacheproof.differential.search.verdict import VOID
from cacheproof.explore.verdict import Explored
from cacheproof.output.console import CommandOutput
from cacheproof.output.verdict_line import VerdictLine
from cacheproof.search import compared, gallery_verdict
from cacheproof.search.compared import Compared
from cacheproof.serving import verdict as served
from cacheproof.serving.verdict import ServersAsked
from cacheproof.simulation import verdict as simulated
from cacheproof.simulation.figures import Figures
from cacheproof.simulation.result import point
from cacheproof.tables import places

EXPLORED = Explored(("reference",), 0, scopes=2, closed=2, states=10, transitions=99)
COMPARED = Compared("vllm@0.28.0", "path:fork", 0, traces=50, apart=0, kinds=2)
SERVED = ServersAsked("engine@0.32.0", 0, servers=2, tokens=4567, equal=4567)
TITLE = "EC-6a (Who needs a resident entry holds it)"
BLIND = ("EC-6",)

EXPLORATIONS = {
    0: (EXPLORED, "reference shows nothing new in small scopes: "),
    1: (
        replace(EXPLORED, code=1, new=("EC-6a",)),
        f"reference shows 1 new fault, which breaks {TITLE}: ",
    ),
    3: (
        replace(EXPLORED, code=3, blind=BLIND),
        "This exploration of reference proves nothing about EC-6, since no planted fault breaks ",
    ),
    130: (
        replace(EXPLORED, code=130, left=1),
        "The exploration of reference was interrupted and shows nothing new so far: ",
    ),
}
APART = replace(COMPARED, apart=3, shown=2, explained=1, unseen=1)
COMPARISONS = {
    0: (COMPARED, "vllm@0.28.0 and path:fork decide alike: no difference on 50 traces of 2 kinds "),
    1: (
        replace(APART, code=1),
        "vllm@0.28.0 and path:fork do not decide alike: they differ on 3 of 50 traces of 2 kinds of"
        " workload; 2 differences shown, 1 of them explained by a known change; 1 known change ",
    ),
    3: (
        replace(COMPARED, code=3, traces=0),
        "The comparison of vllm@0.28.0 and path:fork shows nothing: no trace ran on both.",
    ),
    4: (
        replace(APART, code=4),
        "vllm@0.28.0 and path:fork do not decide alike, which is a difference from the model: ",
    ),
    130: (
        replace(APART, code=130),
        "The comparison of vllm@0.28.0 and path:fork was interrupted: they differ on 3 of 50 ",
    ),
}
SERVERS = {
    0: (SERVED, "2 servers of engine@0.32.0 answered as each request alone is answered: 4,567 of "),
    1: (
        replace(SERVED, code=1, new=1, equal=4560),
        "1 of 2 servers of engine@0.32.0 did what no known fault explains: 4,560 of 4,567 tokens ",
    ),
    3: (
        replace(SERVED, code=3, tokens=0, equal=0),
        "This run of 2 servers of engine@0.32.0 proves nothing: no token was compared.",
    ),
    130: (
        replace(SERVED, code=130, servers=1, left=1),
        "The run was interrupted after 1 server of engine@0.32.0: ",
    ),
}


@pytest.mark.parametrize("told", [EXPLORATIONS, COMPARISONS, SERVERS], ids=str)
def test_each_exit_code_has_a_sentence_of_its_own(told: dict[int, tuple[Explored, str]]) -> None:
    for code, (one, beginning) in told.items():
        assert one.code == code
        assert one.line.sentence.startswith(beginning)
        assert one.line.sentence.endswith(".")
    assert len({one.line.sentence for one, _ in told.values()}) == len(told)


def test_a_server_that_is_interrupted_is_not_said_to_have_been_left_alone() -> None:
    line = SERVERS[130][0].line
    assert line.sentence.endswith("; 1 server not finished.")
    assert line.step == "run the command again"


def test_an_exploration_says_no_more_than_was_visited() -> None:
    assert "every state of 2 scopes was visited" in EXPLORED.line.sentence
    partly = replace(EXPLORED, closed=1).line.sentence
    assert "1 of 2 scopes were visited whole" in partly
    nothing = replace(EXPLORED, code=3, scopes=0, closed=0).line.sentence
    assert nothing == "This exploration of reference proves nothing: no state was visited."
    assert replace(EXPLORED, known=4).line.sentence.endswith(
        "; 4 known faults met again, and nothing else broke."
    )


def broken_in(*breaks: bool) -> Bisection:
    rows = zip(("0.28.0", "0.29.0", "0.30.0", "0.31.0"), breaks, strict=True)
    answers = (ReleaseAnswer(name, frozenset({"EC-6a"} if one else ())) for name, one in rows)
    return Bisection("EC-6a", tuple(answers))


@pytest.mark.parametrize(
    ("found", "sentence"),
    [
        ((), f"{TITLE} breaks in none of the 4 releases that were asked; 1 release could not run "),
        (
            (False, True, True, False),
            f"{TITLE} breaks in 0.29.0 to 0.30.0, of 4 releases that were asked: 0.29.0 brought it;"
            " 0.31.0 mended it; ",
        ),
        (
            (True, True, True, True),
            f"{TITLE} breaks in 0.28.0 to 0.31.0, of 4 releases that were asked: no older one was "
            "asked; none has mended it; ",
        ),
        (
            (True, False, True, False),
            f"{TITLE} breaks in 0.28.0, 0.30.0, of 4 releases that were asked: it came more than ",
        ),
    ],
)
def test_a_bisection_says_which_release_brought_a_fault(
    found: tuple[bool, ...], sentence: str
) -> None:
    some = [broken_in(*found)] if found else []
    line = compared.of_releases(some, 4, 1, "EC-6a", "cacheproof replay a.json")
    assert line.sentence.startswith(sentence)
    assert line.command.startswith("cacheproof replay a.json --target vllm@0.3") == bool(found)


def test_a_bisection_of_commits_names_one_or_says_that_it_cannot() -> None:
    commit = ("0123456789abcdef", "2026-03-04", "Hold it longer.")
    one = compared.of_commits("brought", [commit])
    assert one.sentence == "Commit 0123456789ab of 2026-03-04 brought it: Hold it longer."
    assert "which one is not known" in compared.of_commits("mended", [commit] * 2).sentence


def test_a_small_trace_of_a_record_is_known_or_not() -> None:
    args = ("EC-6a", "vllm@0.28.0", 4)
    known = compared.of_minimised(*args, "repeated-item", "cacheproof replay a").sentence
    assert known == (
        f"vllm@0.28.0 breaks {TITLE} as the record does, on a trace of 4 events; it is the known "
        "fault repeated-item."
    )
    assert "not on the list" in compared.of_minimised(*args, None, "").sentence
    assert "proves nothing" in compared.of_lost("EC-6a", "vllm@0.28.0").sentence
    of_a_fork = compared.of_lost("EC-6a", "vllm@0.28.0", "the vLLM that ran reads otherwise")
    assert "proves nothing" not in of_a_fork.sentence
    assert of_a_fork.sentence.endswith("run again, and the vLLM that ran reads otherwise.")
    assert "--target path:DIR" in of_a_fork.step


def test_the_gallery_is_whole_or_says_what_it_lacks() -> None:
    def said(*survivors: str, alarms: tuple[str, ...] = ()) -> str:
        return gallery_verdict.of_gallery(218, survivors, alarms, ()).sentence

    assert said() == "All 218 faulty variants are caught, each by one rule at least."
    assert said("a").startswith("1 of 218 faulty variants are caught by no rule (a)")
    assert said(alarms=("EC-1",)).startswith("The gallery proves nothing, since EC-1 also breaks ")
    assert (
        "that want numpy were not run" in gallery_verdict.of_gallery(2, (), (), ("numpy",)).sentence
    )


def test_a_simulation_names_the_smallest_size_that_is_enough() -> None:
    def of(size: int, hits: int, stalls: int) -> object:
        figures = Figures(requests=100)
        figures.hits, figures.encodes, figures.space_stalls = hits, 100 - hits, stalls
        return point("chat", size, 64, figures, 2)

    def said(*points: object, page: str | None = None) -> VerdictLine:
        return simulated.of_simulated("0.33.0", 100, points, 0, page, sizes=len(points))  # type: ignore[arg-type]

    points = [of(1024, 10, 0), of(2048, 40, 90), of(4096, 40, 0), of(8192, 40, 0)]
    line = said(*points)
    assert line.sentence.startswith("Of the cache sizes tried, in 4 runs of 100 requests that are ")
    assert line.sentence.endswith(" is 4,096 rows for chat (hit rate 0.40).")
    assert line.step.startswith("run it again with --html FILE")
    assert said(*points, page="sizes.html").step.startswith("open sizes.html")
    alone = said(of(1024, 10, 0), of(1024, 10, 0)).sentence  # as asked for, and as raised to
    assert "compared with no other: 1,024 rows for chat (hit rate 0.10)." in alone


def test_an_interrupted_simulation_concludes_of_kinds_that_were_tried_whole_alone() -> None:
    def after(*runs: tuple[str, int]) -> str:
        points = [point(kind, size, 64, Figures(requests=9, encodes=1), 2) for kind, size in runs]
        left = 4 - len(points)
        return simulated.of_simulated("0.33.0", 9, points, left, "page.html", sizes=2).sentence

    none = "The simulation was interrupted, with {} left, before all sizes were tried of one kind "
    assert after().startswith(none.format("4 runs"))
    assert after(("chat", 1024)).startswith(none.format("3 runs"))
    chat = ("chat", 1024), ("chat", 2048)
    told = after(*chat, ("video", 1024))
    assert told.startswith("The simulation was interrupted, with 1 run left: of the cache sizes ")
    assert told.endswith(" is 1,024 rows for chat (hit rate 0.00).")
    assert "video" in after(*chat, ("video", 1024), ("video", 2048))


def test_what_a_model_answered_is_counted() -> None:
    steps = [{"encoded": 2, "hits": 1, "evicted": 0, "tokens": {"a": 5}, "preempted": []}] * 2
    said = served.of_generated("llava", "cpu", steps, ["an answer"]).sentence
    assert said.startswith("llava answered 1 prompt in 2 steps on cpu, 10 tokens computed: of the ")
    assert served.of_generated("llava", "cpu", [], []).sentence == "llava answered nothing on cpu."


def test_what_is_kept_is_told_with_what_can_be_done_with_it() -> None:
    row = places.TargetProgress(
        "t", 4, 10, events=80, events_per_s=0, findings=3, unlisted=1, left=""
    )
    idle = places.of_status("store", [row], 0)
    assert idle == VerdictLine(
        "The campaign in store has done 4 of 10 (40%) shards of 1 target: 1 new finding, 2 listed "
        "or harmless; nobody runs it.",
        "go on with it",
        "cacheproof campaign resume --store store",
    )
    assert "1 process on it" in places.of_status("store", [replace(row, of=None)], 1).sentence
    assert places.of_list([], "connector", "connector install x").command.endswith("install x")
    assert places.of_list(["vllm@1", "vllm@2"], "release of vLLM", "").command.endswith("vllm@2")
    assert "1 of 3 installed" in places.of_texts(36, 12, 3, ["0.28.0"]).sentence
    assert "All 3 installed" in places.of_texts(36, 12, 3, []).sentence
    assert places.of_merged("a", 9, 2, "r").sentence.startswith("a holds 9 shards, of which 2 ")
    assert "nothing of it was checked" in places.of_installed(["vllm@1"]).sentence


def test_an_audit_of_records_without_a_beginning_judged_nothing() -> None:
    records = SimpleNamespace(auditors={}, unbegun=["engine-1"], without_scheduler=[])
    said = io.StringIO()
    with redirect_stdout(said), CommandOutput(None) as output:
        code = AuditReport(output, Listing(()), "records").end(records)
    assert code == VOID
    assert said.getvalue().startswith("Nothing was judged of records: ")
