"""Every change that a fault makes in an engine, by its name."""

from collections.abc import Callable
from typing import Any

from .engine_faults import ATTENTION_FAULTS, WORKER_FAULTS, Change
from .engine_key_faults import ADAPTER_KEY_FAULTS, SALT_KEY_FAULTS
from .engine_model_faults import AUDIO_FAULTS, DEEPSTACK_FAULTS, GROUP_FAULTS
from .engine_request_faults import ADAPTER_FAULTS, GIVEN_FAULTS, TIED_FAULTS, WEIGHT_FAULTS

CHANGES: dict[str, Callable[[Any], Change]] = (
    WORKER_FAULTS
    | ADAPTER_FAULTS
    | ATTENTION_FAULTS
    | AUDIO_FAULTS
    | DEEPSTACK_FAULTS
    | GIVEN_FAULTS
    | GROUP_FAULTS
    | WEIGHT_FAULTS
    | TIED_FAULTS
    | SALT_KEY_FAULTS
    | ADAPTER_KEY_FAULTS
)
