"""What was noticed about a launch or a cell without making it a failure: a closed vocabulary."""

from __future__ import annotations

from ddtree_bench.vocabulary import Vocabulary


class FindingCode(Vocabulary):
    """Something that may have changed a speed."""

    # told by the server's log
    EAGER_DRAFT_HEAD = "eager_draft_head", "the draft head runs outside the draft's CUDA graph"
    NO_DRAFT_GRAPH = "no_draft_graph", "the drafter runs without a CUDA graph"
    NO_GRAPH = "no_graph", "a CUDA graph was not captured"
    EAGER_DECODE = "eager_decode", "decode steps ran outside the CUDA graphs"
    KERNEL_FALLBACK = "kernel_fallback", "a fused kernel failed and a slower path took over"
    GREEDY_FALLBACK = "greedy_fallback", "sampled requests are verified greedily"
    BLOCK_SIZE_MISMATCH = "block_size_mismatch", "block size differs from the drafter's training"
    ATTENTION_OVERRIDDEN = "attention_overridden", "the attention backend is not the one asked for"
    SPEC_OVERRIDDEN = "spec_overridden", "a speculative flag was overridden"
    CONCURRENCY_RESET = "concurrency_reset", "the server chose its own limit of running requests"
    DEPRECATED_FLAG = "deprecated_flag", "a flag of the command line is deprecated"
    PLUGIN_FAILED = "plugin_failed", "a plug-in was not loaded"
    RETRACTED = "retracted", "requests were interrupted because the KV cache was full"
    COMPILING = "compiling", "kernels were compiled or tuned after the server was ready"
    HEALTH_FAILED = "health_failed", "a health check was not answered"
    WATCHDOG = "watchdog", "the watchdog saw a step that did not end"
    HANDLED_ERROR = "handled_error", "an exception was caught and serving went on"
    # seen by the session
    NOT_STEADY = "not_steady", "the speed was not steady when the warm-up ended"
    NO_LOGPROBS = "no_logprobs", "the server gave no log probabilities of its answers"
    OWN_HISTORY = "own_history", "conversations went on with the server's own replies"
    FOREIGN_HISTORY = "foreign_history", "conversations went on with replies of another model"
    CACHE_UNKNOWN = "cache_unknown", "the prefix cache was not flushed: the server is not ours"
    UNDERFILLED = "underfilled", "fewer requests were in flight on average than were asked for"
    CLIENT_BOUND = "client_bound", "the client took so much of a core that its times may be late"
    BUSY_HOST = "busy_host", "another process took more than 10 % of a CPU"
    BUSY_GPU = "busy_gpu", "another process took more than 10 % of a GPU"
    THROTTLED = "throttled", "a GPU slowed its clocks down for more than 5 % of the time"
    GPU_MEMORY_HELD = "gpu_memory_held", "GPU memory was still taken after the server had ended"
