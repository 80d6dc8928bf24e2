import math
from typing import Any

import pytest
import torch
from scipy.stats import chisquare  # type: ignore[import-untyped]  # scipy has no types

from ddtree.sampling import Sampling, draw, picker, probabilities, top_log_probs

LOGITS = torch.tensor([0.4, 0.3, 0.2, 0.1]).log()


def sampling(**changes: Any) -> Sampling:
    return Sampling(**({"max_new_tokens": 1, "temperature": 1.0} | changes))


def test_temperature_sharpens() -> None:
    """At temperature ½ probabilities are squared and rescaled."""
    # squares .16 .09 .04 .01, sum .30
    expected = [0.16 / 0.3, 0.09 / 0.3, 0.04 / 0.3, 0.01 / 0.3]
    assert probabilities(LOGITS, sampling(temperature=0.5)).tolist() == pytest.approx(expected)


def test_top_k_keeps_the_best_and_rescales() -> None:
    """Two of four tokens stay: 0.4 and 0.3 of 0.7."""
    assert probabilities(LOGITS, sampling(top_k=2)).tolist() == pytest.approx(
        [0.4 / 0.7, 0.3 / 0.7, 0, 0]
    )


def test_top_p_keeps_the_token_that_crosses() -> None:
    """0.4 is below 0.5, so 0.3 is needed as well; the rest goes."""
    assert probabilities(LOGITS, sampling(top_p=0.5)).tolist() == pytest.approx(
        [0.4 / 0.7, 0.3 / 0.7, 0, 0]
    )


def test_top_k_comes_before_top_p() -> None:
    """After top-k 2 the best token holds 0.571, so top-p 0.5 keeps it alone."""
    assert probabilities(LOGITS, sampling(top_k=2, top_p=0.5)).tolist() == [1, 0, 0, 0]


def test_draw_follows_the_distribution() -> None:
    """20,000 draws fit the probabilities (chi-square; fixed seed, false alarm 1 in 1,000)."""
    probs = torch.tensor([0.4, 0.0, 0.35, 0.25], dtype=torch.float64)
    generator = torch.Generator().manual_seed(3)
    counts = torch.bincount(torch.tensor([draw(probs, generator) for _ in range(20_000)]))
    assert counts[1] == 0
    possible = probs > 0
    assert chisquare(counts[possible], probs[possible] * 20_000).pvalue > 1e-3


def test_temperature_zero_takes_the_first_of_the_best() -> None:
    """Greedy picking has no random state, and equals go to the smaller id."""
    assert picker(sampling(temperature=0.0))(torch.tensor([0.0, 2.0, 2.0])) == 1


def test_same_seed_same_tokens() -> None:
    """A seed fixes the tokens; another seed changes them (60 draws: false alarm below 1e-20)."""
    runs = []
    for seed in (4, 4, 5):
        pick = picker(sampling(seed=seed))
        runs.append([pick(LOGITS) for _ in range(60)])
    assert runs[0] == runs[1] != runs[2]


def test_without_seed_requests_differ() -> None:
    """Two requests without a seed draw differently (60 draws: false alarm below 1e-20)."""
    first, second = picker(sampling()), picker(sampling())
    assert [first(LOGITS) for _ in range(60)] != [second(LOGITS) for _ in range(60)]


def test_top_log_probs_are_best_first() -> None:
    """Ids with natural logarithms of their probabilities."""
    ids, values = zip(*top_log_probs(torch.tensor([0.1, 0.6, 0.3]).log(), 2), strict=True)
    assert ids == (1, 2)
    assert values == pytest.approx([math.log(0.6), math.log(0.3)])


@pytest.mark.parametrize(
    "change",
    [
        {"max_new_tokens": 0},
        {"temperature": -0.1},
        {"temperature": math.nan},
        {"temperature": math.inf},
        {"top_p": 0.0},
        {"top_p": 1.1},
        {"top_p": math.nan},
        {"top_k": 0},
        {"top_k": -2},
        {"seed": -1},
        {"seed": 2**63},
    ],
)
def test_out_of_range_is_refused(change: dict[str, Any]) -> None:
    """The error names the field."""
    with pytest.raises(ValueError, match=next(iter(change))):
        sampling(**change)
