"""How a recording ends of what went wrong in it."""

import logging
from contextlib import suppress

from cacheproof.differential.recording.messages import Raised
from cacheproof.differential.recording.writer import Records

_logger = logging.getLogger("vllm.cacheproof")


def say_why_it_ended(error: Exception, writer: Records) -> None:
    """A recording ends of what went wrong in it."""
    with suppress(Exception):
        _logger.warning("cacheproof: the recording has ended: %r", error, exc_info=error)
        why = str(error)[:200].encode(errors="replace").decode()
        writer.put(Raised(0, "recording", type(error).__name__, why, []))
        writer.flush(1.0)
