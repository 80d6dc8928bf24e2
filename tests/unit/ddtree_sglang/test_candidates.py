import pytest

torch = pytest.importorskip("torch", reason="candidates are tensors")

from ddtree.tree import rank_candidates  # noqa: E402 - after the check for torch
from ddtree_sglang.candidates import merge_parts, reduce_part, top_candidates  # noqa: E402


def logits(rows: int, vocabulary: int, kind: str) -> torch.Tensor:
    """bf16, in which equals are common."""
    generator = torch.Generator().manual_seed(rows * vocabulary)
    values = torch.randn(rows, vocabulary, generator=generator).bfloat16()
    if kind == "few possible":
        values[:, 3:] = -torch.inf
    if kind == "all equal":
        values[:] = 1.0
    return values


@pytest.mark.parametrize("kind", ["random", "few possible", "all equal"])
@pytest.mark.parametrize(("vocabulary", "topk"), [(5, 5), (500, 1), (3000, 8)])
def test_candidates_are_those_of_the_reference_engine(
    vocabulary: int, topk: int, kind: str
) -> None:
    """Same tokens, same log-probabilities, equals by token id; impossible tokens come last."""
    values = logits(7, vocabulary, kind)
    log_probs, ids = top_candidates(values, topk)
    wanted = rank_candidates(values.float() - values.float().logsumexp(-1, keepdim=True), topk)
    for row, candidates in enumerate(wanted):
        n = len(candidates)
        assert ids[row, :n].tolist() == [c.token for c in candidates]
        assert log_probs[row, :n].tolist() == [c.log_prob for c in candidates]
        assert log_probs[row, n:].eq(-torch.inf).all()


@pytest.mark.parametrize("kind", ["random", "few possible", "all equal"])
@pytest.mark.parametrize("cuts", [(1500,), (8, 2992), (700, 1400, 2100)])
def test_parts_of_a_vocabulary_give_the_candidates_of_the_whole(
    cuts: tuple[int, ...], kind: str
) -> None:
    """Ranks that hold different numbers of tokens; ties across their borders count by id."""
    values = logits(7, 3000, kind)
    begins = (0, *cuts)
    parts = [
        reduce_part(part, 8, begin)
        for begin, part in zip(begins, values.tensor_split(cuts, dim=1), strict=True)
    ]
    log_probs, ids = merge_parts(torch.stack(parts))
    wanted, wanted_ids = top_candidates(values, 8)
    possible = wanted > -torch.inf
    assert torch.equal(ids[possible], wanted_ids[possible])
    # the norm is added up in another order
    torch.testing.assert_close(log_probs, wanted, atol=2e-6, rtol=0)


def test_negative_zero_is_zero() -> None:
    """Both are the same logit, so the smaller token id comes first."""
    log_probs, ids = top_candidates(torch.tensor([[-1.0, 0.0, -0.0, 0.0]]), 2)
    assert ids.tolist() == [[1, 2]]
    # three of 1 and one of e⁻¹: log(1 ÷ 3.3679) = −1.2143
    assert log_probs.tolist() == [pytest.approx([-1.2143, -1.2143], abs=1e-4)]
