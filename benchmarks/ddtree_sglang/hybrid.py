"""Trees on a hybrid target, whose recurrent layers must follow the accepted path and no sibling.

Target and drafter have random weights and a vocabulary of 16 tokens, so a tree with 8 candidates a
depth holds the target's next token in about half of all steps, mostly off the spine. A state that
leaks from a sibling, or that is taken at another node than the path's last, then shows as tokens
that the target would not have chosen: its logits are far apart.

The target judges answers by reading them, in chunks; plain decoding goes token by token, and rounds
otherwise. So some of its own tokens are not its choice either, and that share is the control.
"""

from __future__ import annotations

import json
import math
import shutil
import tempfile
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
from asking import Answer, Question, Server
from estimates import quantiles, same_distribution
from numpy.typing import NDArray
from padding import CONFIG, WEIGHTS, write_tensors
from run import Run
from sameness import LEAST_P, NEAR_TIE_NATS, acceptance
from servers import JsonObject, Launch, Plan

VOCABULARY, HIDDEN, LAYERS, EVERY = 16, 512, 8, 4
"""Every fourth layer is attention, the others are Gated DeltaNet."""
HEADS, KEY_HEADS, HEAD = 4, 2, 128
STATE_KEYS, STATE_VALUES = 4, 8
"""Heads of a Gated DeltaNet layer."""
EXPERTS, EXPERT = 4, 256
FEATURE_LAYERS, DRAFT_LAYERS, BLOCK = (1, 3, 5), 2, 16
LOGITS_STD, DRAFT_SCALE = 8.0, 0.1
"""The target is sure of its tokens; the drafter is not, so its trees are wide."""
PROMPTS, PROMPT_TOKENS, MORE_TOKENS, TOKENS, AT_ONCE = 12, 40, 9, 96, 8
PLAIN, CHAIN = "hybrid-ar", "hybrid-dflash"
TREES = {"hybrid-ddtree-b15": 15, "hybrid-ddtree-b64": 64}
EAGER = "hybrid-ddtree-b15-eager"
# the warm-up request is made of the tokenizer's ids, which this vocabulary has not
ARGS = ("--max-running-requests", "8", "--max-mamba-cache-size", "64", "--skip-server-warmup")
Arrays = dict[str, NDArray[np.float32]]


def plans(launch: Launch) -> list[Plan]:
    """Plain decoding, chain and trees on the random target; writes the models."""
    folder = Path(tempfile.mkdtemp(prefix="ddtree-hybrid-"))
    rng = np.random.default_rng(0)
    tokenizer = Path(launch.target)
    target = write_model(folder / "target", target_config(), target_weights(rng), tokenizer)
    drafter = write_model(folder / "drafter", drafter_config(), drafter_weights(rng), tokenizer)
    args = ("--model-path", str(target), *ARGS)
    own = Launch(str(target), str(drafter), launch.out)
    trees = {name: own.tree(budget, 8, BLOCK, *args).args for name, budget in TREES.items()}
    trees[EAGER] = own.tree(15, 8, BLOCK, *args, "--disable-cuda-graph").args
    return [
        Plan(PLAIN, args),
        Plan(CHAIN, own.chain(BLOCK, *args).args),
        *(Plan(name, flags) for name, flags in trees.items()),
    ]


def compare(run: Run) -> JsonObject:
    """Answers are the target's choice as often as plain decoding's, also behind cached prefixes."""
    names = [PLAIN, CHAIN, *TREES, EAGER]
    servers = run.servers(*names)
    rng = np.random.default_rng(1)
    first = [Question("hybrid", _random_ids(rng, PROMPT_TOKENS + i)) for i in range(PROMPTS)]
    more = [_random_ids(rng, MORE_TOKENS) for _ in first]
    result: JsonObject = {}
    tokens: dict[str, Counter[bool]] = {}
    for server in servers:
        alone = server.loop(first, 1, TOKENS, ignore_eos=True).answers
        at_once = server.loop(first, AT_ONCE, TOKENS, ignore_eos=True).answers
        again = [
            Question("hybrid", (*question.ids, *answer.ids, *ids))
            for question, answer, ids in zip(first, alone, more, strict=True)
        ]
        behind = server.loop(again, AT_ONCE, TOKENS, ignore_eos=True).answers
        nats = {
            "alone": _nats(servers[0], first, alone),
            "at_once": _nats(servers[0], first, at_once),
            "behind_a_cached_prefix": _nats(servers[0], again, behind),
        }
        tokens[server.name] = Counter(n > NEAR_TIE_NATS for some in nats.values() for n in some)
        result[server.name] = {what: _figures(some) for what, some in nats.items()}
        if server.name in (*TREES, EAGER):
            result[server.name] |= {"acceptance_length": acceptance(alone)}
            off_spine = sum(_off_spine(answer) for answer in alone)
            run.report.check(f"{server.name}: siblings are accepted", off_spine > 0, off_spine)
    for name in names[1:]:
        wrong, own = (tokens[each][True] / tokens[each].total() for each in (name, PLAIN))
        passed = wrong <= own or same_distribution(tokens[name], tokens[PLAIN]) >= LEAST_P
        found = f"{wrong:.4f} of {tokens[name].total()} are not, {own:.4f} of plain decoding's"
        run.report.check(f"{name}: tokens are the target's choice", passed, found)
    return result


def _nats(judge: Server, questions: Sequence[Question], answers: Sequence[Answer]) -> list[float]:
    """How far each token is behind what the target would choose in its place."""
    return [
        nats
        for question, answer in zip(questions, answers, strict=True)
        for nats in judge.regrets(question.ids, answer.ids)
    ]


def _figures(nats: Sequence[float]) -> JsonObject:
    return {
        "tokens": len(nats),
        "not_the_first_choice": sum(n > 0 for n in nats),
        "no_near_tie": sum(n > NEAR_TIE_NATS for n in nats),
        "nats": quantiles([n for n in nats if n > 0]),
    }


def _off_spine(answer: Answer) -> int:
    """Accepted nodes that were not the drafter's first choice at their depth."""
    by_rank = answer.fields["ddtree_accepted_by_rank"]
    assert isinstance(by_rank, list)
    return int(sum(by_rank[1:]))


def _random_ids(rng: np.random.Generator, count: int) -> tuple[int, ...]:
    return tuple(int(token) for token in rng.integers(3, VOCABULARY - 1, count))


# --- the models


def target_config() -> JsonObject:
    """A small Qwen3-Next: Gated DeltaNet, gated attention, mixtures of experts."""
    return {
        "architectures": ["Qwen3NextForCausalLM"],
        "model_type": "qwen3_next",
        "vocab_size": VOCABULARY,
        "hidden_size": HIDDEN,
        "intermediate_size": EXPERT,
        "num_hidden_layers": LAYERS,
        "full_attention_interval": EVERY,
        "num_attention_heads": HEADS,
        "num_key_value_heads": KEY_HEADS,
        "head_dim": HEAD,
        "hidden_act": "silu",
        "max_position_embeddings": 8192,
        "rms_norm_eps": 1e-6,
        "rope_theta": 10000.0,
        "partial_rotary_factor": 0.25,
        "tie_word_embeddings": False,
        "linear_conv_kernel_dim": 4,
        "linear_key_head_dim": HEAD,
        "linear_value_head_dim": HEAD,
        "linear_num_key_heads": STATE_KEYS,
        "linear_num_value_heads": STATE_VALUES,
        "num_experts": EXPERTS,
        "num_experts_per_tok": 2,
        "moe_intermediate_size": EXPERT,
        "shared_expert_intermediate_size": EXPERT,
        "norm_topk_prob": True,
        "decoder_sparse_step": 1,
        "mlp_only_layers": [],
        "dtype": "bfloat16",
        "bos_token_id": 1,
        "eos_token_id": 2,
    }


def target_weights(rng: np.random.Generator) -> Arrays:
    """Random weights; the recurrent layers forget over tens of tokens."""
    weights = {
        "model.embed_tokens.weight": _normal(rng, VOCABULARY, HIDDEN, std=1.0),
        "model.norm.weight": _zeros(HIDDEN),
        "lm_head.weight": _normal(rng, VOCABULARY, HIDDEN, std=LOGITS_STD / math.sqrt(HIDDEN)),
    }
    for layer in range(LAYERS):
        prefix = f"model.layers.{layer}."
        own = _attention(rng) if (layer + 1) % EVERY == 0 else _delta_net(rng)
        own |= {f"mlp.{name}": weight for name, weight in _experts(rng).items()}
        own["input_layernorm.weight"] = _zeros(HIDDEN)  # Gemma's norm: 1 is added
        own["post_attention_layernorm.weight"] = _zeros(HIDDEN)
        weights |= {prefix + name: weight for name, weight in own.items()}
    return weights


def _attention(rng: np.random.Generator) -> Arrays:
    shapes = {
        "q_proj": (2 * HEADS * HEAD, HIDDEN),  # queries and gates
        "k_proj": (KEY_HEADS * HEAD, HIDDEN),
        "v_proj": (KEY_HEADS * HEAD, HIDDEN),
        "o_proj": (HIDDEN, HEADS * HEAD),
    }
    weights = {f"self_attn.{name}.weight": _normal(rng, *shape) for name, shape in shapes.items()}
    return weights | {f"self_attn.{name}_norm.weight": _zeros(HEAD) for name in "qk"}


def _delta_net(rng: np.random.Generator) -> Arrays:
    keys, values = STATE_KEYS * HEAD, STATE_VALUES * HEAD
    forgets = rng.uniform(0.01, 0.3, STATE_VALUES).astype(np.float32)
    weights = {
        "in_proj_qkvz.weight": _normal(rng, 2 * keys + 2 * values, HIDDEN),
        "in_proj_ba.weight": _normal(rng, 2 * STATE_VALUES, HIDDEN),
        "conv1d.weight": _normal(rng, 2 * keys + values, 1, 4, std=0.5),
        "A_log": np.log(forgets),
        "dt_bias": _zeros(STATE_VALUES),
        "norm.weight": _zeros(HEAD) + 1,
        "out_proj.weight": _normal(rng, HIDDEN, values),
    }
    return {f"linear_attn.{name}": weight for name, weight in weights.items()}


def _experts(rng: np.random.Generator) -> Arrays:
    weights = {"gate.weight": _normal(rng, EXPERTS, HIDDEN)}
    weights["shared_expert_gate.weight"] = _normal(rng, 1, HIDDEN)
    for name in ("shared_expert", *(f"experts.{number}" for number in range(EXPERTS))):
        weights |= {f"{name}.{part}": weight for part, weight in _mlp(rng, EXPERT).items()}
    return weights


def _mlp(rng: np.random.Generator, inner: int) -> Arrays:
    return {
        "gate_proj.weight": _normal(rng, inner, HIDDEN),
        "up_proj.weight": _normal(rng, inner, HIDDEN),
        "down_proj.weight": _normal(rng, HIDDEN, inner),
    }


def drafter_config() -> JsonObject:
    """A DFlash drafter for that target."""
    return {
        "architectures": ["DFlashDraftModel"],
        "model_type": "qwen3",
        "block_size": BLOCK,
        "dflash_config": {
            "mask_token_id": VOCABULARY - 1,
            "target_layer_ids": list(FEATURE_LAYERS),
        },
        "vocab_size": VOCABULARY,
        "hidden_size": HIDDEN,
        "intermediate_size": 2 * HIDDEN,
        "num_hidden_layers": DRAFT_LAYERS,
        "num_attention_heads": HEADS,
        "num_key_value_heads": KEY_HEADS,
        "num_target_layers": LAYERS,
        "head_dim": HEAD,
        "hidden_act": "silu",
        "attention_bias": False,
        "max_position_embeddings": 8192,
        "rms_norm_eps": 1e-6,
        "rope_theta": 10000.0,
        "tie_word_embeddings": True,
        "dtype": "bfloat16",
        "bos_token_id": 1,
        "eos_token_id": 2,
    }


def drafter_weights(rng: np.random.Generator) -> Arrays:
    """Random weights."""
    ones = _zeros(HIDDEN) + 1
    weights = {
        "fc.weight": _normal(rng, HIDDEN, len(FEATURE_LAYERS) * HIDDEN),
        "hidden_norm.weight": ones,
        "norm.weight": ones * DRAFT_SCALE,
    }
    for layer in range(DRAFT_LAYERS):
        own = {f"mlp.{name}": weight for name, weight in _mlp(rng, 2 * HIDDEN).items()}
        own |= {
            "self_attn.q_proj.weight": _normal(rng, HEADS * HEAD, HIDDEN),
            "self_attn.k_proj.weight": _normal(rng, KEY_HEADS * HEAD, HIDDEN),
            "self_attn.v_proj.weight": _normal(rng, KEY_HEADS * HEAD, HIDDEN),
            "self_attn.o_proj.weight": _normal(rng, HIDDEN, HEADS * HEAD),
            "self_attn.q_norm.weight": _zeros(HEAD) + 1,
            "self_attn.k_norm.weight": _zeros(HEAD) + 1,
            "input_layernorm.weight": ones,
            "post_attention_layernorm.weight": ones,
        }
        weights |= {f"layers.{layer}.{name}": weight for name, weight in own.items()}
    return weights


def _normal(rng: np.random.Generator, *shape: int, std: float | None = None) -> NDArray[np.float32]:
    """Normal weights; unless told otherwise, outputs are as large as inputs."""
    scale = 1 / math.sqrt(shape[-1]) if std is None else std
    return (rng.standard_normal(shape) * scale).astype(np.float32)


def _zeros(count: int) -> NDArray[np.float32]:
    return np.zeros(count, dtype=np.float32)


def write_model(
    folder: Path, config: JsonObject, weights: Mapping[str, NDArray[np.float32]], tokenizer: Path
) -> Path:
    """Write a checkpoint with the tokenizer of another model; return its folder."""
    folder.mkdir(parents=True)
    (folder / CONFIG).write_text(json.dumps(config, indent=1) + "\n", encoding="utf-8")
    for name in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copyfile(tokenizer / name, folder / name)
    bits = {name: ("F32", weight.view(np.uint32)) for name, weight in weights.items()}
    write_tensors(folder / WEIGHTS, {"format": "pt"}, bits)
    return folder
