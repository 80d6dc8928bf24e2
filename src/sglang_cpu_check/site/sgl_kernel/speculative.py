"""Stand-in for `sgl_kernel.speculative`; NGRAM imports it (srt/speculative/ngram_worker.py:6)."""

from sglang_cpu_check.kernels import reconstruct_indices_from_tree_mask

__all__ = ["reconstruct_indices_from_tree_mask"]
