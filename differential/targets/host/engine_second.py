"""The real engine with its second model runner."""

from .engine_interpreted import interpret

interpret()  # before vllm is imported

from .engine import Release  # noqa: E402

__all__ = ["Release"]
