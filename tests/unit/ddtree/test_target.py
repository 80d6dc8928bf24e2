from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
import torch
from transformers import Gemma2Config, LlamaForCausalLM

from ddtree.target import Target, commit, load_target, tree_mask
from ddtree.tree import DraftTree, build_tree

PROMPT = [0, 5, 7, 3]
close = partial(torch.testing.assert_close, rtol=0.0, atol=1e-5)


@pytest.fixture(scope="module")
def target(target_path: Path) -> Target:
    return load_target(target_path, "float32", taps=(0, 2))


@pytest.fixture
def tree() -> DraftTree:
    """A branching tree: three depths of random proposals."""
    log_probs = torch.randn(3, 12, generator=torch.Generator().manual_seed(1)).log_softmax(-1)
    return build_tree(log_probs, 4, budget=14, topk=3)


def path_tokens(tree: DraftTree, node: int) -> list[int]:
    """Tokens from the root down to `node`."""
    # parents come first, so ascending order of the ancestors is root first
    return tree.tokens[tree.mask[node]].tolist()


def test_mask_of_a_tree_after_a_prefix() -> None:
    """The prefix is seen by all, siblings do not see each other."""
    mask = torch.tensor([[1, 0, 0], [1, 1, 0], [1, 0, 1]], dtype=torch.bool)
    low = torch.finfo(torch.float32).min
    assert tree_mask(mask, 2, torch.float32).tolist() == [
        [[[0, 0, 0, low, low], [0, 0, 0, 0, low], [0, 0, 0, low, 0]]]
    ]


def test_verify_scores_each_node_as_its_own_text(target: Target, tree: DraftTree) -> None:
    """Logits and features at a node are those of the prompt followed by the node's path."""
    cache = target.new_cache()
    target.extend(PROMPT, cache)
    scored = target.verify(tree, cache)
    assert len(set(tree.depths.tolist())) == 4
    for node in range(len(tree)):
        alone = target.extend(PROMPT + path_tokens(tree, node), target.new_cache())
        close(scored.logits[node], alone.logits[0])
        close(scored.features[node], alone.features[-1])


def test_commit_leaves_the_cache_of_the_accepted_text(target: Target, tree: DraftTree) -> None:
    """Whatever node is accepted, the cache is that of a run that never saw the others."""
    for node in range(len(tree)):
        path = tree.mask[node].nonzero().flatten().tolist()
        cache = target.new_cache()
        target.extend(PROMPT, cache)
        target.verify(tree, cache)
        commit(cache, path, len(tree))
        plain = target.new_cache()
        target.extend(PROMPT + path_tokens(tree, node), plain)
        assert cache.get_seq_length() == plain.get_seq_length()
        for kept, wanted in zip(cache.layers, plain.layers, strict=True):
            close(kept.keys, wanted.keys)
            close(kept.values, wanted.values)


def test_features_are_hidden_states_after_the_tapped_layers(
    target: Target, target_path: Path
) -> None:
    """Tap 0 is entry 1 of transformers' hidden states, tap 2 entry 3."""
    model = LlamaForCausalLM.from_pretrained(target_path)
    with torch.inference_mode():
        states = model(torch.tensor([PROMPT]), output_hidden_states=True).hidden_states
    wanted = torch.cat([states[1][0], states[3][0]], dim=-1)
    features = target.extend(PROMPT, target.new_cache()).features
    assert features.shape == (4, 32)
    close(features, wanted)


def test_facts_are_read_from_the_config(
    target: Target, make_target: Callable[..., Path], tmp_path: Path
) -> None:
    """Several end tokens are all end tokens."""
    assert (target.vocab_size, target.hidden_size, target.layer_count) == (12, 16, 3)
    assert target.context_length == 64
    assert target.eos_token_ids == {2}
    several = load_target(make_target(tmp_path, eos_token_id=[2, 4]), "float32")
    assert several.eos_token_ids == {2, 4}


def test_missing_directory_is_named(tmp_path: Path) -> None:
    """A path is never taken for a name on the Hub."""
    with pytest.raises(ValueError, match="nowhere: no such model directory"):
        load_target(tmp_path / "nowhere", "float32")


def test_sliding_windows_cannot_hold_a_tree(tmp_path: Path) -> None:
    """A target with windowed layers is refused before its weights load, and AR is offered."""
    Gemma2Config(num_hidden_layers=2).save_pretrained(tmp_path)
    with pytest.raises(ValueError, match=r"config.json: layers .*sliding_attention.* AR"):
        load_target(tmp_path, "float32", taps=(0,))
