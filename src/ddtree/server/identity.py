"""What a loaded server says of itself in `/server_info` and `/model_info`."""

import json
from importlib.metadata import version

import ddtree
from ddtree.engine import Engine
from ddtree.server.errors import JsonObject
from ddtree.server.options import Options
from ddtree.server.service import Identity


def identify(engine: Engine, options: Options, seed: int, threads: int, port: int) -> Identity:
    """The facts of `engine` as it was loaded for `options`, under SGLang's names."""
    return Identity(
        model=options.served_model_name,
        server_info={
            "model_path": str(options.model_path),
            "tokenizer_path": str(options.model_path),
            "served_model_name": options.served_model_name,
            **_speculation(engine, options),
            "context_length": engine.context_length,
            "dtype": options.dtype,
            "device": "cpu",
            "random_seed": seed,
            "host": options.host,
            "port": port,
            "threads": threads,
            "disable_overlap_schedule": True,
            "version": ddtree.__version__,
            "engine": "ddtree-reference",
            "torch_version": version("torch"),
            "transformers_version": version("transformers"),
        },
        model_info=_model_info(options),
    )


def _speculation(engine: Engine, options: Options) -> JsonObject:
    algorithm = options.speculative_algorithm
    draft_path = options.speculative_draft_model_path
    budget, topk = options.speculative_ddtree_budget, options.speculative_ddtree_topk_cap
    if budget is not None and topk is None:
        topk = max(budget, 1)
    return {
        "speculative_algorithm": algorithm,
        "speculative_draft_model_path": None if draft_path is None else str(draft_path),
        "speculative_num_draft_tokens": None if algorithm is None else engine.verify_width,
        "speculative_dflash_block_size": _block_size(engine, options),
        "speculative_ddtree_budget": budget,
        "speculative_ddtree_topk_cap": topk,
        # Exact verification: there is no threshold that could accept more than the target does.
        "speculative_accept_threshold_single": 1.0,
        "speculative_accept_threshold_acc": 1.0,
    }


def _block_size(engine: Engine, options: Options) -> int | None:
    if engine.drafter is None or options.speculative_dflash_block_size is not None:
        return options.speculative_dflash_block_size
    return engine.drafter.config.block_size


def _model_info(options: Options) -> JsonObject:
    config = json.loads((options.model_path / "config.json").read_text())
    return {
        "model_path": str(options.model_path),
        "tokenizer_path": str(options.model_path),
        "is_generation": True,
        "preferred_sampling_params": None,
        "weight_version": "default",
        "has_image_understanding": False,
        "has_audio_understanding": False,
        "model_type": config.get("model_type"),
        "architectures": config.get("architectures"),
    }
