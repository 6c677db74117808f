"""Every change that a fault makes in an engine, by its name."""

from collections.abc import Callable
from typing import Any

from ...by_name import joined
from ...protocol import Event
from .embedded import AHEAD_FAULTS, EMBEDDED_FAULTS
from .engine import ATTENTION_FAULTS, WORKER_FAULTS, Change
from .keys import ADAPTER_KEY_FAULTS, EMBEDDED_KEY_FAULTS, SALT_KEY_FAULTS
from .models import AUDIO_FAULTS, DEEPSTACK_FAULTS, GROUP_FAULTS
from .requests import ADAPTER_FAULTS, GIVEN_FAULTS, TIED_FAULTS, WEIGHT_FAULTS
from .second import SECOND_FAULTS
from .sessions import FIRST_SESSION_FAULTS, SECOND_SESSION_FAULTS

CHANGES: dict[str, Callable[[Any], Change]] = joined(
    WORKER_FAULTS,
    ADAPTER_FAULTS,
    AHEAD_FAULTS,
    ATTENTION_FAULTS,
    AUDIO_FAULTS,
    DEEPSTACK_FAULTS,
    EMBEDDED_FAULTS,
    EMBEDDED_KEY_FAULTS,
    GIVEN_FAULTS,
    GROUP_FAULTS,
    WEIGHT_FAULTS,
    TIED_FAULTS,
    SALT_KEY_FAULTS,
    ADAPTER_KEY_FAULTS,
    SECOND_FAULTS,
    FIRST_SESSION_FAULTS,
    SECOND_SESSION_FAULTS,
)


def of_the_release(config: Event) -> list[str]:
    """Faults that are the release's own under a configuration, and mended by the host."""
    own: list[str] = []
    is_ahead = config["prompt_embeds"] and config["num_speculative_tokens"]
    if is_ahead and not config["v2_model_runner"]:
        own += AHEAD_FAULTS
    if config["max_loras"]:
        own.append("takes_the_last_slot_for_none")
    if config["model"] == "whisper":
        own += TIED_FAULTS
    return own
