"""Does reality agree: the same traces through the reference and through real vLLM releases."""
