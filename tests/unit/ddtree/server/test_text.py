import random

import pytest

from ddtree.server.text import REPLACEMENT, Detokenizer, OutputText


def test_character_comes_out_when_complete(tokenizer, ids):
    """A multi-byte character appears with its last token, and never in pieces."""
    detokenizer = Detokenizer(tokenizer)
    # 'a' is 1 byte, '€' is 3, so the pieces are a, nothing, nothing, €
    assert [detokenizer.push(token) for token in ids("a€b")] == ["a", "", "", "€", "b"]


def test_special_tokens_give_no_text(tokenizer, ids):
    """Ids of special tokens are passed over."""
    detokenizer = Detokenizer(tokenizer)
    assert [detokenizer.push(token) for token in [*ids("a"), 257, *ids("b")]] == ["a", "", "b"]


def test_incomplete_end_is_not_shown(tokenizer, ids):
    """An answer cut inside a character ends before that character."""
    text = OutputText(tokenizer)
    for token in ids("ok😀")[:-1]:
        text.push(token)
    assert text.visible(finished=True) == "ok"


def test_stop_string_is_cut_and_its_start_held_back(tokenizer, ids):
    """Text that may become a stop string is not shown until it is clear that it does not."""
    text = OutputText(tokenizer, ["END"])
    shown = []
    for token in ids("aENbEND"):
        stop = text.push(token)
        shown.append(text.visible(finished=False))
    assert shown == ["a", "a", "a", "aENb", "aENb", "aENb", "aENb"]
    assert stop == "END"
    assert text.visible(finished=True) == "aENb"


def test_held_text_comes_at_the_end(tokenizer, ids):
    """What only looked like a stop string is shown when the answer ends."""
    text = OutputText(tokenizer, ["END"])
    for token in ids("aEN"):
        text.push(token)
    assert text.visible(finished=False) == "a"
    assert text.visible(finished=True) == "aEN"


def test_earliest_stop_string_wins(tokenizer, ids):
    """Of two stop strings that one token completes, the one that starts first cuts."""
    text = OutputText(tokenizer, ["c", "bc"])
    assert [text.push(token) for token in ids("abc")] == [None, None, "bc"]
    assert text.visible(finished=True) == "a"


@pytest.mark.parametrize("seed", range(40))
def test_shown_text_grows_and_is_never_broken(tokenizer, ids, seed):
    """Each shown text extends the one before, without broken characters, up to the whole."""
    rng = random.Random(seed)
    answer = "".join(rng.choice("aé€😀 \n") for _ in range(30))
    text, shown = OutputText(tokenizer, ["é€", "aa"]), ""
    for token in ids(answer):
        stop = text.push(token)
        now = text.visible(finished=stop is not None)
        assert now.startswith(shown)
        assert REPLACEMENT not in now
        assert "é€" not in now
        assert "aa" not in now
        shown = now
        if stop is not None:
            break
    cut = min((answer.find(stop) for stop in ("é€", "aa") if stop in answer), default=30)
    assert text.visible(finished=True) == answer[:cut]
