"""Whole small benchmarks from a few words: tiny model, prompts, a spec with a fake server."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

from ddtree_bench.config import Config
from ddtree_bench.records import (
    CellId,
    CellRecord,
    Event,
    RequestRecord,
    Sampling,
    SpecCounts,
)
from ddtree_bench.session.spec import SessionSpec
from ddtree_bench.status import Status

FAKE_ENGINE = str(Path(__file__).with_name("fake_engine.py"))
"""An interpreter in which every engine is the fake server; `args` go to it."""

FIRST_MEASURED = 4
"""Number of a `bench`'s first measured request: one is for readiness, two are warm-up.

Its prompts are shorter than the text of the warm-up, so that no longer one is sent first.
"""


def bench(folder: Path, text: str = "", **server: Any) -> SessionSpec:
    """The spec of one session against the fake server.

    Args:
        folder: an empty folder; model, prompts and results go below it.
        text: YAML that is laid over the configuration, section by section.
        server: keys of the server, such as `args=["--fault", "die@4"]`.
    """
    prompts = write_prompts(folder / "prompts.jsonl", count=2)
    model = write_model(folder / "model")
    workload = {"class": "short", "prompts": str(prompts), "max_new_tokens": 12}
    base = {
        "run": "fake",
        "servers": {"one": {"model": str(model), "python": FAKE_ENGINE, **server}},
        "workloads": {"short": workload, "longform": {**workload, "class": "longform"}},
        "protocol": {
            "launches": 1,
            "request_timeout_s": 5,
            # speed of a fake server never decides how many requests the warm-up makes
            "warmup": {"min_requests": 2, "max_requests": 2},
        },
        "analysis": {"baseline": "one"},
    }
    config = Config.model_validate(_over(base, yaml.safe_load(text) or {}))
    return SessionSpec.of(config, "one", 1)


def write_prompts(path: Path, count: int) -> Path:
    """A prompt file with so many one-turn prompts."""
    path.parent.mkdir(parents=True, exist_ok=True)
    lines = [json.dumps({"id": f"p{n}", "turns": [f"Say the number {n}."]}) for n in range(count)]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def write_model(folder: Path) -> Path:
    """A folder with a tokenizer of single bytes, a chat template, and weights that are none."""
    folder.mkdir(parents=True)
    specials = ["<|pad|>", "<|start|>", "<|end|>"]
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocabulary = {token: number for number, token in enumerate([*specials, *alphabet])}
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([AddedToken(token, special=True) for token in specials])
    tokenizer.save(str(folder / "tokenizer.json"))
    template = (
        "{% for m in messages %}<|start|>{{ m.role }}\n{{ m.content }}<|end|>\n{% endfor %}"
        "{% if add_generation_prompt %}<|start|>assistant\n{% endif %}"
    )
    settings = {"chat_template": template, "eos_token": "<|end|>"}
    (folder / "tokenizer_config.json").write_text(json.dumps(settings), encoding="utf-8")
    (folder / "generation_config.json").write_text('{"eos_token_id": 2}', encoding="utf-8")
    (folder / "config.json").write_text('{"vocab_size": 259}', encoding="utf-8")
    (folder / "model.safetensors").write_bytes(b"weights")
    return folder


def cell_id(**changes: Any) -> CellId:
    """A cell's name."""
    fields = {"server": "one", "launch": 1, "workload": "short", "concurrency": 1, "repeat": 1}
    return CellId(**{**fields, **changes})


def cell_record(**changes: Any) -> CellRecord:
    """A cell that ended well."""
    fields: dict[str, Any] = {
        "key": "k" * 64,
        "protocol": 1,
        "cell": cell_id(),
        "round": 1,
        "workload_class": "short",
        "status": Status.OK,
        "started_unix_s": 1000.0,
        "ended_unix_s": 1002.0,
    }
    return CellRecord(**{**fields, **changes})


def request_record(**changes: Any) -> RequestRecord:
    """A streamed request of four tokens in two verify steps that is whole in every respect."""
    fields: dict[str, Any] = {
        "cell": cell_id(),
        "prompt_id": "p0",
        "turn": 0,
        "prompt_sha256": "0" * 64,
        "route": "generate",
        "stream": True,
        "sampling": Sampling(max_new_tokens=4),
        "sent_unix_s": 1000.0,
        "events": (Event(at_s=0.1, tokens=1), Event(at_s=0.2, tokens=4)),
        "end_s": 0.2,
        "text": "abcd",
        "output_ids": (10, 11, 12, 13),
        "prompt_tokens": 200,
        "completion_tokens": 4,
        "cached_tokens": 0,
        "finish_reason": "length",
        # one step accepted none, one accepted one: 0 + 1 accepted drafts in 2 steps
        "spec": SpecCounts(verify_steps=2, accepted_drafts=1, histogram=(1, 1)),
    }
    return RequestRecord(**{**fields, **changes})


def _over(base: Mapping[str, Any], top: Mapping[str, Any]) -> dict[str, Any]:
    merged = dict(base)
    for key, value in top.items():
        below = merged.get(key)
        both = isinstance(below, Mapping) and isinstance(value, Mapping)
        merged[key] = _over(below, value) if both else value
    return merged
