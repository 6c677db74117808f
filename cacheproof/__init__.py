"""A checked reference for the caches behind multimodal requests in vLLM V1, and its front door."""

from importlib.metadata import version

__version__ = version("cacheproof")
