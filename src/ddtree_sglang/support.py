"""Which servers can run DDTREE; checked before a GPU is touched. Imports nothing of SGLang."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from ddtree_sglang.options import ALGORITHM, BUDGET_FLAG, TreeOptions
from ddtree_sglang.stock import Arguments

TREE_BACKENDS: Final = ("triton", "torch_native")
"""Attention backends whose verify pass reads a mask of the tree's own cells only, as ours writes.

torch_native is the CPU's, for checks. FlashInfer reads the cells of the prefix too, FA3 extracts
the tree's; neither was tried.
"""

_REFUSED: Final[tuple[tuple[str, Callable[[Arguments], bool], str], ...]] = (
    (
        "--pp-size",
        lambda args: args.pp_size != 1,
        "the drafter needs features of all of the target's layers in one process",
    ),
    (
        "--enable-dp-attention",
        lambda args: bool(args.enable_dp_attention),
        "idle ranks would have to verify empty trees",
    ),
    (
        "--page-size",
        lambda args: args.page_size not in (None, 1),
        "accepted tokens move slot by slot",
    ),
    (
        "--speculative-draft-window-size",
        lambda args: args.speculative_draft_window_size is not None,
        "the drafter's cache shares the target's slots",
    ),
    (
        "--enable-custom-logit-processor",
        lambda args: bool(args.enable_custom_logit_processor),
        "SGLang's tree sampling does not apply them",
    ),
    (
        "--disaggregation-mode",
        lambda args: args.disaggregation_mode != "null",
        "a decode server would start without the drafter's cache",
    ),
    (
        "--enable-two-batch-overlap",
        lambda args: bool(args.enable_two_batch_overlap),
        "a tree's mask is not split over two batches",
    ),
    (
        "--enable-linear-replayssm-spec",
        lambda args: bool(getattr(args, "enable_linear_replayssm_spec", False)),
        "its ring holds a chain, not a tree",
    ),
    (
        "--speculative-adaptive",
        lambda args: bool(args.speculative_adaptive),
        "the tree's width is fixed",
    ),
)
"""Flag, whether it is set so that DDTREE cannot run, and why not."""


def check_server(args: Arguments, backends: Sequence[str | None], options: TreeOptions) -> None:
    """Raise ValueError naming everything in a server's arguments that DDTREE cannot run with.

    Args:
        args: SGLang's `ServerArgs`, or anything with its fields.
        backends: attention backends of prefill and decode; None where SGLang has not chosen yet.
        options: the tree's sizes.
    """
    faults = [f"{flag}: {reason}" for flag, is_set, reason in _REFUSED if is_set(args)]
    unfit = sorted({name for name in backends if name not in (None, *TREE_BACKENDS)} - {None})
    if unfit:
        faults.append(
            f"--attention-backend {', '.join(map(str, unfit))}: cannot verify a tree here; "
            f"take {TREE_BACKENDS[0]}"
        )
    width = args.speculative_num_draft_tokens
    if width is not None and int(width) != options.width:
        faults.append(
            f"--speculative-num-draft-tokens {width}: it is budget + 1 = {options.width}; "
            f"leave it out and set {BUDGET_FLAG}"
        )
    if faults:
        raise ValueError(f"{ALGORITHM} cannot run with " + "; ".join(faults))


def check_block(given: int | None, trained: int | None) -> int:
    """Return the draft block b to run with; raises ValueError where no drafter could fill it.

    Args:
        given: by --speculative-dflash-block-size, if at all.
        trained: the drafter's own, from its checkpoint, if it says.
    """
    if given is None and trained is None:
        raise ValueError(
            "the drafter's checkpoint has no block_size: add --speculative-dflash-block-size"
        )
    block = int(given if given is not None else trained or 0)
    if block < 2:
        raise ValueError(
            f"--speculative-dflash-block-size must be 2 or more to draft a token, got {block}"
        )
    if trained is not None and block > int(trained):
        raise ValueError(
            f"--speculative-dflash-block-size is {block}, but the drafter was trained "
            f"to fill {trained}"
        )
    return block
