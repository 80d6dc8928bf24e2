"""The reference engine: one target, at most one drafter, one request at a time on the CPU."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, get_args

import torch

from ddtree.decoding import (
    Drafting,
    Ending,
    Reporting,
    Step,
    StepTrace,
    StepTree,
    TokenLogProbs,
    decode_drafted,
    decode_plain,
)
from ddtree.drafter import Drafter, load_drafter
from ddtree.sampling import Sampling, picker
from ddtree.target import DTYPES, Target, load_target

__all__ = [
    "Algorithm",
    "Engine",
    "EngineSpec",
    "Sampling",
    "Step",
    "StepTrace",
    "StepTree",
    "TokenLogProbs",
]

Algorithm = Literal["AR", "DFLASH", "DDTREE"]


@dataclass(frozen=True, slots=True)
class EngineSpec:
    """What an engine runs; contradictions raise ValueError.

    Attributes:
        target_path: Hugging Face directory of the target.
        drafter_path: z-lab checkpoint directory; None for AR.
        algorithm: AR plain, DFLASH one drafted chain a step, DDTREE a tree.
        block_size: positions that the drafter fills a step, the bonus token's included; None
            takes the checkpoint's. A chain verifies as many tokens.
        budget: nodes of a tree besides the root; DDTREE only.
        topk_cap: candidates a depth; DDTREE only, None takes the budget (more cannot matter).
        dtype: of weights and activations.
        threads: of PyTorch, in the whole process; None leaves them.
        context_length: most tokens of prompt and text; None takes the target's.
    """

    target_path: Path
    drafter_path: Path | None
    algorithm: Algorithm
    block_size: int | None
    budget: int | None
    topk_cap: int | None
    dtype: str = "float32"
    threads: int | None = None
    context_length: int | None = None

    def __post_init__(self) -> None:
        """Raise ValueError for a contradiction that needs no model to see."""
        if self.algorithm not in get_args(Algorithm):
            raise ValueError(f"algorithm must be AR, DFLASH or DDTREE, got {self.algorithm!r}")
        if self.dtype not in DTYPES:
            raise ValueError(f"dtype must be one of {', '.join(DTYPES)}, got {self.dtype!r}")
        self._check_options()
        for name, least in (
            ("block_size", 1),
            ("budget", 0),
            ("topk_cap", 1),
            ("threads", 1),
            ("context_length", 2),
        ):
            value = getattr(self, name)
            if value is not None and value < least:
                raise ValueError(f"{name} must be {least} or more, got {value}")

    def _check_options(self) -> None:
        """Raise ValueError if an option is missing or belongs to another algorithm."""
        options = {
            "drafter_path": self.algorithm != "AR",
            "block_size": self.algorithm != "AR",
            "budget": self.algorithm == "DDTREE",
            "topk_cap": self.algorithm == "DDTREE",
        }
        for name, used in options.items():
            if getattr(self, name) is not None and not used:
                raise ValueError(f"{name} has no effect with algorithm {self.algorithm}: drop it")
            if getattr(self, name) is None and used and name in {"drafter_path", "budget"}:
                raise ValueError(f"algorithm {self.algorithm} needs {name}")


class Engine:
    """A loaded target with or without drafter; holds no state between requests.

    Attributes:
        spec: what was loaded.
        target: the model that decides every token.
        drafter: None for AR.
        vocab_size: ids of a prompt lie below it.
        context_length: most tokens of prompt and text together.
        eos_token_ids: ids that end a text.
        verify_width: tokens of a verify pass: 1 plain, b for a chain, budget + 1 for a tree.
    """

    def __init__(self, spec: EngineSpec, target: Target, drafter: Drafter | None) -> None:
        self.spec = spec
        self.target = target
        self.drafter = drafter
        self.vocab_size = target.vocab_size
        own = target.context_length
        self.context_length = own if spec.context_length is None else spec.context_length
        self.eos_token_ids = target.eos_token_ids
        self._check_against_target()
        self._drafting = None if drafter is None else self._resolve(drafter)
        self.verify_width = 1 if self._drafting is None else self._drafting.budget + 1

    @classmethod
    def load(cls, spec: EngineSpec) -> "Engine":
        """Return an engine ready to generate; ValueError says what does not fit."""
        if spec.threads is not None:
            torch.set_num_threads(spec.threads)
        drafter = None
        if spec.drafter_path is not None:
            drafter = load_drafter(spec.drafter_path, spec.dtype)
        taps = () if drafter is None else drafter.config.dflash_config.target_layer_ids
        target = load_target(spec.target_path, spec.dtype, taps)
        return cls(spec, target, drafter)

    def generate(
        self,
        input_ids: Sequence[int],
        sampling: Sampling,
        top_logprobs: int = 0,
        trace: bool = False,
    ) -> Iterator[Step]:
        """Return an iterator over the request's steps; the first is the prefill's token.

        Closing the iterator frees the caches. `top_logprobs` above 0 fills `Step.log_probs`,
        `trace` fills `Step.trace`.

        Raises:
            ValueError: at once, for a prompt that is empty, holds ids outside the vocabulary, or
                with `max_new_tokens` exceeds the context.
        """
        prompt = [int(token) for token in input_ids]
        self._check_prompt(prompt, sampling.max_new_tokens)
        if not 0 <= top_logprobs <= self.vocab_size:
            raise ValueError(f"top_logprobs must be in 0 … {self.vocab_size}, got {top_logprobs}")
        pick, ending = picker(sampling), Ending(sampling, self.eos_token_ids)
        report = Reporting(top_logprobs, trace)
        if self.drafter is None or self._drafting is None:
            return decode_plain(self.target, prompt, pick, ending, report)
        return decode_drafted(
            self.target,
            self.drafter,
            self._drafting,
            prompt,
            pick,
            ending,
            report,
            self.context_length,
        )

    def _check_prompt(self, prompt: list[int], max_new_tokens: int) -> None:
        if not prompt:
            raise ValueError("the prompt is empty: give at least one token")
        outside = [token for token in prompt if not 0 <= token < self.vocab_size]
        if outside:
            raise ValueError(f"token id {outside[0]} is outside 0 … {self.vocab_size - 1}")
        if len(prompt) + max_new_tokens > self.context_length:
            raise ValueError(
                f"{len(prompt)} prompt tokens + {max_new_tokens} new tokens exceed the context "
                f"of {self.context_length}: shorten the prompt or lower max_new_tokens"
            )

    def _check_against_target(self) -> None:
        """Raise ValueError if context or drafter do not fit the target."""
        if self.context_length > self.target.context_length:
            raise ValueError(
                f"context_length {self.context_length} is above the target's "
                f"{self.target.context_length}"
            )
        if self.drafter is None:
            return
        config, path = self.drafter.config, self.spec.drafter_path
        for key, drafted, wanted in (
            ("hidden_size", config.hidden_size, self.target.hidden_size),
            ("vocab_size", config.vocab_size, self.vocab_size),
            ("num_target_layers", config.num_target_layers, self.target.layer_count),
        ):
            if drafted is not None and drafted != wanted:
                raise ValueError(
                    f"{path}/config.json: {key} is {drafted}, the target in "
                    f"{self.spec.target_path} has {wanted}: the drafter is for another target"
                )

    def _resolve(self, drafter: Drafter) -> Drafting:
        """Return how to draft; ValueError if the spec asks for more than the models have."""
        spec, trained = self.spec, drafter.config.block_size
        block_size = trained if spec.block_size is None else spec.block_size
        if block_size > trained:
            raise ValueError(f"block_size {block_size} is above the checkpoint's {trained}")
        if spec.budget is None:
            return Drafting(block_size, budget=block_size - 1, topk=1)
        topk = max(spec.budget, 1) if spec.topk_cap is None else spec.topk_cap
        if spec.topk_cap is not None and topk > self.vocab_size:
            raise ValueError(f"topk_cap {topk} is above the vocabulary's {self.vocab_size}")
        return Drafting(block_size, spec.budget, topk)
