from types import SimpleNamespace

import pytest

from ddtree_sglang.options import TreeOptions
from ddtree_sglang.support import check_block, check_server

OPTIONS = TreeOptions(budget=15, topk=8)


def server_args(**changes: object) -> SimpleNamespace:
    """Arguments that DDTREE runs with, and changes to them."""
    fine = {
        "pp_size": 1,
        "page_size": 1,
        "enable_dp_attention": False,
        "enable_custom_logit_processor": False,
        "enable_two_batch_overlap": False,
        "disaggregation_mode": "null",
        "speculative_adaptive": False,
        "speculative_draft_window_size": None,
        "speculative_num_draft_tokens": None,
    }
    return SimpleNamespace(**fine | changes)


@pytest.mark.parametrize("backend", ["triton", "torch_native", None])
def test_a_plain_server_is_accepted(backend: str | None) -> None:
    """Also before SGLang has chosen a backend, and with the width that follows from the budget."""
    check_server(server_args(), (backend, backend), OPTIONS)
    check_server(server_args(speculative_num_draft_tokens=16), (backend,), OPTIONS)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"pp_size": 2}, "--pp-size: the drafter needs features"),
        ({"page_size": 64}, "--page-size: accepted tokens move slot by slot"),
        ({"enable_dp_attention": True}, "--enable-dp-attention"),
        ({"enable_custom_logit_processor": True}, "--enable-custom-logit-processor"),
        ({"disaggregation_mode": "decode"}, "--disaggregation-mode"),
        ({"enable_two_batch_overlap": True}, "--enable-two-batch-overlap"),
        ({"speculative_draft_window_size": 512}, "--speculative-draft-window-size"),
        ({"enable_linear_replayssm_spec": True}, "--enable-linear-replayssm-spec"),
        ({"speculative_adaptive": True}, "--speculative-adaptive"),
        ({"speculative_num_draft_tokens": 8}, r"budget \+ 1 = 16; leave it out"),
    ],
)
def test_what_cannot_run_is_refused_with_the_reason(
    changes: dict[str, object], message: str
) -> None:
    """The message starts with the flag."""
    with pytest.raises(ValueError, match=message):
        check_server(server_args(**changes), ("triton", "triton"), OPTIONS)


@pytest.mark.parametrize("backends", [("fa3", "fa3"), ("triton", "trtllm_mha")])
def test_a_backend_without_trees_is_refused(backends: tuple[str, str]) -> None:
    """Prefill's and decode's both count; the message names one that works."""
    with pytest.raises(ValueError, match="cannot verify a tree here; take triton"):
        check_server(server_args(), backends, OPTIONS)


def test_all_faults_are_named_at_once() -> None:
    """One start shows everything there is to change."""
    with pytest.raises(ValueError, match=r"--pp-size.*--page-size.*fa3"):
        check_server(server_args(pp_size=2, page_size=4), ("fa3", None), OPTIONS)


def test_the_block_is_the_drafters_unless_given() -> None:
    """A smaller block than the drafter was trained for is a choice, not a mistake."""
    assert check_block(None, 16) == 16
    assert check_block(8, 16) == 8
    assert check_block(8, None) == 8


@pytest.mark.parametrize(
    ("given", "trained", "message"),
    [
        (None, None, "no block_size"),
        (32, 16, "is 32, but the drafter was trained to fill 16"),
        (1, 16, "must be 2 or more to draft a token, got 1"),
    ],
)
def test_a_block_that_no_drafter_fills_is_refused(
    given: int | None, trained: int | None, message: str
) -> None:
    """The message says what was given and what the drafter can do."""
    with pytest.raises(ValueError, match=message):
        check_block(given, trained)
