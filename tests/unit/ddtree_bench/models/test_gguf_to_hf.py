import json

import numpy as np
import pytest
from gguf import GGUFWriter
from safetensors import safe_open
from tokenizers import Tokenizer

from ddtree_bench.errors import MachineError
from ddtree_bench.models.gguf_to_hf import _unpermute, convert

HEADS, KV_HEADS, HIDDEN, INNER = 2, 1, 8, 12
TOKENS = ["<end>", "a", "b", "ab", "1", "2"]
RNG = np.random.default_rng(0)


def write_gguf(path, architecture="llama"):
    """A llama of one layer with random weights and a BPE tokenizer of six tokens."""
    writer = GGUFWriter(path, architecture)
    writer.add_block_count(1)
    writer.add_context_length(64)
    writer.add_embedding_length(HIDDEN)
    writer.add_feed_forward_length(INNER)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(KV_HEADS)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_freq_base(1e4)
    writer.add_vocab_size(len(TOKENS))
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("smollm")
    writer.add_token_list(TOKENS)
    writer.add_token_types([3, 1, 1, 1, 1, 1])
    writer.add_token_merges(["a b"])
    for add in (writer.add_bos_token_id, writer.add_eos_token_id, writer.add_pad_token_id):
        add(0)
    writer.add_chat_template("{{ messages }}")
    weights = {
        name: RNG.standard_normal(shape).astype(np.float32)
        for name, shape in {
            "token_embd.weight": (len(TOKENS), HIDDEN),
            "output_norm.weight": (HIDDEN,),
            "blk.0.attn_q.weight": (HIDDEN, HIDDEN),
            "blk.0.attn_k.weight": (HIDDEN // 2, HIDDEN),
            "blk.0.ffn_up.weight": (INNER, HIDDEN),
        }.items()
    }
    for name, weight in weights.items():
        writer.add_tensor(name, weight)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return weights


@pytest.fixture
def converted(tmp_path):
    """The weights of a small GGUF and the folder that it was converted into."""
    weights = write_gguf(tmp_path / "small.gguf")
    convert(tmp_path / "small.gguf", tmp_path / "hf")
    return weights, tmp_path / "hf"


def test_rotary_rows_come_apart():
    """Pairs (0 1)(2 3) of a head of four rows are stored as halves 0 2 and 1 3."""
    rows = np.arange(4, dtype=np.float32).reshape(4, 1)
    assert _unpermute(rows, heads=1).ravel().tolist() == [0, 2, 1, 3]


def test_weights_keep_their_values_to_bfloat16(converted):
    """Each weight differs from the source by at most half a unit in bfloat16's 8th bit."""
    weights, folder = converted
    with safe_open(folder / "model.safetensors", framework="numpy") as file:
        assert file.get_slice("model.embed_tokens.weight").get_dtype() == "BF16"
        found = file.get_tensor("model.layers.0.mlp.up_proj.weight").astype(np.float32)
    source = weights["blk.0.ffn_up.weight"]
    assert np.all(np.abs(found - source) <= np.abs(source) * 2**-8)
    assert not np.array_equal(found, source)


def test_the_configuration_describes_the_model(converted):
    """Sizes come from the file; without an output matrix the embeddings are tied."""
    _, folder = converted
    config = json.loads((folder / "config.json").read_text())
    assert config["head_dim"] == HIDDEN // HEADS
    assert config["rms_norm_eps"] == 1e-5
    assert config["tie_word_embeddings"] is True


def test_the_tokenizer_merges_and_splits_digits(converted):
    """`ab` is one token, `12` two, and the control token is special."""
    tokenizer = Tokenizer.from_file(str(converted[1] / "tokenizer.json"))
    assert tokenizer.encode("ab12").tokens == ["ab", "1", "2"]
    assert tokenizer.encode("<end>").ids == [0]


def test_other_architectures_are_refused(tmp_path):
    """A model with another layout is not converted wrongly."""
    write_gguf(tmp_path / "other.gguf", architecture="gemma")
    with pytest.raises(MachineError, match="gemma"):
        convert(tmp_path / "other.gguf", tmp_path / "hf")
