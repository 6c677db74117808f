"""What an encoder output depends on, and the name under which a store keeps it."""

import hashlib
import json
from dataclasses import asdict, dataclass


@dataclass(frozen=True)
class EntryKey:
    """Everything that the rows of an encoder output depend on.

    Attributes:
        identifier: vLLM's identifier of the media item; an adapter's prefix is part of it.
        model: the model's name or directory, as the engine was given it.
        revision: its revision; empty where none was asked for.
        weights: a version of the weights, which whoever updates them in place counts up.
        dtype: of the rows, as torch names it.
        hidden_size: of the model: numbers in a row, or in each part of it that goes to a layer.
    """

    identifier: str
    model: str
    revision: str
    weights: str
    dtype: str
    hidden_size: int

    @property
    def name(self) -> str:
        """64 hexadecimal digits: no identifier can name a file outside the store's folder."""
        text = json.dumps(self.fields, sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()

    @property
    def fields(self) -> dict[str, str]:
        """The fields as texts, for the header of an entry."""
        return {name: str(value) for name, value in asdict(self).items()}
