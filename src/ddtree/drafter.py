"""The DFlash drafter: reads z-lab checkpoints, proposes a block of tokens in one pass.

Shape letters: T new context tokens, C context tokens in all, b block size, H hidden size, A and
G query and key/value heads, D head size, F features (taps × target's H).
Source: DFlash, arXiv 2602.06036; block diffusion conditioned on the target's hidden states,
which enter every layer as keys and values.
"""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal, cast

import torch
from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator
from safetensors.torch import load_file
from torch import Tensor, nn
from torch.nn import functional
from transformers.models.qwen3 import Qwen3Config
from transformers.models.qwen3.modeling_qwen3 import Qwen3RotaryEmbedding

from ddtree.target import DTYPES

LayerKv = tuple[Tensor, Tensor]
"""Keys and values of one layer, both `[G, C, D]`."""
DrafterCache = list[LayerKv]
"""One entry a layer; empty before the first block."""


class DflashSection(BaseModel):
    """`dflash_config` of a checkpoint; an unknown key may change the architecture, so it fails."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    mask_token_id: int = Field(ge=0, description="token that stands for a position to draft")
    target_layer_ids: tuple[int, ...] = Field(min_length=1, description="tapped target layers")
    mask_token: str | None = None


class DrafterConfig(BaseModel):
    """What this module reads of a checkpoint's `config.json`.

    The rest of the file describes training or serving and may hold anything.
    """

    model_config = ConfigDict(extra="ignore", frozen=True)

    architectures: tuple[Literal["DFlashDraftModel"]]
    block_size: int = Field(ge=1, description="most positions of a block, the bonus token's first")
    dflash_config: DflashSection
    hidden_size: int = Field(ge=1)
    intermediate_size: int = Field(ge=1)
    num_hidden_layers: int = Field(ge=1)
    num_attention_heads: int = Field(ge=1)
    num_key_value_heads: int = Field(ge=1)
    head_dim: int = Field(ge=1)
    rms_norm_eps: float = Field(gt=0.0)
    vocab_size: int = Field(ge=1)
    num_target_layers: int | None = None
    hidden_act: Literal["silu"] = "silu"
    attention_bias: bool = False
    is_causal: Literal[False] | None = None
    layer_types: tuple[Literal["full_attention"], ...] | None = None

    @model_validator(mode="after")
    def _taps_exist(self) -> "DrafterConfig":
        layers = self.num_target_layers
        taps = self.dflash_config.target_layer_ids
        if min(taps) < 0 or (layers is not None and max(taps) >= layers):
            raise ValueError(f"dflash_config.target_layer_ids {taps} outside 0…{layers} layers")
        return self


Rotary = Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]
"""Takes a tensor (for its dtype) and positions `[1, T]`, returns cosine and sine `[1, T, D]`."""


class Attention(nn.Module):
    """Block queries over context and block; the context's keys come from the target's features."""

    def __init__(self, config: DrafterConfig) -> None:
        super().__init__()
        hidden, head = config.hidden_size, config.head_dim
        bias = config.attention_bias
        self.head_dim = head
        self.q_proj = nn.Linear(hidden, config.num_attention_heads * head, bias=bias)
        self.k_proj = nn.Linear(hidden, config.num_key_value_heads * head, bias=bias)
        self.v_proj = nn.Linear(hidden, config.num_key_value_heads * head, bias=bias)
        self.o_proj = nn.Linear(config.num_attention_heads * head, hidden, bias=bias)
        self.q_norm = nn.RMSNorm(head, eps=config.rms_norm_eps)
        self.k_norm = nn.RMSNorm(head, eps=config.rms_norm_eps)

    def forward(
        self, block: Tensor, context: Tensor, rotation: LayerKv, past: LayerKv | None
    ) -> tuple[Tensor, LayerKv]:
        """Return the block's `[b, H]` and the context's grown keys and values.

        Args:
            block: `[b, H]`.
            context: `[T, H]`, features of the tokens since the last block.
            rotation: cosine and sine `[T + b, D]` of the positions of context, then block.
            past: keys and values of the context before.
        """
        cos, sin = rotation
        rows = torch.cat([context, block])  # [T + b, H]
        query = self._heads(self.q_proj(block), self.q_norm)  # [A, b, D]
        query = _rotate(query, cos[len(context) :], sin[len(context) :])
        key = _rotate(self._heads(self.k_proj(rows), self.k_norm), cos, sin)  # [G, T + b, D]
        value = self._heads(self.v_proj(rows), nn.Identity())
        if past is not None:
            key, value = torch.cat([past[0], key], 1), torch.cat([past[1], value], 1)
        length = key.shape[1] - len(block)  # C
        mixed = functional.scaled_dot_product_attention(
            query[None], key[None], value[None], enable_gqa=True
        )[0]  # [A, b, D], no mask: a block sees all of itself
        flat = mixed.transpose(0, 1).reshape(len(block), -1)
        return self.o_proj(flat), (key[:, :length], value[:, :length])

    def _heads(self, rows: Tensor, norm: nn.Module) -> Tensor:
        """Return `[rows, heads × D]` as `[heads, rows, D]`, each head normed."""
        return cast(Tensor, norm(rows.view(len(rows), -1, self.head_dim))).transpose(0, 1)


def _rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Return `[heads, rows, D]` turned by each row's rotary angles."""
    first, second = x.chunk(2, dim=-1)
    return x * cos + torch.cat([-second, first], dim=-1) * sin


class Mlp(nn.Module):
    """Gated feed-forward layer with SiLU."""

    def __init__(self, config: DrafterConfig) -> None:
        super().__init__()
        hidden, inner = config.hidden_size, config.intermediate_size
        self.gate_proj = nn.Linear(hidden, inner, bias=False)
        self.up_proj = nn.Linear(hidden, inner, bias=False)
        self.down_proj = nn.Linear(inner, hidden, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """Return `[b, H]` for `x` `[b, H]`."""
        return cast(Tensor, self.down_proj(functional.silu(self.gate_proj(x)) * self.up_proj(x)))


class Layer(nn.Module):
    """One pre-norm layer of the drafter."""

    def __init__(self, config: DrafterConfig) -> None:
        super().__init__()
        self.self_attn = Attention(config)
        self.mlp = Mlp(config)
        self.input_layernorm = nn.RMSNorm(config.hidden_size, eps=config.rms_norm_eps)
        self.post_attention_layernorm = nn.RMSNorm(config.hidden_size, eps=config.rms_norm_eps)

    def forward(
        self, block: Tensor, context: Tensor, rotation: LayerKv, past: LayerKv | None
    ) -> tuple[Tensor, LayerKv]:
        """Return as `Attention.forward`; the context is not normed again."""
        mixed, grown = self.self_attn(self.input_layernorm(block), context, rotation, past)
        block = block + mixed
        return block + self.mlp(self.post_attention_layernorm(block)), grown


class Drafter(nn.Module):
    """Turns target features and a masked block into the block's hidden states."""

    def __init__(self, config: DrafterConfig, rotary: Rotary) -> None:
        super().__init__()
        self.config = config
        features = config.hidden_size * len(config.dflash_config.target_layer_ids)
        self.fc = nn.Linear(features, config.hidden_size, bias=False)
        self.hidden_norm = nn.RMSNorm(config.hidden_size, eps=config.rms_norm_eps)
        self.layers = nn.ModuleList(Layer(config) for _ in range(config.num_hidden_layers))
        self.norm = nn.RMSNorm(config.hidden_size, eps=config.rms_norm_eps)
        self._rotary = rotary

    @torch.inference_mode()
    def forward(self, block: Tensor, features: Tensor, cache: DrafterCache) -> Tensor:
        """Return the block's final hidden states `[b, H]` and grow `cache` by the features.

        Args:
            block: `[b, H]`, the target's embeddings of the bonus token and b − 1 mask tokens.
            features: `[T, F]`, the target's for the tokens since the last block; with the cached
                ones they cover every token before the bonus token.
            cache: changed in place; the block itself is not kept.
        """
        start = cache[0][0].shape[1] if cache else 0
        positions = torch.arange(start, start + len(features) + len(block))
        cos, sin = self._rotary(block, positions[None])
        context = self.hidden_norm(self.fc(features))  # [T, H]
        for index, layer in enumerate(self.layers):
            past = cache[index] if start else None
            block, grown = layer(block, context, (cos[0], sin[0]), past)
            cache[index : index + 1] = [grown]  # appends on the first block, replaces later
        return cast(Tensor, self.norm(block))


def load_drafter(path: Path, dtype: str) -> Drafter:
    """Return the drafter in a z-lab checkpoint directory, in evaluation mode.

    Raises ValueError naming file and key if the checkpoint is incomplete or of a kind that this
    engine does not run.
    """
    values = _read_json(path / "config.json")
    config = read_config(path / "config.json", values)
    rotary = Qwen3RotaryEmbedding(Qwen3Config(**_without_dflash(values)))
    # The bound method, not the module: `.to(dtype)` must not round the angles.
    drafter = Drafter(config, rotary.forward)
    _load_weights(drafter, path / "model.safetensors")
    return drafter.to(DTYPES[dtype]).eval()


def read_config(path: Path, values: dict[str, Any]) -> DrafterConfig:
    """Return the checked content of `config.json`; ValueError lists every bad key."""
    try:
        return DrafterConfig.model_validate(values)
    except ValidationError as error:
        faults = [f"  {'.'.join(map(str, e['loc'])) or 'file'}: {e['msg']}" for e in error.errors()]
        raise ValueError(
            "\n".join([f"{path}: not a DFlash checkpoint that this engine runs", *faults])
        ) from error


def _without_dflash(values: dict[str, Any]) -> dict[str, Any]:
    """Return the keys that describe a plain Qwen3 stack, for its rotary embedding."""
    return {k: v for k, v in values.items() if k not in {"dflash_config", "architectures", "dtype"}}


def _read_json(path: Path) -> dict[str, Any]:
    try:
        values = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise ValueError(f"{path}: no such file; give a DFlash checkpoint directory") from None
    except json.JSONDecodeError as error:
        raise ValueError(f"{path}:{error.lineno}: not JSON: {error.msg}") from error
    if not isinstance(values, dict):
        raise ValueError(f"{path}: must hold a JSON object")
    return values


def _load_weights(drafter: Drafter, path: Path) -> None:
    """Fill `drafter` from a safetensors file; ValueError lists tensors that do not fit."""
    if not path.is_file():
        raise ValueError(f"{path}: no such file")
    weights = load_file(path)
    wanted = {name: tuple(tensor.shape) for name, tensor in drafter.state_dict().items()}
    found = {name: tuple(tensor.shape) for name, tensor in weights.items()}
    if wanted != found:
        wrong = sorted(set(wanted.items()) ^ set(found.items()))
        names = ", ".join(sorted({name for name, _ in wrong}))
        raise ValueError(f"{path}: missing, unknown or misshapen tensors for its config: {names}")
    drafter.load_state_dict(weights)
