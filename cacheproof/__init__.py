"""A checked reference for the caches behind multimodal requests in vLLM V1, and its front door."""
