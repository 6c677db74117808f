"""How often each rare state was met: a search that never met one says nothing about it."""

from collections import Counter
from itertools import combinations_with_replacement

RARE_STATES = {
    "full": "no free slot is left",
    "item as large as the cache": "an item of exactly the capacity is encoded",
    "eviction": "an admission evicts",
    "several evictions at once": "one admission evicts two entries or more",
    "evicted and encoded again in one step": "the trigger of stale notices",
    "rescue": "a hit on an idle entry",
    "shared": "two requests need one entry",
    "repeated item": "one request claims the same identifier at two places",
    "first occurrence consumed, later one pending": "the trigger of early release",
    "duplicate within one walk": "the same identifier twice in one window",
    "admitted beside pending items": "an admission that counts earlier ones of its walk",
    "pending items fill the cache": "an item that fits alone but not beside its walk's others",
    "refused by budget": "the compute budget is spent",
    "refused by space": "the cache is held by others",
    "sparse item": "an item whose mask leaves tokens without embeddings is encoded",
    "no embeddings in the window": "an admitted item that the window does not read yet",
    "abort inside an item": "a request ends between an item's first and last token",
    "preemption inside an item": "a request is preempted there",
    "stalled after a claim": "a waiting request has claimed what it hit and is not scheduled",
    "whole item that does not fit": "a request stands at an item that the step can not hold whole",
    "encoded anew after an eviction": "an entry that an earlier step evicted is encoded again",
    "stopped before an item": "a chunk ends where an item begins that the cache has refused",
    "rolled back before an item": "a chunk ends before an item that it cannot compute whole",
    "drafter at an item's edge": "a drafter reads an item's first token, which the step does not",
    "identifier with another size": "one identifier comes back with another size",
    "reused media id rejected": "a request ends whose identifier stands for another size",
    "session waits for more prompt": "its turn has ended, and the next chunk has not come",
    "released again": "an item is released that the request does not hold",
    "decoder item released again": "an encoder-decoder item is released a second time",
    "decoder item encoded again": "a preempted encoder-decoder request encodes its item anew",
    "decoder entry reported": "notices follow an encoder-decoder encode",
    "reset with entries": "a reset finds resident entries",
    "preempted after encode in the same step": "a scheduled encode is dropped by a preemption",
    "began anew beside another item": "a decoder that was preempted and another's encode together",
    "equal turns decoded": "two sessions that kept the same got the same chunk, and decoded",
    "equal prompts decoded": "two requests of one prompt have decoded a token or more",
    "equal prompts under two salts": "and two cache salts, one of which may be none",
    "equal prompts under two adapters": "and two adapters, one of which may be none",
    "embeddings beside media": "a prompt has rows that are given, and items that are encoded",
    "rows of known origin read": "a step gathers rows that carry what they are",
    "slots of known origin read": "a step attends to KV slots that carry what they are",
    "best two logits nearly tie": "rounding may decide on a token; what follows is not compared",
    "loaded from elsewhere": "an encoder output is loaded, not encoded",
    "waits for a transfer": "an encoder output that a request needs is on its way",
    "preempted after a load in the same step": "a load goes on for a request that was preempted",
    "evicted and loaded in one step": "an entry that is being loaded was evicted in that step",
    "transfer failed": "an encoder output that a request waits for will never come",
    "KV loaded within a step": "a step loads KV behind a hit",
    "KV loaded within a step failed": "and it is reported to have failed",
    "thrown back for a failed load": "a running request goes on before its first wrong block",
    "ended for a failed load": "a request ends since its KV has not come",
    "caching put off until loaded": "a request does not find a prefix that another one is loading",
    "KV sent": "a request's blocks are kept until they have been sent elsewhere",
    "equal blocks share": "two requests have a block of equal content, and one key",
    "several items in the last block": "items whose block fills only while decoding",
    "prompt continued": "a request that has decoded gets more prompt",
    "discarded token fills a block": "the last token, never computed, ends a block with a key",
    "several items in a later chunk": "more prompt brings two items or more",
    "item ends on a block boundary": "the next block must not name it",
    "item in two blocks": "an item begins in one block and ends in another",
    "item moved in an equal block": "blocks differ in nothing but where an item stands",
    "prompt of embeddings": "embeddings are given for every position",
    "tokens and embeddings mixed": "embeddings are given for some positions",
    "adapter": "a request runs under an adapter",
    "cache salt": "a request has a cache salt",
    "another form over the same bytes": "images differ in size or palette, or arrays in their form",
    "types over the same bytes": "calls differ in the type of a value alone, not in its bytes",
    "names of arguments": "calls differ in what their arguments are called",
    "list against map": "calls differ in a list for a mapping",
    "type of a key": "calls differ in the type of a mapping's key",
    "dtype of an array": "calls differ in an array's dtype",
    "shape of an array": "calls differ in an array's shape",
    "fields of an array": "calls differ in the fields of an array's elements",
    "array against tensor": "calls differ in an array for a tensor",
    "size of an image": "calls differ in an image's size",
    "mode of an image": "calls differ in an image's mode",
    "palette of an image": "calls differ in an image's palette",
    "transparency of an image": "calls differ in an image's transparent colour",
    "image id": "calls differ in the id that an image carries",
    "picture from one file": "calls differ in the picture that was decoded from a file",
    "frames from one file": "calls differ in the frames that were decoded from a file",
    "order of arguments": "calls differ in the order of their arguments",
    "order of a mapping": "calls differ in the order of a mapping",
    "layout of an array": "calls differ in where an array's elements lie in memory",
    "list or tuple": "calls differ in a tuple for a list",
    "huge int": "a call holds an int beyond 64 bits and is made twice",
    "pool empty": "no KV block is free",
    "allocation refused": "a request gets no slots",
    "hit of a free block": "a lookup finds blocks that nobody holds",
    "hit of a held block": "a lookup finds blocks that another request holds",
    "hit after preemption": "a preempted request finds blocks that it had computed",
    "one hash on two blocks": "two blocks hold the same prefix",
    "cached block handed out": "a free block loses its hash to new content",
    "blocks behind a window given back": "a running request's table gets null blocks",
    "groups disagree on a hit": "one group alone would have hit more",
    "drafts rejected": "computed tokens are taken back",
    "load under way": "blocks are allocated whose content arrives later",
    "load failed": "some of the content did not arrive",
    "free put off": "a request ended whose blocks are still read",
    "hash of a held block removed": "a block is evicted by its id while requests hold it",
    "reset refused": "the prefix cache is to be reset while blocks are held",
    "reset with cached blocks": "a reset finds hashes to forget",
    "prompt tail cached": "a block is found by a part of its content",
    "several prompt tails on one block": "by several parts of different lengths",
    "hit of a duplicate": "a lookup finds a prefix that several blocks hold",
    "hit of a block whose free is put off": "a lookup finds a block of a request that ended",
    "hit in several groups": "groups of different kinds or block sizes agree on a hit",
    "null blocks in a hit": "a window's hit leaves out what is no longer read",
    "every token cached": "a lookup must leave a token that is cached as well",
    "load behind a hit": "tokens are loaded behind those that were hit",
    "load failed from the first token": "nothing of a load arrives",
    "ended while loading": "a request ends whose blocks are being written to",
    "preempted with a step in flight": "a request loses blocks that a step still reads",
    "window moves beside a step in flight": "blocks are given back while a step is in flight",
    "look-ahead past the model's end": "slots for drafts end where the model does",
    "whole sequence refused": "a request waits since its whole sequence does not fit",
    "refused beside reserved blocks": "a request waits beside blocks that stay free",
    "cross-attention blocks": "blocks for an encoder's tokens are handed out",
    "common prefix": "all requests hold the same first blocks",
    "promised what another engine saved": "a store serves more than the engine that fills it",
    "promised beside an encode": "a step loads one item and saves another",
    "promise that nobody takes": "an item is promised, and the step is then given no room for it",
    "two steps planned": "a scheduler is ahead of its worker",
    "several requests in a step": "a connector is asked again when it was told of another request",
    "aborted before its load": "requests end between the plan of a step that loads and the step",
    "copy under way after its step": "a load or save ends, and is reported, with a later step",
    "load that ends on one rank later than on another": "a load is reported by some of its ranks",
    "loaded item with gaps": "an item is loaded that has fewer rows than places in the prompt",
    "loaded rows of several layers": "rows are loaded that are wider than the model",
    "saved entry gone": "an item that was promised before is promised no longer",
    "item larger than the store": "an item alone has more bytes than the store may hold",
    "killed while it saves": "an engine dies in the middle of a file",
    "engine started after another was killed": "and another one finds what it has left",
    "entry spoiled": "somebody else changes, swaps or removes a file of the store",
    "store out of reach": "the store's folder or server is gone, and perhaps back",
    "preempted after the connector was told": "and the step does not encode what it was told of",
    "server hangs": "a store can be reached, and does not answer",
    "new weights": "the weights of a model are updated in place",
}


class Reachability:
    """Counts per rare state; adds up over traces and workers. `together` counts the traces that met
    both states of a pair, in the order of their names; a pair of a state with itself counts the
    traces that met it."""

    def __init__(self) -> None:
        self.met: Counter[str] = Counter()
        self.together: Counter[tuple[str, str]] = Counter()

    def meet(self, state: str) -> None:
        """Count one meeting. Raises KeyError for a state that the table does not name."""
        assert state in RARE_STATES, state
        self.met[state] += 1

    def add(self, other: "Reachability") -> None:
        self.met.update(other.met)
        self.together.update(other.together)

    def add_trace(self, trace: "Reachability") -> None:
        """Take in what was met in one trace."""
        self.met.update(trace.met)
        self.together.update(combinations_with_replacement(sorted(trace.met), 2))

    def never(self, relevant: frozenset[str]) -> list[str]:
        """Relevant states that were never met, in the table's order."""
        return [state for state in RARE_STATES if state in relevant and not self.met[state]]
