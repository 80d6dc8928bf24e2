"""A llama GGUF file as a Hugging Face folder in bfloat16, without torch.

GGUF stores the rows of the query and key projections in an order of its own (rotary pairs next to
each other); Hugging Face keeps the two halves apart. Everything else is a change of names.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from gguf import GGUFReader
from gguf.quants import dequantize
from ml_dtypes import bfloat16
from safetensors.numpy import save_file
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

from ddtree_bench.errors import MachineError

Float32 = npt.NDArray[np.float32]

WEIGHTS = "model.safetensors"
CONTROL_TOKEN = 3  # GGUF's token type of special tokens
TOP_LEVEL = {
    "token_embd.weight": "model.embed_tokens.weight",
    "output_norm.weight": "model.norm.weight",
    "output.weight": "lm_head.weight",
}
IN_LAYER = {
    "attn_norm": "input_layernorm",
    "ffn_norm": "post_attention_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}


def convert(source: Path, folder: Path) -> None:
    """Write weights, configuration, tokenizer and chat template of `source` into `folder`.

    The weights are written last: a folder that has them is complete.

    Raises:
        MachineError: the file is not a llama model with SmolLM's byte-level BPE tokenizer.
    """
    reader = GGUFReader(source)
    _refuse_other_models(reader, source)
    folder.mkdir(parents=True, exist_ok=True)
    _write_json(folder / "config.json", _config(reader))
    _write_json(folder / "generation_config.json", _special_ids(reader))
    _write_tokenizer(reader, folder)
    weights = {name: weight.astype(bfloat16) for name, weight in _weights(reader)}
    save_file(weights, folder / WEIGHTS, metadata={"format": "pt"})


def _refuse_other_models(reader: GGUFReader, source: Path) -> None:
    needed = {"general.architecture": "llama", "tokenizer.ggml.pre": "smollm"}
    for key, value in needed.items():
        found = _field(reader, key)
        if found != value:
            raise MachineError(f"{key} is {found!r}, only {value!r} is known", where=str(source))


def _field(reader: GGUFReader, key: str) -> Any:  # noqa: ANN401 - GGUF fields hold any type
    return reader.fields[key].contents() if key in reader.fields else None


def _special_ids(reader: GGUFReader) -> dict[str, int]:
    names = {"bos": "bos", "eos": "eos", "pad": "padding"}
    return {
        f"{ours}_token_id": _field(reader, f"tokenizer.ggml.{theirs}_token_id")
        for ours, theirs in names.items()
    }


def _config(reader: GGUFReader) -> dict[str, Any]:
    heads = _field(reader, "llama.attention.head_count")
    hidden = _field(reader, "llama.embedding_length")
    # stored as float32: six digits give back the decimal number that was meant
    epsilon = float(f"{_field(reader, 'llama.attention.layer_norm_rms_epsilon'):.6g}")
    return {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "attention_bias": False,
        "attention_dropout": 0.0,
        "hidden_act": "silu",
        "hidden_size": hidden,
        "head_dim": hidden // heads,
        "intermediate_size": _field(reader, "llama.feed_forward_length"),
        "max_position_embeddings": _field(reader, "llama.context_length"),
        "mlp_bias": False,
        "num_attention_heads": heads,
        "num_hidden_layers": _field(reader, "llama.block_count"),
        "num_key_value_heads": _field(reader, "llama.attention.head_count_kv"),
        "rms_norm_eps": epsilon,
        "rope_scaling": None,
        "rope_theta": _field(reader, "llama.rope.freq_base"),
        "tie_word_embeddings": all(tensor.name != "output.weight" for tensor in reader.tensors),
        "torch_dtype": "bfloat16",
        "use_cache": True,
        "vocab_size": _field(reader, "llama.vocab_size"),
        **_special_ids(reader),
    }


def _weights(reader: GGUFReader) -> Iterator[tuple[str, Float32]]:
    """Hugging Face names with weights, `[out, in]` or `[out]`."""
    heads = {
        "attn_q": _field(reader, "llama.attention.head_count"),
        "attn_k": _field(reader, "llama.attention.head_count_kv"),
    }
    for tensor in reader.tensors:
        shape = [int(size) for size in tensor.shape[::-1]]  # GGUF counts the other way round
        weight = dequantize(tensor.data, tensor.tensor_type).astype(np.float32).reshape(shape)
        if tensor.name in TOP_LEVEL:
            yield TOP_LEVEL[tensor.name], weight
            continue
        _, layer, part, kind = tensor.name.split(".")
        if part in heads:
            weight = _unpermute(weight, heads[part])
        yield f"model.layers.{layer}.{IN_LAYER[part]}.{kind}", weight


def _unpermute(weight: Float32, heads: int) -> Float32:
    """Rows of a rotary projection: from pairs next to each other to the halves one by one."""
    rows, columns = weight.shape
    pairs = weight.reshape(heads, rows // heads // 2, 2, columns)
    return pairs.swapaxes(1, 2).reshape(rows, columns)


def _write_tokenizer(reader: GGUFReader, folder: Path) -> None:
    tokens: list[str] = _field(reader, "tokenizer.ggml.tokens")
    types: list[int] = _field(reader, "tokenizer.ggml.token_type")
    template: str = _field(reader, "tokenizer.chat_template")
    special = [token for token, kind in zip(tokens, types, strict=True) if kind == CONTROL_TOKEN]
    _tokenizer(tokens, _field(reader, "tokenizer.ggml.merges"), special).save(
        str(folder / "tokenizer.json")
    )
    ids = _special_ids(reader)
    settings = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "add_prefix_space": False,
        "clean_up_tokenization_spaces": False,
        "model_max_length": _field(reader, "llama.context_length"),
        "chat_template": template,
        **{key.removesuffix("_id"): tokens[value] for key, value in ids.items()},
    }
    _write_json(folder / "tokenizer_config.json", settings)
    (folder / "chat_template.jinja").write_text(template, encoding="utf-8")


def _tokenizer(tokens: list[str], merges: list[str], special: list[str]) -> Tokenizer:
    """Byte-level BPE with digits one by one, as SmolLM's own tokenizer."""
    pairs = [(left, right) for left, right in (merge.split(" ", 1) for merge in merges)]
    vocabulary = {token: number for number, token in enumerate(tokens)}
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=pairs))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Digits(individual_digits=True),
            pre_tokenizers.ByteLevel(add_prefix_space=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens(
        [AddedToken(token, special=True, normalized=False) for token in special]
    )
    return tokenizer


def _write_json(path: Path, data: dict[str, Any]) -> None:
    path.write_text(json.dumps(data, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
