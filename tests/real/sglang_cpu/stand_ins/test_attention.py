"""Attention of draft blocks and its hook, over fakes; needs torch, not SGLang."""

from enum import Enum
from types import SimpleNamespace

import pytest

torch = pytest.importorskip("torch", reason="the stand-ins are torch code")

from sglang_cpu_check import plugin  # noqa: E402 - after the check for torch
from sglang_cpu_check.attention import attend_block, block_masks  # noqa: E402

HEADS, KV_HEADS, DIM = 4, 2, 8
SCALE = 0.3


class Attention(Enum):
    DECODER = "decoder"
    ENCODER_ONLY = "encoder_only"


def by_hand(
    query: "torch.Tensor", keys: "torch.Tensor", values: "torch.Tensor", seen: "torch.Tensor"
) -> "torch.Tensor":
    """Softmax attention written out, a key and value head serving two query heads."""
    out = torch.empty(len(query), HEADS, DIM)
    for h in range(HEADS):
        scores = SCALE * query[:, h] @ keys[:, h // 2].T
        weights = scores.masked_fill(~seen, -torch.inf).softmax(-1)
        out[:, h] = weights @ values[:, h // 2]
    return out


def test_a_block_sees_the_cache_and_what_its_mask_allows() -> None:
    """Five cached tokens and a tree of three: root, and two children that do not see each other."""
    generator = torch.Generator().manual_seed(0)
    query = torch.randn(3, HEADS, DIM, generator=generator)
    keys, values = (torch.randn(8, KV_HEADS, DIM, generator=generator) for _ in range(2))
    tree = torch.tensor([[1, 0, 0], [1, 1, 0], [1, 0, 1]]).bool()
    seen = torch.cat([torch.ones(3, 5).bool(), tree], dim=1)
    expected = by_hand(query, keys, values, seen)
    torch.testing.assert_close(attend_block(query, keys, values, tree, SCALE), expected)


def test_without_a_mask_a_block_sees_itself_whole() -> None:
    """DFlash's drafter fills all places of its block at once."""
    generator = torch.Generator().manual_seed(1)
    query = torch.randn(3, HEADS, DIM, generator=generator)
    keys, values = (torch.randn(8, KV_HEADS, DIM, generator=generator) for _ in range(2))
    expected = by_hand(query, keys, values, torch.ones(3, 8).bool())
    torch.testing.assert_close(attend_block(query, keys, values, None, SCALE), expected)


def test_no_mask_means_a_chain() -> None:
    """A DFLASH verify pass carries no mask: each token sees those before it."""
    assert block_masks(None, 2, 3).tolist() == [[[1, 0, 0], [1, 1, 0], [1, 1, 1]]] * 2


def test_a_mask_of_another_layout_is_refused() -> None:
    """A mask that also covers the cached tokens (5 + 3 a row) is not read as one of the block."""
    with pytest.raises(RuntimeError):
        block_masks(torch.ones(3 * 8).bool(), 1, 3)


def fake_backend(slots: int) -> SimpleNamespace:
    """A backend over random keys and values; request row 1 holds slots in descending order."""
    generator = torch.Generator().manual_seed(2)
    keys, values = (torch.randn(slots, KV_HEADS, DIM, generator=generator) for _ in range(2))
    pool = SimpleNamespace(get_key_buffer=lambda _: keys, get_value_buffer=lambda _: values)
    rows = torch.stack([torch.arange(slots), torch.arange(slots).flip(0)])
    return SimpleNamespace(
        token_to_kv_pool=pool,
        req_to_token_pool=SimpleNamespace(req_to_token=rows),
        swa_out_cache_loc=None,
    )


@pytest.mark.parametrize("kind", Attention)
def test_the_hook_attends_each_request_over_its_own_slots(kind: Attention) -> None:
    """Two requests of different length, each over its row of slots; the drafter's sees all."""
    backend = fake_backend(slots=9)
    layer = SimpleNamespace(
        layer_id=0, tp_q_head_num=HEADS, qk_head_dim=DIM, scaling=SCALE, attn_type=kind
    )
    batch = SimpleNamespace(
        forward_mode=SimpleNamespace(is_target_verify=lambda: True),
        batch_size=2,
        spec_info=SimpleNamespace(draft_token_num=3, custom_mask=None),
        req_pool_indices=torch.tensor([1, 0]),
        seq_lens=torch.tensor([2, 5]),
    )
    q = torch.randn(6, HEADS * DIM, generator=torch.Generator().manual_seed(3))

    out = plugin.verify_attention(pytest.fail, backend, q, None, None, layer, batch)

    # request 0: row 1, 2 cached + 3 of the block = slots 8 7 6 5 4; request 1: row 0, slots 0 … 7
    keys = backend.token_to_kv_pool.get_key_buffer(0)
    values = backend.token_to_kv_pool.get_value_buffer(0)
    block = torch.ones(3, 3).bool()
    block = block if kind is Attention.ENCODER_ONLY else block.tril()
    for r, slots in enumerate([[8, 7, 6, 5, 4], [0, 1, 2, 3, 4, 5, 6, 7]]):
        seen = torch.cat([torch.ones(3, len(slots) - 3).bool(), block], dim=1)
        query = q.view(2, 3, HEADS, DIM)[r]
        expected = by_hand(query, keys[slots], values[slots], seen).reshape(3, -1)
        torch.testing.assert_close(out.view(2, 3, -1)[r], expected)


def test_other_passes_go_to_the_stock_method() -> None:
    """Prefill is not ours: same arguments, stock's result."""
    batch = SimpleNamespace(forward_mode=SimpleNamespace(is_target_verify=lambda: False))
    given = ("backend", "q", "k", "v", "layer", batch, False)
    assert plugin.verify_attention(lambda *stock: stock, *given) == given
