"""The parts of SGLang 0.5.17 that the plug-in touches; types only, nothing is imported from it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from torch import Tensor

JsonObject = dict[str, object]
Publish = Callable[[Tensor], None]
"""Takes the new lengths `[R]`, as soon as the host may plan the next step with them."""
Barrier = Callable[[], None]
"""Waits until grammars have seen the tokens of the step before."""


class Arguments(Protocol):
    """`ServerArgs`."""

    model_path: str
    device: str
    pp_size: int
    page_size: int | None
    enable_dp_attention: bool
    enable_two_batch_overlap: bool
    enable_custom_logit_processor: bool
    disaggregation_mode: str
    trust_remote_code: bool
    json_model_override_args: str
    speculative_algorithm: str | None
    speculative_draft_model_path: str | None
    speculative_draft_model_revision: str | None
    speculative_draft_window_size: int | None
    speculative_num_draft_tokens: int | None
    speculative_dflash_block_size: int | None
    speculative_eagle_topk: int | None
    speculative_adaptive: bool

    def get_model_config(self) -> ModelConfig:
        """The target's configuration."""

    def override(self, source: str, **fields: object) -> None:
        """Change fields after SGLang has resolved them."""


class RankGroup(Protocol):
    """`GroupCoordinator`, the ranks of a tensor-parallel group."""

    world_size: int

    def all_gather_into_tensor(self, output: Tensor, input: Tensor) -> None:
        """Write the inputs of all ranks, in their order, into the output of each."""


class ModelConfig(Protocol):
    """`ModelConfig`."""

    vocab_size: int


class KeptSlots(Protocol):
    """`ReqKvInfo`: cache slots of one request."""

    kv_allocated_len: int


class Request(Protocol):
    """`Req`."""

    kv: KeptSlots
    kv_committed_len: int
    decode_batch_idx: int
    is_retracted: bool
    output_ids: Sequence[int]
    spec_cap_lens_histogram: list[int]
    customized_info: dict[str, list[object]] | None

    def finished(self) -> bool:
        """Whether its answer is complete."""


class Penalties(Protocol):
    """`BatchedPenalizerOrchestrator`."""

    is_required: bool


class SamplingInfo(Protocol):
    """`SamplingBatchInfo`."""

    penalizer_orchestrator: Penalties
    is_all_greedy: bool
    acc_additive_penalties: Tensor | None
    acc_scaling_penalties: Tensor | None
    logit_bias: Tensor | None


class RequestPool(Protocol):
    """`ReqToTokenPool`."""

    size: int
    req_to_token: Tensor
    """`[rows, positions]`, cache slot of each position of each request."""


class Mode(Protocol):
    """`ForwardMode`."""

    def is_extend(self) -> bool:
        """Whether prompts are read."""

    def is_idle(self) -> bool:
        """Whether there is nothing to do."""


class DraftState(Protocol):
    """The drafter's state between steps."""

    bonus_tokens: Tensor
    """`[R]`, the last token of each request, not in a cache yet."""
    reserved_seq_lens_cpu: Tensor
    """`[R]`, slots of each request's row that may be written."""


class SlotAllocator(Protocol):
    """`BaseTokenToKVPoolAllocator`."""

    def available_size(self) -> int:
        """Free slots."""


class PrefixCache(Protocol):
    """`BasePrefixCache`."""

    token_to_kv_pool_allocator: SlotAllocator


class Batch(Protocol):
    """`ScheduleBatch` of R requests."""

    reqs: Sequence[Request]
    device: str
    forward_mode: Mode
    is_extend_in_batch: bool
    seq_lens: Tensor
    """`[R]`, committed tokens."""
    seq_lens_cpu: Tensor | None
    """`[R]`, the same or a step older; None where no backend wants them on the host."""
    seq_lens_sum: int | None
    req_pool_indices: Tensor
    req_to_token_pool: RequestPool
    out_cache_loc: Tensor
    """`[R × N]`, cache slots that the step writes."""
    tree_cache: PrefixCache
    has_grammar: bool
    sampling_info: SamplingInfo
    spec_info: DraftState

    def batch_size(self) -> int:
        """R."""

    def maybe_evict_swa(self) -> None:
        """Free slots that sliding windows have left."""

    def cumulate_penalty_output_tokens(self) -> None:
        """Count the last tokens for penalties."""


class OwnedMask(Protocol):
    """`VerifyMask`, an attention backend's own buffer."""

    buffer: Tensor
    mode: object

    def fits(self, bs: int) -> bool:
        """Whether a batch of that size may be written."""


class Backend(Protocol):
    """`AttentionBackend`."""

    verify_mask: OwnedMask | None


class Runner(Protocol):
    """`ModelRunner`."""

    is_draft_worker: bool
    spec_algorithm: object
    attn_backend: Backend


class GraphBuffers(Protocol):
    """`DecodeInputBuffers`."""

    custom_mask: Tensor


class GraphRunner(Protocol):
    """`DecodeCudaGraphRunner`."""

    model_runner: Runner
    attn_backend: Backend
    buffers: GraphBuffers
    captured_req_width: int


class LogitsOutput(Protocol):
    """`LogitsProcessorOutput`."""

    next_token_logits: Tensor
    """`[R × N, V]`."""
    hidden_states: Tensor | None
    """`[R × N, features]`, of the target's layers that the drafter was trained on."""


class DraftBatch(Protocol):
    """`ForwardBatch` of R draft blocks."""

    input_ids: Tensor
    """`[R × b]`."""
    positions: Tensor
    """`[R × b]`."""


class StepResult(Protocol):
    """`GenerationBatchResult`."""

    next_token_ids: Tensor
    next_draft_input: DraftState


class AnswerManager(Protocol):
    """`TokenizerManager`."""

    server_args: Arguments
