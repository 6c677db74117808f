"""The translator's kill matrix: what is not noticed is argued, and nothing else is."""

from cacheproof.proofs.conformance.undone import MODULES, undone

CHANGES = [one for module in MODULES for one in undone(module)]
KEY, OTHER = CHANGES[0].key, CHANGES[1].key


def test_every_change_of_the_translator_is_noticed_or_argued(script):
    results, arguments = script.read_results(), script.read_arguments()
    assert script.problems(results, arguments, CHANGES) == [], f"run {script.COMMAND}"


def test_the_page_is_what_was_found(script):
    results, arguments = script.read_results(), script.read_arguments()
    assert script.PAGE.read_text() == script.page(results, arguments, CHANGES)


def test_what_is_not_so_is_a_problem(script):
    two = CHANGES[:2]
    results = {
        KEY: script.Result(KEY, "", 3),
        OTHER: script.Result(OTHER, "some claim", 1),
    }
    assert script.problems(results, {KEY: "equivalent"}, two) == []
    assert script.problems(results, {}, two) == [f"not noticed, and not argued: {KEY}"]
    assert script.problems(results, {KEY: "a", OTHER: "b"}, two) == [
        f"argued, and noticed by some claim: {OTHER}"
    ]
    assert script.problems(results, {KEY: "a", "gone": "b"}, two) == ["argued, and not there: gone"]
    assert script.problems({KEY: results[KEY]}, {KEY: "a"}, two) == [f"not run: {OTHER}"]
