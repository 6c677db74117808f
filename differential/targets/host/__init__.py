"""What runs inside the interpreter of a vLLM release: the standard library and vLLM, nothing else.

`__main__` reads batches of traces from a pipe and writes step records back. The manager-depth
session and the recorder also serve the in-process reference target, so that both sides of a
lockstep are driven and observed by the same code.
"""
