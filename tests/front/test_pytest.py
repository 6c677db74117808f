"""The pytest plug-in, on tests of managers of a package that is called vllm."""

import sys
from pathlib import Path

import pytest

from cacheproof.spec.registry import by_id

pytest_plugins = ["pytester"]

MANAGERS = """
from cacheproof.reference.encoder_cache import EncoderCacheManager as Right
from cacheproof.reference.encoder_decoder_cache import EncoderDecoderCacheManager as DecoderRight

class EncoderCacheManager(Right):
    pass

class EncoderDecoderCacheManager(DecoderRight):
    pass
"""
KV_CACHES = """
from cacheproof.reference.kv_cache_manager import KVCacheManager as Right

class KVCacheManager(Right):
    pass
"""
KV_FAULT = """
    def free(self, request):
        self.coordinator.single_type_managers[0].req_to_blocks[request.request_id].pop()
        super().free(request)
"""
"""The last block of a request that is freed stays held by nobody."""
KV_TESTS = """
import pytest
from cacheproof.reference.kv_cache_specs import FullAttentionSpec, KVCacheConfig, KVCacheGroupSpec
from cacheproof.reference.scheduled_request import ScheduledRequest

def test_free():
    from vllm.v1.core.kv_cache_manager import KVCacheManager
    caches = KVCacheConfig(9, (KVCacheGroupSpec(FullAttentionSpec(4)),))
    manager = KVCacheManager(caches, 64, 4, 4, enable_caching=False)
    request = ScheduledRequest("a", [*range(6)], [])
    assert manager.allocate_slots(request, 6)
    manager.free(request)
"""
FAULT = """
    def free_encoder_input(self, request, input_id):
        super().free_encoder_input(request, input_id)
        self.cached[request.mm_features[input_id].identifier].discard("a")
"""
"""Another request's release takes the reference of request a."""
TESTS = """
import pytest
from cacheproof.differential.targets.host.managers.manager import ManagerRequest

def both(manager):
    one, other = ManagerRequest("a", ["x"], [4]), ManagerRequest("b", ["x"], [4])
    manager.allocate(one, 0)
    assert manager.check_and_update_cache(other, 0)
    manager.free_encoder_input(other, 0)

def make(kind="EncoderCacheManager"):
    import vllm.v1.core.encoder_cache_manager as module
    return getattr(module, kind)(10)
"""
SHARED = f"""{TESTS}
def test_shared():
    both(make())
"""
MISUSED = f"""{TESTS}
def test_too_large():
    with pytest.raises(AssertionError):
        make().allocate(ManagerRequest("a", ["x"], [11]), 0)
"""
ON = ("-p", "cacheproof.pytest", "--cacheproof")
XDIST = "xdist"


@pytest.fixture
def suite(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch):
    """Runs tests beside a package vllm whose manager has a fault, or none."""

    def run(tests: str, *options: str, fault: str = "", apart: bool = False) -> pytest.RunResult:
        core = pytester.path / "vllm" / "v1" / "core"
        core.mkdir(parents=True)
        for folder in (core, core.parent, core.parent.parent):
            (folder / "__init__.py").touch()
        modules = {"encoder_cache_manager": MANAGERS, "kv_cache_manager": KV_CACHES}
        for name, text in modules.items():
            text = text.replace("    pass\n", f"    pass\n{fault}", 1)
            (core / f"{name}.py").write_text(text)
        monkeypatch.syspath_prepend(str(pytester.path))
        monkeypatch.setenv("PYTHONPATH", ":".join(sys.path))
        pytester.makepyfile(test_manager=tests)
        start = pytester.runpytest_subprocess if apart else pytester.runpytest_inprocess
        return start("--import-mode=importlib", *options)

    return run


def test_a_test_that_passes_fails_under_which_a_contract_is_broken(suite) -> None:
    result = suite(SHARED, *ON, fault=FAULT)
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(
        [
            "EC-2, EC-4, EC-6a broken by EncoderCacheManager, called by test_manager.both, line *",
            f"  EC-6a: {by_id('EC-6a').title}",
            "    release(b, 0: x of 4)",
            "BROKEN EC-6a 1 times: *",
            "  EC-6a in test_manager.py::test_shared",
        ]
    )


def test_without_the_fault_it_passes_and_the_summary_says_what_was_judged(suite) -> None:
    result = suite(SHARED, *ON)
    result.assert_outcomes(passed=1)
    result.stdout.fnmatch_lines(
        [
            "1 managers (1 encoder_cache), 3 calls judged",
            "encoder_cache: spoke *EC-6a 3, *",
            "encoder_cache: never spoke *EC-7, *",
            "encoder_cache: cannot speak of calls alone CP-2, *",
            "encoder_decoder: spoke none",
        ]
    )
    result.stdout.no_fnmatch_line("*BROKEN*")


def test_a_kv_cache_manager_is_held_to_its_contracts(suite) -> None:
    result = suite(KV_TESTS, *ON, fault=KV_FAULT)
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(
        [
            "*BP-3 broken by KVCacheManager, called by test_manager.test_free, line *",
            "    free(a of 6 tokens)",
            "1 KV caches (1 kv_cache), 2 calls judged",
            "0 schedulers (none), 0 calls judged",
        ]
    )


def test_a_right_kv_cache_manager_breaks_none(suite) -> None:
    result = suite(KV_TESTS, *ON)
    result.assert_outcomes(passed=1)
    result.stdout.fnmatch_lines(["kv_cache: spoke *BP-3 2, *", "kv_cache: never spoke *KV-1, *"])


def test_without_the_flag_nothing_is_done(suite) -> None:
    tests = SHARED + "    assert not hasattr(type(make()).free, '__wrapped__')\n"
    result = suite(tests, "-p", "cacheproof.pytest", fault=FAULT)
    result.assert_outcomes(passed=1)
    result.stdout.no_fnmatch_line("*cacheproof*")


def test_a_test_that_fails_anyway_says_what_was_broken(suite) -> None:
    result = suite(SHARED + "    assert 1 == 2\n", *ON, fault=FAULT)
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(
        ["E *assert 1 == 2", "*- cacheproof -*", "EC-2, EC-4, EC-6a broken by *"]
    )


def test_an_expected_failure_does_not_hide_a_break(suite) -> None:
    tests = SHARED.replace("def test_", "@pytest.mark.xfail\ndef test_") + "    assert 1 == 2\n"
    suite(tests, *ON, fault=FAULT).assert_outcomes(failed=1)


def test_a_skip_does_not_hide_a_break(suite) -> None:
    suite(SHARED + "    pytest.skip()\n", *ON, fault=FAULT).assert_outcomes(failed=1)


def test_a_break_in_a_fixture_is_an_error_of_its_test(suite) -> None:
    tests = SHARED.replace("def test_shared()", "@pytest.fixture\ndef made()")
    suite(tests + "\ndef test_nothing(made):\n    pass\n", *ON, fault=FAULT).assert_outcomes(
        errors=1
    )


def test_a_break_outside_of_tests_fails_the_run(suite) -> None:
    result = suite(f"{TESTS}\nboth(make())\ndef test_nothing():\n    pass\n", *ON, fault=FAULT)
    result.assert_outcomes(passed=1)
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    result.stdout.fnmatch_lines(["  EC-6a in outside of tests"])


def test_a_broken_promise_of_the_caller_is_noted(suite) -> None:
    result = suite(MISUSED, *ON)
    result.assert_outcomes(passed=1)
    result.stdout.fnmatch_lines(
        [
            "1 objects were left alone after what no engine does:",
            f"  CP-1, 1 times: promise of the caller: {by_id('CP-1').title}",
            "  CP-1 in test_manager.py::test_too_large by test_manager.test_too_large, line *",
        ]
    )


def test_a_broken_promise_fails_where_that_is_asked_for(suite) -> None:
    result = suite(MISUSED, "-p", "cacheproof.pytest", "--cacheproof-strict")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["CP-1 broken by test_manager.test_too_large, line *"])


def test_a_class_that_a_test_derives_is_held_to_the_contracts(suite) -> None:
    tests = f"""{TESTS}
def test_derived():
    class Derived(type(make())):{FAULT.replace(chr(10), chr(10) + "    ")}
    both(Derived(10))
"""
    result = suite(tests, *ON)
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["EC-2, EC-4, EC-6a broken by Derived, *"])


def test_a_manager_of_encoder_decoders_is_held_to_its_own(suite) -> None:
    tests = f"""{TESTS}
def test_decoder():
    manager, request = make("EncoderDecoderCacheManager"), ManagerRequest("a", ["x"], [4])
    manager.allocate(request, 0)
    manager.num_free_slots += 0
    manager.free(request)
"""
    result = suite(tests, *ON)
    result.assert_outcomes(passed=1)
    result.stdout.fnmatch_lines(["encoder_decoder: spoke *CP-6 1*"])


def test_the_contracts_of_an_older_release_can_be_asked_for(suite) -> None:
    result = suite(SHARED, *ON, "--cacheproof-release", "0.10.1")
    result.stdout.fnmatch_lines(["*contracts of vLLM 0.10.1 *"])
    result.stdout.no_fnmatch_line("*EC-6a*")


def test_what_is_no_release_is_refused(suite) -> None:
    result = suite(SHARED, *ON, "--cacheproof-release", "newest")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    assert result.stderr.lines == [
        "ERROR: --cacheproof-release: 'newest' is not a release number such as 0.33.0",
        "",
    ]


@pytest.mark.full
def test_counts_of_parallel_workers_are_added_up(suite) -> None:
    tests = SHARED.replace("def test_", "@pytest.mark.parametrize('n', range(4))\ndef test_")
    tests = tests.replace("test_shared()", "test_shared(n)")
    result = suite(tests, *ON, "-p", XDIST, "-n", "2", fault=FAULT, apart=True)
    result.assert_outcomes(failed=4)
    result.stdout.fnmatch_lines(
        ["4 managers (4 encoder_cache), 12 calls judged", "BROKEN EC-6a 4 times: *"]
    )


NOTHING = f"{TESTS}\ndef test_nothing():\n    pass\n"
VOID = "FAILED: nothing was judged: no test called a manager, block pool or scheduler of vLLM; *"


def test_a_run_that_judged_nothing_fails(suite) -> None:
    result = suite(NOTHING, *ON)
    result.assert_outcomes(passed=1)
    result.stdout.fnmatch_lines([VOID])
    assert result.ret == pytest.ExitCode.TESTS_FAILED


def test_a_run_that_judged_something_passes(suite) -> None:
    result = suite(f"{NOTHING}\n{SHARED}", *ON)
    result.assert_outcomes(passed=2)
    result.stdout.no_fnmatch_line("*nothing was judged*")
    assert result.ret == pytest.ExitCode.OK


def test_a_selection_that_judged_nothing_fails_though_other_tests_would(suite) -> None:
    result = suite(f"{NOTHING}\n{SHARED}", *ON, "-k", "nothing")
    result.assert_outcomes(passed=1, deselected=1)
    assert result.ret == pytest.ExitCode.TESTS_FAILED


@pytest.mark.parametrize(
    "told", [["--cacheproof-allow-nothing"], ["-o", "cacheproof_allow_nothing=1"]]
)
def test_a_run_may_judge_nothing_where_that_is_allowed(suite, told: list[str]) -> None:
    result = suite(NOTHING, *ON, *told)
    result.stdout.fnmatch_lines(["nothing was judged: *"])
    assert result.ret == pytest.ExitCode.OK


def test_a_run_whose_tests_are_all_skipped_fails(suite) -> None:
    result = suite(NOTHING.replace("pass\n", "pytest.skip()\n"), *ON)
    result.assert_outcomes(skipped=1)
    assert result.ret == pytest.ExitCode.TESTS_FAILED


def test_where_there_is_no_vllm_the_run_says_so(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(test_manager="def test_nothing():\n    pass\n")
    result = pytester.runpytest_inprocess(*ON)
    result.stdout.fnmatch_lines([f"FAILED: nothing was judged: {sys.executable} has no vllm *"])
    assert result.ret == pytest.ExitCode.TESTS_FAILED


@pytest.mark.sample(3)
@pytest.mark.parametrize("option", ["--collect-only", "--setup-only", "--fixtures"])
def test_where_no_test_is_run_nothing_need_be_judged(suite, option: str) -> None:
    assert suite(NOTHING, *ON, option).ret == pytest.ExitCode.OK


@pytest.mark.full
def test_tests_that_cannot_be_collected_stay_the_error(suite) -> None:
    assert suite("import gone\n", *ON).ret == pytest.ExitCode.INTERRUPTED


@pytest.mark.full
def test_no_tests_at_all_stay_what_pytest_says_of_them(suite) -> None:
    assert suite(TESTS, *ON).ret == pytest.ExitCode.NO_TESTS_COLLECTED


def test_one_worker_that_judged_something_is_enough(suite) -> None:
    tests = NOTHING.replace("test_nothing():", "test_nothing(n):")
    tests = tests.replace("def test_", "@pytest.mark.parametrize('n', range(3))\ndef test_")
    result = suite(tests + SHARED, *ON, "-p", XDIST, "-n", "2", apart=True)
    result.assert_outcomes(passed=4)
    assert result.ret == pytest.ExitCode.OK


@pytest.mark.full
def test_workers_that_all_judged_nothing_fail_the_run(suite) -> None:
    result = suite(NOTHING, *ON, "-p", XDIST, "-n", "2", apart=True)
    result.stdout.fnmatch_lines([VOID])
    assert result.ret == pytest.ExitCode.TESTS_FAILED


def test_the_module_is_pytests_namesake_and_imports_the_real_one() -> None:
    import cacheproof.pytest as plug_in

    assert plug_in.pytest is pytest
    assert Path(plug_in.__file__).name == "pytest.py"
