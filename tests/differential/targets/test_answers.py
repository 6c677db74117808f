"""What a method of a manager or of the pool answers is judged: a wrong answer breaks a contract, by
contracts alone. What nobody asks is named; so are changes that contracts were silent about."""

import ast
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from cacheproof.differential.judges.examination import examine
from cacheproof.differential.lanes.all_lanes import LANES
from cacheproof.differential.provision import releases
from cacheproof.differential.targets.changed import ChangedText, ChangingHost, decoded
from cacheproof.differential.targets.host import session
from cacheproof.differential.texts.edits import Edit, edited
from cacheproof.differential.traces.trace import Trace
from cacheproof.reference.releases import NEWEST

CORE = "vllm/v1/core"
MANAGERS = f"{CORE}/encoder_cache_manager.py"
POOL = f"{CORE}/block_pool.py"
KV = f"{CORE}/kv_cache_manager.py"
CLASSES = {
    MANAGERS: ("EncoderCacheManager", "EncoderDecoderCacheManager"),
    POOL: ("BlockHashToBlockMap", "BlockPool"),
    KV: ("KVCacheBlocks", "KVCacheManager"),
}
CACHE, DECODER, KV_CACHE = "encoder cache", "encoder-decoder", "KV cache"
SCHEDULER, LOADS = "scheduler", "scheduler with KV loads"
SEEDS = 40
WRONG = {
    "EncoderCacheManager.can_allocate": ("not {}", CACHE, "EC-12"),
    "EncoderCacheManager.check_and_update_cache": ("not {}", CACHE, "EC-16"),
    "EncoderCacheManager.get_cached_input_ids": ("set(sorted({})[1:])", CACHE, "EC-18"),
    "EncoderCacheManager.get_cached_num_encoder_embeds": ("{} or 0", CACHE, "EC-17"),
    "EncoderCacheManager.get_freed_mm_hashes": ("({})[1:]", CACHE, "EC-9"),
    "EncoderDecoderCacheManager.can_allocate": ("not {}", DECODER, "ED-6"),
    "EncoderDecoderCacheManager.get_cached_input_ids": ("set(sorted({})[1:])", DECODER, "ED-7"),
    "EncoderDecoderCacheManager.get_freed_mm_hashes": ("({})[1:]", DECODER, "ED-3"),
    "BlockHashToBlockMap.contain": ("not {}", KV_CACHE, "KV-11"),
    "BlockHashToBlockMap.get_one_block": ("None", KV_CACHE, "KV-9"),
    "BlockHashToBlockMap.pop": ("None", KV_CACHE, "BP-4"),
    "BlockPool.get_cached_block": ("None", KV_CACHE, "KV-9"),
    "BlockPool.get_new_blocks": ("({})[:-1]", KV_CACHE, "BP-3"),
    "BlockPool.get_num_free_blocks": ("({}) + 1", KV_CACHE, "BP-1"),
    "BlockPool.get_usage": ("({}) / 2", KV_CACHE, "KV-13"),
    "BlockPool.reset_prefix_cache": ("not {}", KV_CACHE, "BP-8"),
    "BlockPool.take_events": ("({})[1:]", KV_CACHE, "BP-4"),
    "KVCacheBlocks.get_block_ids": ("tuple(one[1:] for one in {} or ())", KV_CACHE, "KV-2"),
    "KVCacheManager.allocate_slots": ("None", KV_CACHE, "KV-7"),
    "KVCacheManager.create_kv_cache_blocks": ("self.empty_kv_cache_blocks", KV_CACHE, "KV-2"),
    "KVCacheManager.get_block_ids": ("tuple(one[1:] for one in {})", LOADS, "KT-4"),
    "KVCacheManager.get_block_ids_for_computed_tokens": (
        "tuple(one[1:] for one in {})",
        LOADS,
        "KT-4",
    ),
    "KVCacheManager.get_blocks": ("self.empty_kv_cache_blocks", SCHEDULER, "SC-17"),
    "KVCacheManager.get_computed_blocks": (
        "({0}[0], max(0, {0}[1] - 1), {0}[2])",
        KV_CACHE,
        "KV-9",
    ),
    "KVCacheManager.get_num_common_prefix_blocks": (
        "[one + 1 for one in {}]",
        KV_CACHE,
        "KV-10",
    ),
    "KVCacheManager.make_prefix_cache_stats": ("None", KV_CACHE, "KV-13"),
    "KVCacheManager.pop_blocks_for_free": ("({})[1:]", KV_CACHE, "BP-3"),
    "KVCacheManager.prefix_cache_lookup_enabled": ("not {}", KV_CACHE, "KV-9"),
    "KVCacheManager.reset_prefix_cache": ("not {}", KV_CACHE, "BP-8"),
    "KVCacheManager.take_events": ("({})[1:]", KV_CACHE, "BP-4"),
    "KVCacheManager.usage": ("({}) / 2", KV_CACHE, "KV-13"),
}
"""Method -> a wrong answer made of the right one, the lane that shows it, and what it breaks."""
UNASKED = {
    "EncoderDecoderCacheManager.check_and_update_cache": "schedulers look up no decoder's item",
    "BlockPool.is_block_writable": "Mamba",
    "KVCacheBlocks.get_unhashed_block_ids": "connectors of another kind",
    "KVCacheBlocks.get_unhashed_block_ids_all_groups": "connectors of another kind",
    "KVCacheBlocks.new_empty": "connectors of another kind",
    "KVCacheManager.finalize_partial_tail_offloads": "Mamba",
    "KVCacheManager.get_computed_blocks_for_connector": "several groups beside a connector",
    "KVCacheManager.truncate_computed_blocks": "several groups beside a connector",
}
"""Method -> who asks it; no trace does."""
UNREAD = {
    "EncoderCacheManager.create_manager": "a manager, which is judged as a whole",
    "EncoderCacheManager.get_manager_metadata": "nothing, of this class",
    "BlockPool.cache_partial_block": "nothing, without Mamba",
    "KVCacheManager.estimate_cached_tokens": "a statistic",
    "KVCacheManager.take_boundary_state_offloads": "nothing, without Mamba",
    "KVCacheManager.take_kv_cache_block_copies": "nothing, without Mamba",
    "KVCacheManager.take_new_block_ids": "blocks that workers zero",
}
"""Method -> what it answers that no decision hangs on."""
EC_CPU = "vllm/distributed/ec_transfer/ec_connector/cpu/scheduler/__init__.py"
ONCE_SILENT = {
    "an adapter's path is left out of block keys": (
        Edit(
            f"{CORE}/kv_cache_utils.py",
            "_gen_lora_extra_hash_keys",
            "return [('lora', lora_request.lora_name, lora_request.lora_path)]",
            instead='return [("lora", lora_request.lora_name)]',
        ),
        ("block keys", range(40), "BK-1"),
    ),
    "what is still being saved is promised": (
        Edit(
            EC_CPU,
            "ECCPUScheduler.has_cache_item",
            "entry is not None and entry.ready",
            instead="entry is not None",
        ),
        ("connectors in memory", range(20), "EX-1"),
    ),
    "a load counts as done when the first rank says so": (
        Edit(
            EC_CPU,
            "ECCPUScheduler.__init__",
            "pc.tensor_parallel_size * pc.prefill_context_parallel_size",
            instead="1",
        ),
        ("connectors in memory", range(13, 14), "EX-2"),
    ),
    "a chunk that begins at an item may split it": (
        Edit(
            f"{CORE}/sched/scheduler.py",
            "Scheduler._try_schedule_encoder_inputs",
            "num_computed_tokens <= start_pos",
            instead="num_computed_tokens < start_pos",
        ),
        (SCHEDULER, range(183, 184), "SC-4"),
    ),
    "stale output is added to": (
        Edit(
            f"{CORE}/sched/scheduler.py",
            "Scheduler._preempt_request",
            "request.num_stale_output_tokens = request.num_in_flight_tokens",
            instead="request.num_stale_output_tokens += request.num_in_flight_tokens",
        ),
        ("scheduler with loads", range(94, 95), "SC-8"),
    ),
}
RELEASE = releases.install(NEWEST, report=print)


@pytest.fixture(scope="module")
def host() -> Iterator[ChangingHost]:
    started = ChangingHost(RELEASE)
    assert started.hello
    yield started
    started.close()


def methods(path: str) -> Iterator[tuple[str, ast.FunctionDef]]:
    """The public methods of a module that answer something; of overloads the last one."""
    found = {}
    for node in ast.parse((RELEASE.tree / path).read_text()).body:
        if isinstance(node, ast.ClassDef) and node.name in CLASSES[path]:
            for one in node.body:
                if isinstance(one, ast.FunctionDef) and not one.name.startswith("_"):
                    found[f"{node.name}.{one.name}"] = one
    for name, one in found.items():
        if one.returns is not None and ast.unparse(one.returns) != "None":
            yield name, one


def answering(method: str, wrong: str) -> ChangedText:
    """A text in which a method gives a wrong answer, made of the right one."""
    path = next(one for one in CLASSES if method.partition(".")[0] in CLASSES[one])
    node = dict(methods(path))[method]

    class Wrong(ast.NodeTransformer):
        def visit_Return(self, told: ast.Return) -> ast.Return:
            right = "None" if told.value is None else f"({ast.unparse(told.value)})"
            return ast.Return(ast.parse(wrong.format(right), mode="eval").body)

    lines = (RELEASE.tree / path).read_text().splitlines()
    node.decorator_list, first, last = [], node.lineno, node.end_lineno
    text = ast.unparse(ast.fix_missing_locations(Wrong().visit(node)))
    lines[first - 1 : last] = [" " * node.col_offset + line for line in text.splitlines()]
    return ChangedText(path, method, "\n".join(lines) + "\n")


def broken(
    host: ChangingHost, changed: ChangedText, lane: str, seeds: range, contract: str
) -> bool:
    """Whether a change breaks a contract that the release itself keeps until then, on a trace of
    these."""
    for first in range(seeds.start, seeds.stop, 10):
        some = range(first, min(first + 10, seeds.stop))
        traces = [LANES[lane].trace(seed, NEWEST) for seed in some]
        own, others = host.written(traces), written(host, changed, traces)
        for trace, *both in zip(traces, own, others, strict=True):
            before, after = (examine(trace, decoded(one), host).violations for one in both)
            kept_until = before[contract].event if contract in before else len(trace.events)
            if contract in after and after[contract].event < kept_until:
                return True
    return False


def written(host: ChangingHost, changed: ChangedText, traces: list[Trace]) -> list[bytes]:
    """The results of traces under a change."""
    host.change(changed)
    try:
        return host.written(traces)
    finally:
        host.restore()


@pytest.mark.sample(6)
@pytest.mark.parametrize("method", WRONG)
def test_a_wrong_answer_breaks_a_contract(host: ChangingHost, method: str) -> None:
    wrong, lane, contract = WRONG[method]
    assert broken(host, answering(method, wrong), lane, range(SEEDS), contract)


@pytest.mark.full
@pytest.mark.parametrize("method", UNASKED)
def test_nobody_asks_for_the_others(host: ChangingHost, method: str) -> None:
    changed = answering(method, "1 // 0")
    for lane in (CACHE, DECODER, KV_CACHE, "KV cache beside a drafter", SCHEDULER, LOADS):
        traces = [LANES[lane].trace(seed, NEWEST) for seed in range(SEEDS)]
        own = host.written(traces)
        assert written(host, changed, traces) == own


def test_every_answer_is_named() -> None:
    found = {name for path in CLASSES for name, _ in methods(path)}
    assert found == {*WRONG, *UNASKED, *UNREAD}
    assert len(found) == len(WRONG) + len(UNASKED) + len(UNREAD)


@pytest.mark.sample(2)
@pytest.mark.parametrize("words", ONCE_SILENT)
def test_contracts_alone_see_what_they_were_silent_about(host: ChangingHost, words: str) -> None:
    edit, (lane, seeds, contract) = ONCE_SILENT[words]
    text = edited((RELEASE.tree / edit.path).read_text(), edit)
    assert broken(host, ChangedText(edit.path, edit.function, text), lane, seeds, contract)


def test_what_is_raised_while_a_request_is_made_breaks_a_contract(host: ChangingHost) -> None:
    path, function = "vllm/v1/request.py", "Request.__init__"
    unset = Edit(
        path,
        function,
        "self.num_output_placeholders = 0",
        instead="self.num_output_placeholders = self.num_output_placeholders",
    )
    text = edited((RELEASE.tree / path).read_text(), unset)
    assert broken(host, ChangedText(path, function, text), SCHEDULER, range(1), "SC-8")


@pytest.mark.parametrize(
    ("edit", "lane", "contract"),
    [
        (
            Edit(
                "vllm/multimodal/encoder_budget.py",
                "MultiModalBudget._get_max_items",
                "(encoder_budget := self.get_encoder_budget()) == 0",
                instead="self.get_encoder_budget()[0]",
            ),
            SCHEDULER,
            "SC-8",
        ),
        (
            Edit(
                "vllm/v1/core/kv_cache_utils.py",
                "get_request_block_hasher",
                "return request_block_hasher",
                instead="return request_block_hasher[0]",
            ),
            "block keys",
            "BK-5",
        ),
    ],
    ids=["a scheduler", "a hasher"],
)
def test_what_is_raised_while_something_is_made_breaks_a_contract(
    host: ChangingHost, edit: Edit, lane: str, contract: str
) -> None:
    text = edited((RELEASE.tree / edit.path).read_text(), edit)
    assert broken(host, ChangedText(edit.path, edit.function, text), lane, range(1), contract)


DRIVER = {module.parent for module in Path(session.__file__).parent.rglob("*.py")}
"""The folders of what runs in a host."""


@pytest.mark.parametrize(
    ("file", "text", "is_of_release"),
    [
        ("vllm/v1/request.py", "request.absent", True),
        ("vllm/v1/request.py", "request(1)", True),
        ("vllm/v1/request.py", "stand_in.absent", False),
        *((str(folder / "any.py"), "request(1)", False) for folder in sorted(DRIVER)),
    ],
)
def test_a_driver_that_does_not_know_a_release_is_told_apart(
    file: str, text: str, is_of_release: bool
) -> None:
    names = {"request": object(), "stand_in": SimpleNamespace()}
    with pytest.raises((AttributeError, TypeError)) as caught:
        exec(compile(text, file, "exec"), names)
    assert session.is_raised_by_release(caught.value) == is_of_release
