"""The reference from Python: a request, a step, the contracts on it, and one that is broken."""

from cacheproof.reference.encoder_cache import EncoderCacheManager
from cacheproof.reference.monitor import EncoderCacheMonitor
from cacheproof.reference.request import MultiModalFeature, PlaceholderRange, Request
from cacheproof.reference.semantics import Semantics

cats = [MultiModalFeature.of("cat", PlaceholderRange(offset, length=4)) for offset in (0, 4)]
request = Request("r1", num_prompt_tokens=10, mm_features=cats)  # shows one picture twice

for semantics in (Semantics.ideal(), Semantics.of_vllm("0.28.0")):
    monitor = EncoderCacheMonitor(EncoderCacheManager(8, semantics.encoder_cache))
    assert all(monitor.schedule(request, item, budget=8) for item in (0, 1))  # all 10 tokens
    monitor.confirm(request, progress=4)
    broken = [f"{rule.id}: {rule.title}\n  {why}" for rule, why in monitor.broken()]
    print("\n".join(broken) or "every contract of states holds")
