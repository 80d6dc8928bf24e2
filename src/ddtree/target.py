"""The target model: one forward over a prefix or a draft tree, and its KV cache.

Shape letters: T tokens of a forward, P cached prefix, N nodes of a tree, H hidden size, V
vocabulary, F features (taps × H).
"""

import inspect
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Protocol, cast

import torch
from torch import Tensor, nn
from torch.nn import functional
from transformers import AutoConfig, AutoModelForCausalLM, DynamicCache, PretrainedConfig
from transformers.modeling_outputs import CausalLMOutputWithPast

from ddtree.tree import DraftTree

DTYPES: Final = {
    "float32": torch.float32,
    "bfloat16": torch.bfloat16,
    "float16": torch.float16,
}


class KvLayer(Protocol):
    """What this module uses of a layer of a transformers cache, both `[1, heads, P, head]`."""

    keys: Tensor
    values: Tensor


class KvCache(Protocol):
    """What this module uses of a transformers cache."""

    layers: list[KvLayer]

    def get_seq_length(self) -> int:
        """Return P."""
        ...


@dataclass(frozen=True, slots=True, eq=False)
class Scored:
    """What a forward of the target says about its tokens.

    Attributes:
        logits: `[N, V]`, one row a scored token: the last of a prompt, all of a tree.
        features: `[T, F]`, hidden states after the tapped layers; F = 0 without taps.
    """

    logits: Tensor
    features: Tensor


class Target:
    """A causal language model of transformers that can verify draft trees at batch 1."""

    def __init__(self, model: nn.Module, taps: Sequence[int] = ()) -> None:
        self.model = model
        self.taps = tuple(taps)
        self.config = cast(PretrainedConfig, model.config)
        text_config = self.config.get_text_config(decoder=True)
        self.hidden_size = int(text_config.hidden_size)
        self.layer_count = int(text_config.num_hidden_layers)
        self.vocab_size = int(text_config.vocab_size)
        self.context_length = int(text_config.max_position_embeddings)
        self.eos_token_ids = _eos_token_ids(model)
        # transformers renames `past_key_values` to `cache`; until 5.40 both may be installed.
        parameters = inspect.signature(model.forward).parameters
        self._cache_argument = "cache" if "cache" in parameters else "past_key_values"

    @property
    def head(self) -> nn.Module:
        """The layer from hidden states to logits, which the drafter shares."""
        return cast(nn.Module, cast(Any, self.model).get_output_embeddings())

    def embed(self, tokens: Tensor) -> Tensor:
        """Return `[T, H]` embeddings of `tokens` `[T]`, unscaled, as DFlash trains on them."""
        weight = cast(Any, self.model).get_input_embeddings().weight
        return functional.embedding(tokens, weight)

    def new_cache(self) -> KvCache:
        """Return an empty cache with the kind of layer that the model asks for."""
        return cast(KvCache, DynamicCache(config=self.config))

    def extend(self, tokens: Sequence[int], cache: KvCache) -> Scored:
        """Append `tokens` to the cache; logits `[1, V]` are those after the last."""
        start = cache.get_seq_length()
        positions = torch.arange(start, start + len(tokens))
        return self._forward(torch.tensor(tokens), positions, None, cache, logits_to_keep=1)

    def verify(self, tree: DraftTree, cache: KvCache) -> Scored:
        """Append all nodes of a tree to the cache; logits `[N, V]` are those after each node.

        A node sees the P cached tokens and its own path; its position is P + depth. Call
        `commit` afterwards.
        """
        prefix = cache.get_seq_length()
        mask = tree_mask(tree.mask, prefix, self._dtype)
        return self._forward(tree.tokens, prefix + tree.depths, mask, cache, logits_to_keep=0)

    @torch.inference_mode()
    def _forward(
        self,
        tokens: Tensor,
        positions: Tensor,
        mask: Tensor | None,
        cache: KvCache,
        logits_to_keep: int,
    ) -> Scored:
        output = self.model(
            input_ids=tokens[None],
            position_ids=positions[None],
            attention_mask=mask,
            use_cache=True,
            output_hidden_states=bool(self.taps),
            logits_to_keep=logits_to_keep,
            **{self._cache_argument: cache},
        )
        return Scored(logits=output.logits[0], features=self._features(output, len(tokens)))

    def _features(self, output: CausalLMOutputWithPast, length: int) -> Tensor:
        """Return `[T, F]`; entry 0 of transformers' hidden states is the embedding, hence + 1."""
        if not self.taps:
            return torch.empty(length, 0)
        states = cast(tuple[Tensor, ...], output.hidden_states)
        return torch.cat([states[tap + 1][0] for tap in self.taps], dim=-1)

    @property
    def _dtype(self) -> torch.dtype:
        return cast(torch.dtype, self.model.dtype)


def _eos_token_ids(model: nn.Module) -> frozenset[int]:
    """Return the ids that end a text: the generation config's, else the model config's."""
    for config in (getattr(model, "generation_config", None), model.config):
        ids = getattr(config, "eos_token_id", None)
        if ids is not None:
            return frozenset([ids] if isinstance(ids, int) else ids)
    return frozenset()


def tree_mask(mask: Tensor, prefix: int, dtype: torch.dtype) -> Tensor:
    """Return the additive `[1, 1, N, P + N]` attention mask of a tree after P cached tokens.

    `mask`: `[N, N]` bool, as in `DraftTree`. 0 where attention is allowed, the least number of
    `dtype` elsewhere.
    """
    visible = torch.cat([mask.new_ones(len(mask), prefix), mask], dim=1)
    additive = torch.zeros(visible.shape, dtype=dtype)
    return additive.masked_fill_(~visible, torch.finfo(dtype).min)[None, None]


@torch.inference_mode()
def commit(cache: KvCache, path: Sequence[int], width: int) -> None:
    """Keep of the last `width` cached tokens those at `path`, in that order, and drop the rest.

    `path`: increasing offsets into the verified nodes, the root's 0 first.
    """
    prefix = cache.get_seq_length() - width
    kept = prefix + len(path)
    source = prefix + torch.tensor(path)
    straight = list(path) == list(range(len(path)))
    for layer in cache.layers:
        if not straight:
            layer.keys[:, :, prefix:kept] = layer.keys[:, :, source]
            layer.values[:, :, prefix:kept] = layer.values[:, :, source]
        layer.keys = layer.keys[:, :, :kept]
        layer.values = layer.values[:, :, :kept]


def load_target(path: Path, dtype: str, taps: Sequence[int] = ()) -> Target:
    """Return the model in a Hugging Face directory, in evaluation mode.

    Raises ValueError if `path` is no directory, or the model has layers that cannot hold a tree
    (sliding-window or recurrent) although `taps` ask for one.
    """
    if not path.is_dir():
        raise ValueError(f"{path}: no such model directory")
    config = AutoConfig.from_pretrained(path)
    if taps:
        _require_full_attention(path, config.get_text_config(decoder=True))
    model = AutoModelForCausalLM.from_pretrained(path, config=config, dtype=DTYPES[dtype])
    return Target(cast(nn.Module, model).eval(), taps)


def _require_full_attention(path: Path, config: PretrainedConfig) -> None:
    """Raise ValueError if a layer is not plain full attention."""
    kinds = set(getattr(config, "layer_types", None) or ["full_attention"])
    window = getattr(config, "sliding_window", None)
    by_window = not hasattr(config, "layer_types") and window is not None
    if kinds != {"full_attention"} or by_window:
        raise ValueError(
            f"{path / 'config.json'}: layers {', '.join(sorted(kinds))}, sliding_window {window}; "
            "trees need full attention in every layer, run this model with algorithm AR"
        )
