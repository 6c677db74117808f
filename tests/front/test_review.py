"""What a review says of a change: decisions, faults, proofs; and how it ends."""

import json
import re
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from markdown_it import MarkdownIt

from cacheproof.differential.lanes.all_lanes import LANES
from cacheproof.differential.search.canary import canaries_in
from cacheproof.differential.search.diff import Comparison
from cacheproof.differential.search.paired import Both, PlantInHead
from cacheproof.differential.search.verdict import HOLDS, INTERRUPTED, UNLISTED, VOID
from cacheproof.differential.search.weighing import BreakTally, told_together
from cacheproof.differential.targets.reference import ReferenceTarget
from cacheproof.output.console import CommandOutput
from cacheproof.reference.semantics import CHANGES, Semantics
from cacheproof.review import reviewing
from cacheproof.review import run as review_run
from cacheproof.review.page import LINE_MAX, block, code, markdown
from cacheproof.review.proofs import UNREAD, ProofReview, weighed
from cacheproof.review.run import RanTraces
from cacheproof.review.verdict import DIFFERS, Review, Side
from cacheproof.search import two_targets
from cacheproof.spec.evidence import Evidence, Outcome, RedTwin
from cacheproof.spec.registry import by_id
from cacheproof.work.workplace import Workplace
from tests.differential.findings.test_faces import face
from tests.front.conftest import Ran, Run
from tests.front.formats_read import complaints_about_junit, complaints_about_sarif

OLD, NEW = "reference@0.28.0", "reference@0.33.0"
FEW = ("--depth", "manager", "--seeds", "0:2", "--workers", "1")
ROW = Evidence(
    "EC-1", "vllm@0.33.0", "EncoderCacheManager", "proof", "unbounded", Outcome.HOLDS, "", "d", 0.0,
    (RedTwin("a change", refuted=True),),
)  # fmt: skip
REPEATED = "an item that a request repeats holds its entry until its last occurrence"
HOSTILE = "</code></details> | `x` *b* _i_ [l](http://e.x) ![i](u) @all #1 www.e.x a@e.x \n# h <b>"


def read(path: Path) -> dict[str, Any]:
    return json.loads(path.read_text())


# the command


def test_a_target_beside_itself_decides_alike(run: Run) -> None:
    ended = run("review", "--base", NEW, "--head", NEW, *FEW)
    assert ended.code == HOLDS
    assert " decides as " in ended.out.splitlines()[2]
    assert " decides as " in ended.err.splitlines()[-1]
    assert "None was seen." in ended.out


@pytest.mark.full
@pytest.mark.parametrize(
    ("base", "head", "brings"), [(NEW, OLD, {"EC-6", "EC-6a"}), (NEW, NEW, set())]
)
def test_what_head_brings_is_in_the_formats_that_pipelines_read(
    run: Run, tmp_path: Path, base: str, head: str, brings: set[str]
) -> None:
    sarif, junit = tmp_path / "review.sarif", tmp_path / "review.xml"
    ended = run("review", "--base", base, "--head", head, *FEW, "--sarif", sarif, "--junit", junit)
    assert complaints_about_sarif(read(sarif)) == []
    assert complaints_about_junit(junit.read_bytes()) == []
    (one,) = read(sarif)["runs"]
    errors = {result["ruleId"] for result in one["results"] if result["level"] == "error"}
    assert errors >= brings
    assert bool(errors) == bool(brings) == (ended.code == UNLISTED)
    assert ("<failure" in junit.read_text()) == bool(brings)


def reviewed(run: Run, base: str, head: str, folder: Path) -> tuple[Ran, dict[str, Any]]:
    """A review as it ended, and its JSON."""
    file = folder / "review.json"
    ended = run("review", "--base", base, "--head", head, *FEW, "--json", file)
    return ended, read(file)


@pytest.mark.full
def test_what_a_change_mends_is_named_with_the_decision_that_it_changes(
    run: Run, tmp_path: Path
) -> None:
    ended, said = reviewed(run, OLD, NEW, tmp_path)
    assert ended.code == said["exit_code"] == DIFFERS
    assert {"repeated-item"} <= {one["fault"] for one in said["mended"]}
    assert said["brought"] == []
    assert f"<code>{REPEATED}</code>" in ended.out
    partings = {CHANGES[one["change"]].sentence: one for one in said["decisions"] if one["change"]}
    parting = partings[REPEATED]
    assert 0 < len(parting["trace"]["events"]) <= 10


def test_what_a_change_brings_fails_with_its_smallest_trace(run: Run, tmp_path: Path) -> None:
    ended, said = reviewed(run, NEW, OLD, tmp_path)
    assert ended.code == UNLISTED
    assert " is worse than " in ended.out.splitlines()[2]
    assert " is worse than " in ended.err.splitlines()[-1]
    (repeated,) = (one for one in said["brought"] if one["contract"] == "EC-6a")
    assert repeated["fault"] == "repeated-item"
    assert repeated["base"] == 0 < repeated["head_alone"]
    assert len(repeated["trace"]["events"]) <= 7
    (cause,) = (one for one in said["causes"] if said["brought"].index(repeated) in one["brought"])
    assert {said["brought"][at]["fault"] for at in cause["brought"]} == {"repeated-item"}
    assert len(cause["brought"]) > 1
    assert ended.out.count("<summary>Brought: ") == len(said["causes"]) < len(said["brought"])


@pytest.mark.full
def test_nothing_of_it_hangs_on_the_number_of_workers(run: Run) -> None:
    one = run("review", "--base", OLD, "--head", NEW, *FEW)
    two = run("review", "--base", OLD, "--head", NEW, *FEW[:-1], "2")
    assert one.out == two.out


def test_the_page_says_what_was_not_looked_at(run: Run) -> None:
    page = run("review", "--base", NEW, "--head", NEW, *FEW).out
    told = page.partition("### Not looked at")[2]
    assert "seeds 0 to 1 of each lane, at these depths: manager" in told
    assert "Proofs: <code>reference" in told


@pytest.mark.full
def test_a_review_that_ends_by_the_clock_says_so_and_still_plants(run: Run, tmp_path: Path) -> None:
    file = tmp_path / "review.json"
    timed = *FEW[:2], "--seconds", "10", "--workers", "1", "--json", file
    ended = run("review", "--base", NEW, "--head", NEW, *timed)
    assert read(file)["void_because"] == []
    assert ended.code == HOLDS
    assert "All but seeds from 0 on, within 10 s" in ended.out
    assert "Another run may stop at another seed." in ended.out
    assert read(file)["traces"] > 0
    assert all(read(file)["planted"].values())


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((), "Missing option '--base'"),
        (("--base", NEW), "Missing option '--head'"),
        (("--base", NEW, "--head", "nope"), "target 'nope': expected reference[@VERSION]"),
        (("--base", "path:/no/such", "--head", NEW), "/no/such is no vLLM checkout"),
        (("--base", NEW, "--head", NEW, "--seeds", "3"), "expected A:B with A < B"),
        (("--base", NEW, "--head", NEW, "--depth", "deep"), "expected one of manager"),
        (("--base", NEW, "--head", NEW, "--seconds", "0"), "'--seconds'"),
    ],
)
def test_bad_input_is_refused_in_a_line(run: Run, arguments: tuple[str, ...], words: str) -> None:
    assert words in run("review", *arguments).refusal


# red twins: of what plants, of what compares, of processes that end


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("Broken", "void: <code>harness error&#58; host of it crashed (exit status 7)"),
        ("Deadly", "void: <code>harness error&#58; a worker process ended before its work was"),
    ],
)
def test_a_head_of_which_nothing_can_be_said_makes_it_void(
    run: Run,
    monkeypatch: pytest.MonkeyPatch,
    odd_targets: ModuleType,
    name: str,
    words: str,
) -> None:
    def resolve(text: str, *, report: object) -> ReferenceTarget:
        made = getattr(odd_targets, name) if text == "odd" else ReferenceTarget
        found: ReferenceTarget = made(Semantics.of_vllm("0.33.0"), name=text, release="0.33.0")
        return found

    monkeypatch.setattr(two_targets, "resolve", resolve)
    monkeypatch.setattr(two_targets, "require_lanes", lambda lanes, *texts: None)
    ended = run("review", "--base", NEW, "--head", "odd", *FEW)
    assert words in ended.out
    assert ended.code == VOID


def test_faults_that_were_never_planted_count_as_missed(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(review_run, "_plants", lambda lanes, head: iter(()))
    ended = run("review", "--base", NEW, "--head", NEW, *FEW)
    assert ended.code == VOID
    assert "void: <code>the fault planted against EC-1 (encoder cache) was not found" in ended.out


def test_a_comparison_that_sees_nothing_is_void() -> None:
    blind = review(RanTraces(planted={"a difference (encoder cache)": False}))
    assert blind.exit_code == VOID
    assert "a difference (encoder cache) was not found" in blind.void_because[0]


def planted_in(head: ReferenceTarget) -> dict[str, bool]:
    """What comes of the first fault of a lane that is planted in head."""
    lane = LANES["encoder cache"]
    job = PlantInHead(lane, tuple(canaries_in(lane, head)[:1]), compares=True)
    return job.run(Both(ReferenceTarget(Semantics.of_vllm("0.33.0")), head, []))


def test_a_head_in_which_no_fault_takes_misses_it_by_contract_and_by_comparison(
    odd_targets: ModuleType,
) -> None:
    deaf = odd_targets.Deaf(Semantics.of_vllm("0.33.0"))
    places = {"EC-1 (encoder cache)", "a difference (encoder cache)"}
    assert planted_in(ReferenceTarget(Semantics.of_vllm("0.33.0"))) == dict.fromkeys(places, True)
    assert planted_in(deaf) == dict.fromkeys(places, False)


def test_a_comparison_that_is_blind_misses_the_planted_difference(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(Comparison, "compare", lambda *_: None)
    found = planted_in(ReferenceTarget(Semantics.of_vllm("0.33.0")))
    assert found == {"EC-1 (encoder cache)": True, "a difference (encoder cache)": False}


# proofs


def review(ran: RanTraces, proofs: ProofReview | None = None) -> Review:
    """A review of no trace; of nothing that was judged where there are faults planted."""
    side = Side(NEW, "0.33.0", is_release=True)
    return Review(side, side, "seeds", ran, [], [], proofs or ProofReview())


def of_head(**changed: object) -> ProofReview:
    """What is said where a row of base holds, and that of head is changed."""
    place = ROW.subject, ROW.contract
    return weighed({place: ROW}, {place: replace(ROW, **changed)})


def test_what_is_proved_on_both_sides_is_no_change() -> None:
    assert of_head() == ProofReview(("EncoderCacheManager",), (), 1, ())


def test_a_contract_that_the_changed_text_breaks_is_lost_and_fails() -> None:
    proofs = of_head(outcome=Outcome.REFUTED, note="free_slots = -1")
    done = review(RanTraces(), proofs)
    assert [one.contract for one in proofs.refuted] == ["EC-1"]
    assert done.exit_code == UNLISTED
    assert "| EC-1 | <code>EncoderCacheManager</code> | holds | refuted |" in markdown(done)


@pytest.mark.parametrize(
    "changed", [{"outcome": Outcome.UNKNOWN}, {"outcome": Outcome.ALONE}, {"twins": ()}]
)
def test_a_proof_that_is_lost_without_a_counterexample_is_void(changed: dict[str, object]) -> None:
    done = review(RanTraces(), of_head(**changed))
    assert done.exit_code == VOID
    assert any("EC-1 of EncoderCacheManager was proved" in one for one in done.void_because)


def test_a_text_that_proofs_cannot_read_is_named_and_is_no_loss() -> None:
    proofs = of_head(outcome=Outcome.UNKNOWN, scope=UNREAD, note="line 3: match")
    assert proofs.lost == []
    assert proofs.unread == ("vllm@0.33.0: EncoderCacheManager: line 3: match",)


def test_a_proof_that_needs_another_promise_is_a_change_and_no_loss() -> None:
    proofs = of_head(scope="unbounded; an identifier fixes its size")
    (change,) = proofs.changes
    assert change.note == "of base: unbounded; of head: unbounded; an identifier fixes its size"
    assert proofs.gained == proofs.lost == []


def test_a_contract_that_is_proved_of_head_alone_is_gained() -> None:
    place = ROW.subject, ROW.contract
    proofs = weighed({place: replace(ROW, outcome=Outcome.REFUTED)}, {place: ROW})
    assert [one.contract for one in proofs.gained] == ["EC-1"]
    assert proofs.lost == []


# mended, or merely not met


@pytest.mark.parametrize(
    ("tally", "is_release", "is_mended"),
    [
        ({"base_alone": 1}, True, True),
        ({"base_alone": 1, "head": 1}, True, False),
        ({"base_alone": 9, "of_head": True}, True, False),
        ({"base_alone": 2, "of_head": True}, False, False),
        ({"base_alone": 3, "of_head": True}, False, True),
        ({"base_alone": 1, "of_head": True, "names": ["a-trace"]}, False, True),
    ],
)
def test_a_fault_that_was_merely_not_met_is_not_mended(
    tally: dict[str, Any], is_release: bool, is_mended: bool
) -> None:
    done = review(RanTraces())
    done.head = replace(done.head, is_release=is_release)
    done.tallies = [BreakTally("WM-1", "", "phantom-entry", **tally)]
    assert bool(done.mended) == is_mended
    assert bool(done.kept) != is_mended


def test_a_release_with_a_mend_is_not_that_release() -> None:
    """Else what the mend takes away counts as merely not met."""
    target = ReferenceTarget(Semantics.of_vllm("0.33.0"), release="0.33.0")
    assert reviewing.side_of(target).is_release
    target.mended = ("phantom-entry",)
    assert not reviewing.side_of(target).is_release


@pytest.mark.parametrize(
    ("tally", "code"),
    [
        ({"head": 1, "head_alone": 1}, UNLISTED),
        ({"head": 1, "head_alone": 0}, VOID),
        ({"base": 1, "head": 2, "head_alone": 1}, VOID),
        ({"head": 1, "head_alone": 1, "of_base": True}, VOID),
    ],
)
def test_what_head_alone_breaks_and_base_was_never_known_to_is_brought(
    tally: dict[str, Any], code: int
) -> None:
    done = review(RanTraces())
    done.tallies = [BreakTally("WM-1", "", None, **tally)]
    assert bool(done.brought) == (code == UNLISTED)
    assert done.exit_code == code


# what has one cause is told as one


def brought(contract: str, function: str = "", fault: str | None = None) -> BreakTally:
    """A break that head brought; its small trace goes wrong in that function, which was changed."""
    small = face(contract, [function], harm=by_id(contract).harm) if function else None
    return BreakTally(contract, "", fault, head=1, head_alone=1, small=small)


@pytest.mark.parametrize(
    ("tallies", "causes"),
    [
        ([brought("EC-6", "a"), brought("EC-13", "a")], [["EC-6", "EC-13"]]),
        ([brought("EC-6", "a"), brought("EC-13", "b")], [["EC-6"], ["EC-13"]]),
        ([brought("EC-8b", "a"), brought("EC-6", "a")], [["EC-6", "EC-8b"]]),
        ([brought("EC-6"), brought("EC-13")], [["EC-6"], ["EC-13"]]),
        ([brought("EC-6", "a", "it"), brought("EC-13", "a")], [["EC-6"], ["EC-13"]]),
        ([brought("EC-8b", "a", "it"), brought("LV-1", "b", "it")], [["LV-1", "EC-8b"]]),
        ([brought("EC-6", "a", "it"), brought("EC-6a", "a", "that")], [["EC-6"], ["EC-6a"]]),
    ],
)
def test_breaks_are_told_by_listed_fault_or_by_cause(
    tallies: list[BreakTally], causes: list[list[str]]
) -> None:
    told = told_together(tallies)
    assert [[tally.contract for tally in one.tallies] for one in told] == causes


def test_a_page_has_one_fault_with_its_other_faces_and_counts_it_once() -> None:
    done = review(RanTraces(pairs=[], planted={}))
    done.tallies = [brought("EC-13", "a"), brought("EC-6", "a"), brought("EC-12", "b")]
    page = markdown(done)
    assert page.count("<summary>Brought: ") == 2
    assert "Brought: EC-13 (safety; not listed), on 1 trace that base keeps; 1 other face<" in page
    assert "decided by a, which reads otherwise than in the nearest release" in page
    assert "Who needs a resident entry holds it</code>, on 1 trace that base keeps" in page
    assert "Who needs a resident entry holds it</code> (2 of 2 runs identical; base" in page
    assert "- brings: EC-13 and 1 other face (not listed), EC-12 (not listed)" in page
    assert [one["brought"] for one in done.to_json()["causes"]] == [[0, 1], [2]]
    assert done.exit_code == UNLISTED


def test_a_table_has_a_row_for_each_listed_fault() -> None:
    done = review(RanTraces())
    done.tallies = [
        BreakTally("ED-1", "", "decoder-budget", base=3, head=3),
        BreakTally("ED-2", "", "decoder-budget", base=9, head=9),
        BreakTally("EC-8b", "", "idle-eviction", base=1, head=1),
    ]
    rows = re.findall(r"^\| (\S+) \| ([-\w, ]+) \| (\d+) \|", markdown(done), re.MULTILINE)
    assert rows == [("decoder-budget", "ED-2, ED-1", "9"), ("idle-eviction", "EC-8b", "1")]


# nothing of a trace is markup


@pytest.mark.parametrize("text", [HOSTILE, "`" * 5, "a\u202eb", "| a | b |"])
def test_words_of_strangers_are_text_in_a_paragraph_and_in_a_table(text: str) -> None:
    reader = MarkdownIt("gfm-like", {"html": True, "linkify": False})
    for line in (f"- {code(text)}", f"| h |\n|---|\n| {code(text)} |"):
        (inline, *_) = (
            one for one in reader.parse(line) if one.type == "inline" and one.content != "h"
        )
        kinds = {one.type for one in inline.children or ()}
        assert kinds <= {"html_inline", "text", "text_special", "softbreak"}, kinds
        tags = [one.content for one in inline.children or () if one.type == "html_inline"]
        assert tags == ["<code>", "</code>"]


def test_an_address_or_a_name_of_strangers_is_no_link() -> None:
    shown = re.sub(r"&#\d+;", "", code(HOSTILE))
    assert [one for one in ("://", "www.", "@", "#") if one in shown] == []
    assert "http" in shown


def test_a_trace_stays_within_its_block_of_code() -> None:
    lines = block(["config = 1", "````", "</details>", "x" * (LINE_MAX + 1)])
    (fence,) = MarkdownIt().parse("\n".join(lines))
    assert fence.type == "fence"
    assert "</details>" in fence.content
    assert fence.content.endswith("x [...]\n")


# an interruption


@pytest.mark.parametrize(
    ("ran", "proofs"),
    [(RanTraces(interrupted=True), ProofReview()), (RanTraces(), ProofReview(is_interrupted=True))],
)
def test_an_interrupted_review_is_a_page_that_says_so(ran: RanTraces, proofs: ProofReview) -> None:
    done = review(ran, proofs)
    assert done.exit_code == INTERRUPTED
    assert "interrupted" in markdown(done)
    assert done.to_json()["interrupted"] is True
    assert review(RanTraces()).to_json()["interrupted"] is False


def test_proofs_that_were_not_compared_are_not_counted() -> None:
    unread = markdown(
        review(RanTraces(interrupted=True), proofs=ProofReview(unread=("interrupted",)))
    )
    assert "- proofs: none was compared" in unread
    assert "\n\nNone was compared.\n\n" in unread
    alike = markdown(review(RanTraces()))
    assert "- proofs: 0 gained, 0 lost" in alike
    assert "read alike" in alike


def test_nothing_is_proved_after_an_interruption(monkeypatch: pytest.MonkeyPatch) -> None:
    def proves(*_: object) -> ProofReview:
        raise KeyboardInterrupt

    monkeypatch.setattr(reviewing, "review_proofs", proves)
    asked = CommandOutput(None), OLD, NEW, Workplace()
    assert not reviewing._proofs(*asked, RanTraces(interrupted=True)).is_interrupted
    assert reviewing._proofs(*asked, RanTraces()).is_interrupted
