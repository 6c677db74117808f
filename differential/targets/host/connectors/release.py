"""The connectors of a release, with real tensors: vLLM's own, or a class out of its tree."""

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
from vllm.config import ec_transfer
from vllm.distributed.ec_transfer.ec_connector import base, example_connector

from ..protocol import Event, Illegal
from .engine import Kit
from .faults import CONNECTOR_FAULTS
from .settings import settings_of

Make = Callable[[Any, base.ECConnectorRole], Any]


def example(config: Event, model: Event, root: Path) -> Kit:
    """The release's own connector over a folder. Raises Illegal for another store. It does not
    evict, so that a capacity means nothing to it."""
    if config["store"] != "disk":
        raise Illegal(f"ECExampleConnector has a folder on a disk alone, and no {config['store']}")
    settings = {"shared_storage_path": str(root)}
    return of_class(example_connector.ECExampleConnector, settings, model, config["ranks"])


def of_store(config: Event, model: Event, weights: int, root: Path, make: Make) -> Kit:
    """A connector whose settings are those of cacheproof's own."""
    return of_class(make, settings_of(config, weights, root), model, config["ranks"])


def of_class(make: Make, settings: Event, model: Event, ranks: int) -> Kit:
    """Both sides of a connector in an engine of that model. Raises Illegal where the release asks
    less of connectors."""
    if not hasattr(base.ECConnectorBase, "start_save_caches"):
        raise Illegal("connectors are asked as vLLM 0.30.0 and later do")
    vllm_config = config_of(make, settings, model)
    scheduler = make(vllm_config, base.ECConnectorRole.SCHEDULER)
    worker, *further = (make(vllm_config, base.ECConnectorRole.WORKER) for _ in range(ranks))
    dtype = getattr(torch, model["dtype"])
    return Kit(
        scheduler,
        worker,
        lambda rows: torch.tensor(rows, dtype=dtype),
        read,
        lambda metadata: SimpleNamespace(
            finished_recving=set(getattr(metadata, "files", ())), ec_connector_worker_meta=None
        ),
        pinned=(lambda: scheduler.pinned) if hasattr(scheduler, "pinned") else None,
        saving=(lambda _: set()) if hasattr(scheduler, "pinned") else None,
        further=tuple(further),
    )


def config_of(make: Make, settings: Event, model: Event) -> SimpleNamespace:
    """The part of an engine's configuration that connectors read."""
    dtype = getattr(torch, model["dtype"])
    further = list(range(1, model["layers"]))
    transfer = ec_transfer.ECTransferConfig(
        ec_connector=getattr(make, "__name__", "a connector"),
        ec_role="ec_both",
        ec_connector_extra_config=settings,
    )
    of_model = SimpleNamespace(
        model=model["name"],
        served_model_name=model["name"],
        revision=None,
        dtype=dtype,
        hf_config=SimpleNamespace(
            vision_config=SimpleNamespace(
                out_hidden_size=model["width"], deepstack_visual_indexes=further
            )
        ),
        use_mla=False,
        max_model_len=4096,
        get_inputs_embeds_size=lambda: model["width"],
        get_num_layers=lambda _: 1,
        get_num_kv_heads=lambda _: 1,
        get_head_size=lambda: 8,
    )
    parallel = SimpleNamespace(
        world_size=1,
        rank=0,
        tensor_parallel_size=1,
        pipeline_parallel_size=1,
        prefill_context_parallel_size=1,
        data_parallel_index=0,
        data_parallel_rank=0,
        data_parallel_rank_local=0,
        data_parallel_size=1,
        local_engine_index=0,
        distributed_executor_backend="uni",
    )
    return SimpleNamespace(
        ec_transfer_config=transfer,
        model_config=of_model,
        parallel_config=parallel,
        cache_config=SimpleNamespace(cache_dtype="auto", block_size=16),
        scheduler_config=SimpleNamespace(max_num_batched_tokens=8192),
        kv_transfer_config=SimpleNamespace(engine_id="engine", kv_connector_extra_config={}),
        speculative_config=None,
        instance_id="an engine",
        use_v2_model_runner=True,
    )


def read(rows: torch.Tensor) -> tuple[list[list[float]], int, str]:
    """Numbers, width and dtype of rows."""
    if rows.ndim != 2:
        return [], 0, f"{rows.ndim} dimensions"
    return rows.float().tolist(), rows.shape[1], str(rows.dtype).removeprefix("torch.")


def kit_of(
    connector: type | None, config: Event, model: Event, weights: int, root: Path, fault: str | None
) -> Kit:
    """The connector of a trace's store, or the class in its place, with a fault planted or none."""
    if connector is not None:
        kit = of_store(config, model, weights, root, connector)
    elif config["store"] == "cpu":
        try:
            from . import cpu as connector_cpu
        except ImportError:
            raise Illegal("this release has no ECCPUConnector that reports its copies") from None
        kit = connector_cpu.kit(config, model, root)
    else:
        kit = example(config, model, root)
    if fault is not None:
        CONNECTOR_FAULTS[fault](kit, root)
    return kit
