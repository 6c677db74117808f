"""The plug-in of vLLM that records: entry point `vllm.general_plugins`, called in every process.

Off without CACHEPROOF_RECORD, and then without a trace: nothing is imported and nothing wrapped.
"""

import os

FOLDER = "CACHEPROOF_RECORD"
PLAIN = "CACHEPROOF_RECORD_PLAIN"
SALT = "CACHEPROOF_RECORD_SALT"
LIMITS = "CACHEPROOF_RECORD_MIB"
KV = "CACHEPROOF_RECORD_KV"


def register() -> None:
    """Have the schedulers and model runners of this process recorded, where that is asked for."""
    if os.environ.get(FOLDER):
        try:
            from cacheproof.differential.recording import attaching

            attaching.attach()
        except Exception as error:  # whatever is wrong with us, the engine goes on
            import logging

            logging.getLogger("vllm.cacheproof").warning(
                "cacheproof: nothing is recorded: %s: %s", type(error).__name__, error
            )
