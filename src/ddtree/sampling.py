"""How a token is picked from the target's logits.

Shape letter: V vocabulary.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

Picker = Callable[[Tensor], int]
"""Takes the target's logits `[V]` after a prefix, returns the next token id."""


@dataclass(frozen=True, slots=True)
class Sampling:
    """How one request is sampled and where it ends.

    Attributes:
        max_new_tokens: most tokens to generate, 1 or more.
        temperature: 0 picks the most probable token.
        top_p: keep the most probable tokens until their sum reaches this, in (0, 1].
        top_k: keep this many tokens, −1 keeps all; applied before `top_p`.
        seed: None draws a fresh one. Plain, chain and tree decoding spend one draw a token, so
            the same seed gives the same text up to rounding.
        ignore_eos: let no token end the text; covers `stop_token_ids` too, as in SGLang.
        stop_token_ids: ids that end the text, besides the model's own.
    """

    max_new_tokens: int
    temperature: float = 0.0
    top_p: float = 1.0
    top_k: int = -1
    seed: int | None = None
    ignore_eos: bool = False
    stop_token_ids: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        """Raise ValueError for a value outside its range."""
        if self.max_new_tokens < 1:
            raise ValueError(f"max_new_tokens must be 1 or more, got {self.max_new_tokens}")
        if not (math.isfinite(self.temperature) and self.temperature >= 0.0):
            raise ValueError(f"temperature must be finite and 0 or more, got {self.temperature}")
        if not 0.0 < self.top_p <= 1.0:
            raise ValueError(f"top_p must be in (0, 1], got {self.top_p}")
        if self.top_k != -1 and self.top_k < 1:
            raise ValueError(f"top_k must be −1 (all) or 1 or more, got {self.top_k}")
        if self.seed is not None and not 0 <= self.seed < 2**63:
            raise ValueError(f"seed must be in 0 … 2**63 − 1, got {self.seed}")


def picker(sampling: Sampling) -> Picker:
    """Return the function that picks each token of one request, with its own random state."""
    if sampling.temperature == 0.0:
        return lambda logits: int(logits.argmax())
    generator = torch.Generator()
    if sampling.seed is None:
        generator.seed()
    else:
        generator.manual_seed(sampling.seed)

    def pick(logits: Tensor) -> int:
        return draw(probabilities(logits, sampling), generator)

    return pick


def probabilities(logits: Tensor, sampling: Sampling) -> Tensor:
    """Return the `[V]` float64 distribution that a request with temperature above 0 draws from.

    Tokens equal to the last one that `top_k` keeps are kept as well.
    """
    scaled = logits.double() / sampling.temperature
    if 0 < sampling.top_k < len(scaled):
        kth = scaled.topk(sampling.top_k).values[-1]
        scaled = scaled.masked_fill(scaled < kth, -math.inf)
    probs = scaled.softmax(-1)
    return _nucleus(probs, sampling.top_p) if sampling.top_p < 1.0 else probs


def _nucleus(probs: Tensor, top_p: float) -> Tensor:
    """Return `probs` `[V]` cut to its most probable tokens whose sum reaches `top_p`, rescaled."""
    ordered, order = probs.sort(descending=True, stable=True)
    before = ordered.cumsum(-1) - ordered
    kept = torch.zeros_like(probs)
    kept[order] = ordered.masked_fill(before >= top_p, 0.0)
    return kept / kept.sum()


def draw(probs: Tensor, generator: torch.Generator) -> int:
    """Return a token id drawn from `probs` `[V]` with a single uniform number."""
    cumulative = probs.cumsum(-1)
    # In (0, total]: with `left` search a token of probability zero can never be hit.
    point = (1.0 - torch.rand((), generator=generator, dtype=torch.float64)) * cumulative[-1].cpu()
    return int(torch.searchsorted(cumulative, point.to(cumulative.device)))


def top_log_probs(logits: Tensor, count: int) -> tuple[tuple[int, float], ...]:
    """Return the `count` most probable ids with their log-probabilities in nats, best first."""
    values, tokens = logits.float().log_softmax(-1).topk(min(count, len(logits)))
    return tuple(zip(tokens.tolist(), values.tolist(), strict=True))
