"""The physical side: the tensors behind the caches, driven by the reference's decisions."""
