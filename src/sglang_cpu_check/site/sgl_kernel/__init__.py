"""Stand-in for `sgl_kernel`, whose wheel on PyPI loads CUDA's driver library when imported.

It holds the names that SGLang 0.5.17 imports on a CPU without AMX for the algorithms that run here
(and for a plug-in that verifies trees), and no others: code that asks for another one gets
Python's own ImportError. Being first on PYTHONPATH, it hides the
installed package. Needed until SGLang publishes a CPU wheel.
"""

from typing import NoReturn

from sglang_cpu_check.kernels import (
    assign_extend_cache_locs_cpu,
    assign_req_to_token_pool_cpu,
    copy_all_layer_kv_cache_cpu,
    fill_accept_out_cache_loc_cpu,
    fill_bonus_tokens_cpu,
    verify_tree_greedy_cpu,
)

__all__ = [
    "assign_draft_cache_locs_contiguous_cpu",
    "assign_extend_cache_locs_cpu",
    "assign_req_to_token_pool_cpu",
    "build_tree_kernel_efficient_cpu",
    "copy_all_layer_kv_cache_cpu",
    "fill_accept_out_cache_loc_cpu",
    "fill_bonus_tokens_cpu",
    "verify_tree_greedy_cpu",
]

_EAGLE = "EAGLE is not among the algorithms that run here without a GPU"


def assign_draft_cache_locs_contiguous_cpu(*arguments: object) -> NoReturn:
    """Refuse: EAGLE's drafting has no stand-in.

    Imported by whatever verifies trees (srt/speculative/eagle_worker_common.py:45).
    """
    raise NotImplementedError(_EAGLE)


def build_tree_kernel_efficient_cpu(*arguments: object) -> NoReturn:
    """Refuse: EAGLE's tree builder has no stand-in.

    Imported whatever the algorithm (srt/speculative/eagle_utils.py:54).
    """
    raise NotImplementedError(_EAGLE)
