"""What follows the target's verify pass: accept paths, move their cache entries, feed the drafter.

All of it hangs only on buffers of fixed address, so it is captured at the end of the target's
graphs, and a step costs the host no launch for it. A graph accepts the most probable tokens; when
a batch wants anything else, its graph accepts the roots alone, which changes nothing, and the tail
runs once more with what was sampled.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import torch
from torch import Tensor

from ddtree_sglang.buffers import Step, StepBuffers
from ddtree_sglang.path import accept_paths
from ddtree_sglang.stock import LogitsOutput


class Cache(Protocol):
    """SGLang's `KVCache` of the target."""

    def move_kv_cache(self, tgt_loc: Tensor, src_loc: Tensor) -> None:
        """Copy the entries of all layers from slots to slots."""


class KeepFeatures(Protocol):
    """Puts features into the drafter's cache."""

    def __call__(
        self, features: Tensor, slots: Tensor, positions: Tensor, lens: Tensor, /
    ) -> object:
        """Keep the first `lens` `[R]` of the rows of each request.

        features: `[R × (D + 1), F]`; slots and positions: `[R, D + 1]`. Returns what a captured
        graph needs to stay alive.
        """


class VerifyBatch(Protocol):
    """SGLang's `ForwardBatch` or `ScheduleBatch` of a verify pass."""

    seq_lens: Tensor
    """`[R]`, tokens before each tree."""
    out_cache_loc: Tensor
    """`[R × N]`, cache slot of each node."""


class VerifyTail:
    """The tail of one target; `captured` holds the batch sizes whose graphs end in it."""

    def __init__(self, buffers: StepBuffers, cache: Cache, keep_features: KeepFeatures) -> None:
        self.captured: set[int] = set()
        self._buffers = buffers
        self._cache = cache
        self._keep_features = keep_features
        device = buffers.of(1).positions.device
        self._whole = buffers.depth + 1  # nodes of the longest path
        self._limits = torch.full((buffers.rows,), self._whole, dtype=torch.int32, device=device)
        self._accepts = True
        self._steps = torch.arange(self._whole, device=device)
        self._alive: list[object] = []

    def capture(self, runner: object, out: LogitsOutput, batch: VerifyBatch, tokens: int) -> None:
        """SGLang's hook for a graph's end (model_executor/runner/decode_cuda_graph_runner.py:991).

        Called while a graph of so many tokens is captured, and before that to warm up.
        """
        step = self._buffers.of(tokens // self._buffers.width)
        predicted = torch.argmax(out.next_token_logits, dim=-1)
        self._alive.append(self.run(step, predicted, batch, out, None))
        self.captured.add(len(step.positions))

    def let_graphs_accept(self, accept: bool) -> None:
        """Whether the graphs replayed from here on accept more than roots."""
        if accept != self._accepts:
            self._limits.fill_(self._whole if accept else 1)
            self._accepts = accept

    def run(
        self,
        step: Step,
        predicted: Tensor,
        batch: VerifyBatch,
        out: LogitsOutput,
        limits: Tensor | None,
    ) -> object:
        """Accept paths along `predicted`, `[R × N]`, and bring both caches to their ends.

        `limits`: `[R]`, nodes of a path at most; None for as many as graphs accept. Returns what
        `KeepFeatures` returns.
        """
        shape = step.positions.shape
        slots = batch.out_cache_loc.view(shape)
        most = self._limits[: shape[0]] if limits is None else limits
        accept: Callable[[Step, Tensor, Tensor, Tensor, Tensor], None] = accept_paths
        if predicted.is_cuda:
            from ddtree_sglang.path_kernel import accept_paths_on_gpu  # needs Triton

            accept = accept_paths_on_gpu
        accept(step, predicted.view(shape), batch.seq_lens, slots, most)
        path = step.path
        self._cache.move_kv_cache(path.targets.flatten(), path.sources.flatten())
        if out.hidden_states is None:
            raise RuntimeError("the target's verify pass gave no features for the drafter")
        return self._keep_features(
            out.hidden_states.index_select(0, path.rows.flatten()),
            slots[:, : self._whole].contiguous(),
            batch.seq_lens[:, None] + self._steps,
            path.lens,
        )
