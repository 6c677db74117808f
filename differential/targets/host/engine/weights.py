"""New weights for an engine's workers, loaded as a user loads them."""

from pathlib import Path

from ..vllm_objects.worker import LoadedModel, UniProcExecutor


def load_weights(executor: UniProcExecutor, model: LoadedModel, directory: Path) -> None:
    """Have the workers load the weights of that directory into their model.

    On a CPU a compiled kernel multiplies by a copy of a head's weights. `reload_weights`
    makes it anew where it has loaded weights; a head that is tied to the embedding of tokens has
    none of its own, and keeps the copy of the old ones. Here it is made anew.
    """
    executor.collective_rpc("reload_weights", kwargs={"weights_path": str(directory)})
    if hasattr(model, "proj_out"):
        head = model.proj_out
        head.quant_method.process_weights_after_loading(head)
