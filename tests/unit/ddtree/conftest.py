"""Tiny random models on disk: a Llama target and a DFlash drafter that fits it."""

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file
from transformers import LlamaConfig, LlamaForCausalLM

from ddtree.drafter import Drafter, DrafterConfig
from ddtree.engine import Engine, EngineSpec, Sampling, Step

VOCAB = 12
HIDDEN = 16
LAYERS = 3
EOS = 2
MASK = 1
BLOCK = 6
CONTEXT = 64


def write_target(path: Path, **changes: Any) -> Path:
    """Write a random Llama; the wide initial weights make its choices distinct."""
    torch.manual_seed(0)
    values: dict[str, Any] = {
        "vocab_size": VOCAB,
        "hidden_size": HIDDEN,
        "intermediate_size": 32,
        "num_hidden_layers": LAYERS,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "max_position_embeddings": CONTEXT,
        "initializer_range": 0.4,
        "bos_token_id": 0,
        "eos_token_id": EOS,
        "tie_word_embeddings": True,
    }
    LlamaForCausalLM(LlamaConfig(**(values | changes))).save_pretrained(path)
    return path


def drafter_values(**changes: Any) -> dict[str, Any]:
    """Return the `config.json` of the tiny drafter."""
    values: dict[str, Any] = {
        "architectures": ["DFlashDraftModel"],
        "model_type": "qwen3",
        "block_size": BLOCK,
        "dflash_config": {"mask_token_id": MASK, "target_layer_ids": [0, 2]},
        "hidden_size": HIDDEN,
        "intermediate_size": 24,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 4,
        "rms_norm_eps": 1e-6,
        "vocab_size": VOCAB,
        "num_target_layers": LAYERS,
        "max_position_embeddings": CONTEXT,
        "rope_theta": 10000.0,
    }
    return values | changes


def write_drafter(path: Path, **changes: Any) -> Path:
    """Write a random drafter in the z-lab format."""
    torch.manual_seed(1)
    values = drafter_values(**changes)
    path.mkdir(parents=True)
    (path / "config.json").write_text(json.dumps(values), encoding="utf-8")
    drafter = Drafter(DrafterConfig.model_validate(values), lambda x, positions: (x, x))
    save_file(drafter.state_dict(), path / "model.safetensors")
    return path


@pytest.fixture(scope="session")
def target_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Directory of the tiny target."""
    return write_target(tmp_path_factory.mktemp("target"))


@pytest.fixture(scope="session")
def drafter_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Directory of the tiny drafter."""
    return write_drafter(tmp_path_factory.mktemp("drafter") / "checkpoint")


@pytest.fixture
def make_target() -> Callable[..., Path]:
    """Writer of targets with changed settings."""
    return write_target


@pytest.fixture
def make_drafter() -> Callable[..., Path]:
    """Writer of drafters with changed settings."""
    return write_drafter


@pytest.fixture
def make_values() -> Callable[..., dict[str, Any]]:
    """Maker of drafter configs with changed settings."""
    return drafter_values


@pytest.fixture(scope="session")
def make_spec(target_path: Path, drafter_path: Path) -> Callable[..., EngineSpec]:
    """Maker of engine specs over the tiny models: AR unless told otherwise."""

    def make(algorithm: str = "AR", **changes: Any) -> EngineSpec:
        values: dict[str, Any] = {
            "target_path": target_path,
            "drafter_path": None if algorithm == "AR" else drafter_path,
            "algorithm": algorithm,
            "block_size": None,
            "budget": 20 if algorithm == "DDTREE" else None,
            "topk_cap": None,
        }
        return EngineSpec(**(values | changes))

    return make


@pytest.fixture(scope="session")
def make_engine(make_spec: Callable[..., EngineSpec]) -> Callable[..., Engine]:
    """Maker of engines over the tiny models, each loaded once."""
    loaded: dict[EngineSpec, Engine] = {}

    def make(algorithm: str = "AR", **changes: Any) -> Engine:
        spec = make_spec(algorithm, **changes)
        if spec not in loaded:
            loaded[spec] = Engine.load(spec)
        return loaded[spec]

    return make


@pytest.fixture
def run() -> Callable[..., list[Step]]:
    """Runner of one request to its end; greedy, 24 tokens, no end by eos unless told."""

    def run(engine: Engine, prompt: Sequence[int] = (0, 5, 7), **sampling: Any) -> list[Step]:
        wanted = Sampling(**({"max_new_tokens": 24, "ignore_eos": True} | sampling))
        return list(engine.generate(prompt, wanted))

    return run
