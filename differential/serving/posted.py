"""What a client posts."""

from typing import NamedTuple

MODEL_NAME = "tiny"
"""How a server calls its model."""


class Posted(NamedTuple):
    """A body, what it is, and where it is posted."""

    path: str
    content_type: str
    body: bytes

    @property
    def headers(self) -> dict[str, str]:
        return {"Content-Type": self.content_type}
