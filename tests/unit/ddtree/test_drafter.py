import json
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from ddtree.drafter import Drafter, DrafterCache, load_drafter

close = partial(torch.testing.assert_close, rtol=0.0, atol=1e-5)


@pytest.fixture(scope="module")
def drafter(drafter_path: Path) -> Drafter:
    return load_drafter(drafter_path, "float32")


def rand(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def norm(x: Tensor, weight: Tensor) -> Tensor:
    return x / (x.square().mean(-1, keepdim=True) + 1e-6).sqrt() * weight


def rotate(x: Tensor, position: int) -> Tensor:
    """Rotary embedding of one head vector, dimension pairs (i, i + D/2), base 10,000."""
    half = len(x) // 2
    angle = position * 10000.0 ** (-torch.arange(half) / half)
    a, b = x[:half], x[half:]
    return torch.cat([a * angle.cos() - b * angle.sin(), b * angle.cos() + a * angle.sin()])


def by_hand(weights: dict[str, Tensor], block: Tensor, features: Tensor) -> Tensor:
    """The drafter's definition, head by head and row by row: 4 query heads on 2 key heads, D 4."""
    context = norm(features @ weights["fc.weight"].T, weights["hidden_norm.weight"])
    for index in range(2):
        w = {k.split(".", 2)[2]: v for k, v in weights.items() if k.startswith(f"layers.{index}.")}
        inner = norm(block, w["input_layernorm.weight"])
        rows = torch.cat([context, inner])
        start = len(context)
        mixed = torch.zeros(len(block), 16)
        for head in range(4):
            own, shared = slice(4 * head, 4 * head + 4), slice(4 * (head // 2), 4 * (head // 2) + 4)
            query = norm(
                inner @ w["self_attn.q_proj.weight"].T[:, own], w["self_attn.q_norm.weight"]
            )
            key = norm(
                rows @ w["self_attn.k_proj.weight"].T[:, shared], w["self_attn.k_norm.weight"]
            )
            value = rows @ w["self_attn.v_proj.weight"].T[:, shared]
            key = torch.stack([rotate(k, p) for p, k in enumerate(key)])
            query = torch.stack([rotate(q, start + p) for p, q in enumerate(query)])
            mixed[:, own] = (query @ key.T / 2).softmax(-1) @ value  # √D = 2
        block = block + mixed @ w["self_attn.o_proj.weight"].T
        inner = norm(block, w["post_attention_layernorm.weight"])
        gate = inner @ w["mlp.gate_proj.weight"].T
        gated = gate * gate.sigmoid() * (inner @ w["mlp.up_proj.weight"].T)
        block = block + gated @ w["mlp.down_proj.weight"].T
    return norm(block, weights["norm.weight"])


def test_forward_is_the_definition(drafter: Drafter, drafter_path: Path) -> None:
    """Features enter every layer as keys and values; the block sees all of itself."""
    weights = load_file(drafter_path / "model.safetensors")
    block, features = rand(6, 16), rand(9, 32, seed=1)
    got = drafter(block, features, DrafterCache())
    close(got, by_hand(weights, block, features))


def test_features_in_parts_are_features_at_once(drafter: Drafter) -> None:
    """The cache holds the features' keys and values; earlier blocks leave no trace in it."""
    features, block = rand(11, 32), rand(6, 16, seed=1)
    cache = DrafterCache()
    for part in (features[:5], features[5:6], features[6:]):
        last = drafter(block, part, cache)
    close(last, drafter(block, features, DrafterCache()))
    assert {keys.shape[1] for keys, _ in cache} == {11}


def test_reduced_precision_keeps_exact_angles(drafter_path: Path) -> None:
    """In bfloat16 outputs stay near those in float32, though positions run to hundreds."""
    features, block = rand(400, 32), rand(6, 16, seed=1)
    exact = load_drafter(drafter_path, "float32")(block, features, DrafterCache())
    rough = load_drafter(drafter_path, "bfloat16")(
        block.bfloat16(), features.bfloat16(), DrafterCache()
    )
    torch.testing.assert_close(rough.float(), exact, rtol=0.0, atol=0.1)


@pytest.mark.parametrize(
    ("changes", "faults"),
    [
        ({"block_size": 0}, ["block_size"]),
        ({"architectures": ["LlamaForCausalLM"]}, ["architectures.0"]),
        ({"dflash_config": {"target_layer_ids": [0]}}, ["dflash_config.mask_token_id"]),
        (
            {"dflash_config": {"mask_token_id": 1, "target_layer_ids": [0, 3]}},
            ["target_layer_ids", "outside"],
        ),
        (
            {"dflash_config": {"mask_token_id": 1, "target_layer_ids": [0], "conv_kernel_size": 4}},
            ["dflash_config.conv_kernel_size"],
        ),
        ({"layer_types": ["sliding_attention"] * 2}, ["layer_types.0"]),
        ({"hidden_act": "gelu", "head_dim": "x"}, ["hidden_act", "head_dim"]),
    ],
)
def test_config_faults_name_file_and_keys(
    make_values: Callable[..., dict[str, Any]],
    tmp_path: Path,
    changes: dict[str, Any],
    faults: list[str],
) -> None:
    """All faults come at once, each with its key; an unknown DFlash key is one."""
    (tmp_path / "config.json").write_text(json.dumps(make_values(**changes)), encoding="utf-8")
    with pytest.raises(ValueError, match="not a DFlash checkpoint") as caught:
        load_drafter(tmp_path, "float32")
    for fault in [str(tmp_path / "config.json"), *faults]:
        assert fault in str(caught.value)


@pytest.mark.parametrize(
    ("text", "message"), [("{", "config.json:1: not JSON"), ("[]", "must hold a JSON object")]
)
def test_broken_config_is_named(tmp_path: Path, text: str, message: str) -> None:
    """A file that is no JSON object is said to be none, with its line."""
    (tmp_path / "config.json").write_text(text, encoding="utf-8")
    with pytest.raises(ValueError, match=message):
        load_drafter(tmp_path, "float32")


def test_missing_files_are_named(make_drafter: Callable[..., Path], tmp_path: Path) -> None:
    """A directory without config or without weights is refused by file name."""
    with pytest.raises(ValueError, match=r"config.json: no such file; give a DFlash checkpoint"):
        load_drafter(tmp_path, "float32")
    checkpoint = make_drafter(tmp_path / "checkpoint")
    (checkpoint / "model.safetensors").unlink()
    with pytest.raises(ValueError, match=r"model.safetensors: no such file"):
        load_drafter(checkpoint, "float32")


def test_weights_that_do_not_fit_are_listed(
    make_drafter: Callable[..., Path], tmp_path: Path
) -> None:
    """A missing, an unknown and a misshapen tensor are all named."""
    path = make_drafter(tmp_path / "checkpoint") / "model.safetensors"
    weights = load_file(path)
    del weights["norm.weight"]
    save_file(weights | {"extra": torch.zeros(1), "fc.weight": torch.zeros(2, 2)}, path)
    with pytest.raises(ValueError, match=r"extra, fc\.weight, norm\.weight"):
        load_drafter(path.parent, "float32")
