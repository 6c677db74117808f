"""The reference from Python: a request, a step, the contracts on it, and one that is broken."""

import cacheproof.spec.encoder_cache  # noqa: F401  (registers its contracts)
from cacheproof.reference.encoder_cache import EncoderCacheManager
from cacheproof.reference.request import MultiModalFeature, PlaceholderRange, Request, end_of
from cacheproof.reference.semantics import Semantics
from cacheproof.spec.ghost import Ghost
from cacheproof.spec.records import EncoderCacheState
from cacheproof.spec.registry import contracts

cats = [MultiModalFeature.of("cat", PlaceholderRange(offset, length=4)) for offset in (0, 4)]
request = Request("r1", num_prompt_tokens=10, mm_features=cats)  # shows one picture twice

for name, semantics in {
    "the ideal": Semantics.ideal(),
    "vLLM 0.28.0": Semantics.of_vllm("0.28.0"),
}.items():
    manager, ghost = EncoderCacheManager(8, semantics.encoder_cache), Ghost()
    for number, item in enumerate(cats):  # a step that schedules all 10 tokens
        if not manager.check_and_update_cache(request, number):
            assert manager.can_allocate(request, number, 8, 0)
            manager.allocate(request, number)
            ghost.encode("r1", number, "cat", size=4)
        ghost.claim("r1", "cat", end=end_of(item))
    manager.free_encoder_input(request, 0)  # progress is confirmed up to token 4
    ghost.consume("r1", progress=4)

    state = EncoderCacheState(
        capacity=manager.cache_size,
        free_slots=manager.num_free_slots,
        freeable_slots=manager.num_freeable_slots,
        size=manager.num_embeds_by_hash,
        holders=manager.cached,
        queue=manager.freeable,
        notices=tuple(manager.freed),
    )
    rules = [rule for rule in contracts("encoder_cache") if rule.kind == "state"]
    print(f"as {name}: {len(rules)} contracts of states judged")
    for rule in rules:
        values = {parameter: {"s": state, "g": ghost}[parameter] for parameter in rule.parameters}
        if not rule.predicate(**values):
            print(f"  {rule.id}: {rule.title}\n  {rule.explain(**values)}")
