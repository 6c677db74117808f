"""The functions that make keys of KV blocks: an encoding and a digest, by vLLM's names for the two.

    sha256        pickle, SHA-256        xxhash        pickle, XXH3 of 128 bits
    sha256_cbor   CBOR, SHA-256          xxhash_cbor   CBOR, XXH3 of 128 bits

Of what keys are made of (None, integers, strings, bytes and tuples of these) unequal values have
unequal encodings. Equal ones have one encoding in CBOR, while a pickle also tells which objects are
shared: `Semantics.ideal()` leaves that out. `sha256_cbor_64bit` keeps 64 bits of sha256_cbor, and
was offered only before the first release that is modelled.
"""

import hashlib
import io
import pickle
from collections.abc import Callable
from typing import Literal

import cbor2
import xxhash

from cacheproof.reference.semantics.block_keys import BlockKeySemantics

Algorithm = Literal["sha256", "sha256_cbor", "sha256_cbor_64bit", "xxhash", "xxhash_cbor"]
HashFunction = Callable[[object], bytes]
_Encoding = Callable[[object], bytes]
_Digest = Callable[[bytes], bytes]
DEFAULT: Algorithm = "sha256"


def _pickled(value: object) -> bytes:
    return pickle.dumps(value, protocol=pickle.HIGHEST_PROTOCOL)


def _pickled_by_content(value: object) -> bytes:
    stream = io.BytesIO()
    pickler = pickle.Pickler(stream, protocol=pickle.HIGHEST_PROTOCOL)
    pickler.fast = True  # each object is written out, seen before or not
    pickler.dump(value)
    return stream.getvalue()


def _cbor(value: object) -> bytes:
    return cbor2.dumps(value, canonical=True)


def _sha256(encoded: bytes) -> bytes:
    return hashlib.sha256(encoded).digest()


_FUNCTIONS: dict[Algorithm, tuple[_Encoding, _Digest]] = {
    "sha256": (_pickled, _sha256),
    "sha256_cbor": (_cbor, _sha256),
    "xxhash": (_pickled, xxhash.xxh3_128_digest),
    "xxhash_cbor": (_cbor, xxhash.xxh3_128_digest),
}


def algorithms(semantics: BlockKeySemantics) -> tuple[Algorithm, ...]:
    """Names of the functions that a release of those semantics offers, the default first."""
    if semantics.offers_xxhash:
        return tuple(_FUNCTIONS)
    return tuple(name for name in _FUNCTIONS if not name.startswith("xxhash"))


def hash_function(semantics: BlockKeySemantics, algorithm: Algorithm = DEFAULT) -> HashFunction:
    """The function of that name, under those semantics.

    Raises:
        ValueError: those semantics offer no function of that name.
    """
    offered = algorithms(semantics)
    if algorithm not in offered:
        raise ValueError(f"no block hash {algorithm!r}; expected one of {', '.join(offered)}")
    encode, digest = _FUNCTIONS[algorithm]
    if encode is _pickled and semantics.keys_by_content:
        encode = _pickled_by_content

    def hash_of(value: object) -> bytes:
        return digest(encode(value))

    return hash_of
