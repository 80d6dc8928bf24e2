"""A model's copy with more heads, all weights of the added ones zero, so that it computes the same.

Two ranks of tensor parallelism cannot share SmolLM2-135M's 9 query and 3 key heads; 12 and 4 they
can. The added heads' outputs meet zero columns of the output projection, so they add nothing.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

WEIGHTS, CONFIG = "model.safetensors", "config.json"
BITS = {"BF16": np.uint16, "F16": np.uint16, "F32": np.uint32}
"""Weights are moved as bits, of which all zero is the number 0 in each type."""
Bits = NDArray[np.uint16] | NDArray[np.uint32]


def pad_heads(source: Path, into: Path, key_heads: int = 4) -> Path:
    """Write a copy of the model in `source` with so many key heads; return `into`.

    Query heads a key head stay as many as they are.

    Raises:
        ValueError: it has more key heads already.
    """
    config = json.loads((source / CONFIG).read_text(encoding="utf-8"))
    queries, keys = config["num_attention_heads"], config["num_key_value_heads"]
    if keys > key_heads:
        raise ValueError(f"{source} has {keys} key heads, more than {key_heads}")
    size = config.get("head_dim") or config["hidden_size"] // queries
    query_heads = key_heads * queries // keys
    rows = {"q_proj": query_heads * size, "k_proj": key_heads * size, "v_proj": key_heads * size}
    into.mkdir(parents=True, exist_ok=True)
    for path in source.iterdir():
        if path.is_file() and path.name not in (WEIGHTS, CONFIG):
            shutil.copyfile(path, into / path.name)
    header, body = _read(source / WEIGHTS)
    for name, (kind, weight) in body.items():
        part = name.split(".")[-2] if "." in name else ""
        if part in rows:
            weight = _grown(weight, 0, rows[part])
        elif part == "o_proj":
            weight = _grown(weight, 1, rows["q_proj"])
        body[name] = (kind, weight)
    write_tensors(into / WEIGHTS, header, body)
    config |= {
        "num_attention_heads": query_heads,
        "num_key_value_heads": key_heads,
        "head_dim": size,
    }
    (into / CONFIG).write_text(json.dumps(config, indent=1) + "\n", encoding="utf-8")
    return into


def _grown(weight: Bits, axis: int, length: int) -> Bits:
    """The weight with zeros behind, up to `length` along `axis`."""
    widths = [(0, 0)] * weight.ndim
    widths[axis] = (0, length - weight.shape[axis])
    return np.pad(weight, widths)


def _read(path: Path) -> tuple[dict[str, str], dict[str, tuple[str, Bits]]]:
    """Metadata, and type and bits of each tensor, of a safetensors file."""
    data = path.read_bytes()
    length = int.from_bytes(data[:8], "little")
    header = json.loads(data[8 : 8 + length])
    metadata = header.pop("__metadata__", {})
    tensors = {}
    for name, entry in header.items():
        begin, end = (8 + length + offset for offset in entry["data_offsets"])
        bits = np.frombuffer(data[begin:end], dtype=BITS[entry["dtype"]])
        tensors[name] = (entry["dtype"], bits.reshape(entry["shape"]))
    return metadata, tensors


def write_tensors(
    path: Path, metadata: dict[str, str], tensors: Mapping[str, tuple[str, Bits]]
) -> None:
    """Write a safetensors file: metadata, and type and bits of each tensor."""
    header: dict[str, object] = {"__metadata__": metadata} if metadata else {}
    at = 0
    for name, (kind, bits) in tensors.items():
        header[name] = {
            "dtype": kind,
            "shape": list(bits.shape),
            "data_offsets": [at, at + bits.nbytes],
        }
        at += bits.nbytes
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with path.open("wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        for _, bits in tensors.values():
            file.write(bits.tobytes())
