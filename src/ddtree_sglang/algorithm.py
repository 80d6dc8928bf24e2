"""What SGLang asks about the algorithm, and the checks before a model is loaded.

Lines are of SGLang 0.5.17, below `sglang/srt/`.
"""

# SGLang is not installed where types are checked.
# mypy: disable-error-code="import-not-found", allow-subclassing-any
from __future__ import annotations

import json
import os
from typing import Final

from sglang.srt.arg_groups import speculative_hook
from sglang.srt.arg_groups.overrides import attention_backends_of, resolved_view
from sglang.srt.runtime_context import get_spec
from sglang.srt.speculative.dflash_utils import parse_dflash_draft_config
from sglang.srt.speculative.spec_info import SpeculativeAlgorithm
from sglang.srt.speculative.spec_registry import CustomSpecAlgo
from sglang.srt.utils.hf_transformers_utils import get_config

from ddtree_sglang.options import ALGORITHM, TOPK_FLAG, TreeOptions, read_options
from ddtree_sglang.stock import Arguments
from ddtree_sglang.support import check_block, check_server

FUTURE_MAP: Final = SpeculativeAlgorithm.create_future_map


class DDTreeAlgorithm(CustomSpecAlgo):
    """DFLASH to the scheduler, the pools and the draft runner; two widths to the runners.

    Being DFLASH brings the target's features (model_runner_components/spec_aux_hidden_state.py),
    the drafter's cache in the pool's cell size (model_executor/pool_configurator.py:166), the
    draft input's own `prepare_for_decode` (speculative/spec_utils.py:1037) and `input_embeds` in
    the draft graph (model_executor/runner/decode_cuda_graph_runner.py:978).
    """

    # CustomSpecAlgo lacks this method and the two below it, which SGLang calls on any algorithm.
    create_future_map = FUTURE_MAP

    def need_topk(self) -> bool:
        """False: no top-k state is carried between steps."""
        return False

    def carries_draft_hidden_states(self) -> bool:
        """False: the drafter's state is its cache."""
        return False

    def is_dflash(self) -> bool:
        """True."""
        return True

    def is_dflash_family(self) -> bool:
        """True."""
        return True

    def supports_target_verify_for_draft(self) -> bool:
        """True: the drafter's graph runs the block as a verify pass."""
        return True

    def supports_grammar_overlap(self) -> bool:
        """True: the worker runs the grammar's barrier inside its verify pass."""
        return True

    def has_draft_kv(self) -> bool:
        """False: branches live in the verify mask alone, as NGRAM's do, so no pages a branch."""
        return False

    def get_num_tokens_per_req_for_target_verify(
        self, num_draft_tokens: int, is_draft_worker: bool
    ) -> int:
        """The draft block for the drafter, N for the target."""
        if is_draft_worker:
            return int(get_spec().speculative_dflash_block_size)
        return num_draft_tokens

    def handle_server_args(self, server_args: Arguments) -> None:
        """Check the arguments and set the fields that the rest of SGLang reads.

        Raises:
            ValueError: what cannot run, where it was given, and what to do.
        """
        options = read_options(os.environ)
        check_server(server_args, attention_backends_of(resolved_view(server_args)), options)
        block = _block_size(server_args, options)
        server_args.speculative_dflash_block_size = block
        # DFLASH's checks want one width and one candidate, so ours are set after them.
        server_args.speculative_num_draft_tokens = None
        server_args.speculative_eagle_topk = None
        speculative_hook._handle_dflash(server_args)
        server_args.speculative_num_draft_tokens = options.width
        # Above 1 this says "tree" to the pool of recurrent states, which then keeps each node's.
        server_args.speculative_eagle_topk = options.topk


def _block_size(server_args: Arguments, options: TreeOptions) -> int:
    """The draft block, from the flag or else from the drafter's checkpoint; both checked."""
    if server_args.speculative_draft_model_path is None:
        raise ValueError(f"{ALGORITHM} needs a drafter: add --speculative-draft-model-path")
    vocabulary = int(server_args.get_model_config().vocab_size)
    if options.topk > vocabulary:
        raise ValueError(f"{TOPK_FLAG} is {options.topk}, but the vocabulary has {vocabulary}")
    config = get_config(
        server_args.speculative_draft_model_path,
        trust_remote_code=server_args.trust_remote_code,
        revision=server_args.speculative_draft_model_revision,
        model_override_args=json.loads(server_args.json_model_override_args),
    )
    trained = parse_dflash_draft_config(draft_hf_config=config).block_size
    return check_block(server_args.speculative_dflash_block_size, trained)
