from types import SimpleNamespace

import pytest

torch = pytest.importorskip("torch", reason="the head works on tensors")

from ddtree_sglang.candidates import top_candidates  # noqa: E402 - after the check for torch
from ddtree_sglang.head import CandidateHead, HeadPart, head_part  # noqa: E402

BLOCK, TOPK, HIDDEN, VOCABULARY, PADDING = 4, 3, 8, 100, 28


class Ranks:
    """Ranks of one process: what each gathered is known when all have been asked once."""

    def __init__(self, world_size: int) -> None:
        self.world_size = world_size
        self.rank = 0
        self.inputs: dict[int, torch.Tensor] = {}

    def all_gather_into_tensor(self, output: torch.Tensor, input: torch.Tensor) -> None:
        """Keep the input; answer once all ranks have given theirs."""
        self.inputs[self.rank] = input.clone()
        if len(self.inputs) == self.world_size:
            output.copy_(torch.cat([self.inputs[rank] for rank in range(self.world_size)]))


def model(weight: torch.Tensor, first: int, count: int, added: int = 0) -> SimpleNamespace:
    """A target with one rank's head: `count` rows of tokens, padding behind them."""
    indices = SimpleNamespace(
        num_org_elements=count, org_vocab_start_index=first, num_added_elements=added
    )
    padding = torch.full((PADDING, weight.shape[1]), 100.0)  # would win if it were ranked
    rows = torch.cat([weight[first : first + count], padding])
    return SimpleNamespace(lm_head=SimpleNamespace(weight=rows, shard_indices=indices))


@pytest.mark.parametrize("counts", [(50, 50), (64, 36), (40, 40, 20)])
def test_ranks_find_the_candidates_of_the_whole_head(counts: tuple[int, ...]) -> None:
    """All ranks the same ones, to the bit, and none that only pads."""
    generator = torch.Generator().manual_seed(len(counts))
    weight = torch.randn(VOCABULARY, HIDDEN, generator=generator)
    hidden = torch.randn(2 * BLOCK, HIDDEN, generator=generator)
    group, heads = Ranks(len(counts)), []
    for rank, count in enumerate(counts):
        part = head_part(model(weight, sum(counts[:rank]), count), group, TOPK)
        heads.append(CandidateHead(part, BLOCK, TOPK, rows=5))
    for _ in range(2):
        for rank, head in enumerate(heads):
            group.rank = rank
            head(hidden)
    drafted = hidden.view(2, BLOCK, HIDDEN)[:, 1:].flatten(0, 1)
    log_probs, ids = top_candidates(drafted @ weight.T, TOPK)
    for head in heads:
        assert torch.equal(head.tokens[:2].flatten(0, 1), ids)
        torch.testing.assert_close(head.log_probs[:2].flatten(0, 1), log_probs, atol=2e-6, rtol=0)
        assert torch.equal(head.log_probs[:2], heads[0].log_probs[:2])


def test_one_rank_gathers_nothing() -> None:
    """Its part is the whole head without the padding."""
    weight = torch.randn(VOCABULARY, HIDDEN)
    part = head_part(model(weight, 0, VOCABULARY), Ranks(1), TOPK)
    assert part.group is None
    assert torch.equal(part.weight, weight)


@pytest.mark.parametrize(
    ("target", "ranks", "reason"),
    [
        (SimpleNamespace(), 1, "has none"),
        (SimpleNamespace(lm_head=SimpleNamespace(weight=torch.zeros(9, 2).char())), 1, "int8"),
        (SimpleNamespace(lm_head=SimpleNamespace(weight=torch.zeros(9, 2))), 2, "--tp-size 1"),
        (model(torch.zeros(9, 2), 0, 9, added=1), 1, "added tokens"),
        (model(torch.zeros(9, 2), 0, 2), 2, "fewer than 3 candidates"),
    ],
)
def test_a_head_that_cannot_be_ranked_is_refused(
    target: SimpleNamespace, ranks: int, reason: str
) -> None:
    """With the reason, before anything is drafted."""
    with pytest.raises(ValueError, match=reason):
        head_part(target, Ranks(ranks), TOPK)


def test_a_part_of_other_hidden_types_is_cast() -> None:
    """The drafter may compute in another type than the head's."""
    part = HeadPart(torch.randn(VOCABULARY, HIDDEN).bfloat16(), 0, None)
    head = CandidateHead(part, BLOCK, TOPK, rows=1)
    head(torch.randn(BLOCK, HIDDEN))
    assert head.log_probs[0].isfinite().all()
