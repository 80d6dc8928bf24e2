import numpy as np
import pytest

from ddtree_bench.errors import NotEnoughData
from ddtree_bench.stats import speed

AT_S = np.array([0.5, 0.7, 1.1, 1.3])
TOKENS = np.array([1, 4, 5, 9])


def test_prefill_stays_out_of_decode_speed() -> None:
    """Decode speed counts neither the first event's tokens nor the time before it."""
    # 9 − 1 = 8 tokens in 1.3 − 0.5 = 0.8 s
    assert speed.decode_speed(AT_S, TOKENS) == pytest.approx(10.0)
    assert speed.decode_speed(AT_S + 3, TOKENS) == pytest.approx(10.0)


def test_time_per_token_is_the_inverse_of_decode_speed() -> None:
    """TPOT and decode speed are one figure, two ways round."""
    # 0.8 s ÷ 8 tokens
    assert speed.time_per_token(AT_S, TOKENS) == pytest.approx(0.1)


def test_time_to_first_token_is_the_first_event() -> None:
    """The first event with tokens ends prefill."""
    assert speed.time_to_first_token(AT_S) == 0.5


def test_burst_gap_is_the_median_wait_between_events() -> None:
    """One long wait does not make a typical one."""
    # gaps 0.2, 0.4, 0.2
    assert speed.burst_gap(AT_S) == pytest.approx(0.2)


def test_step_time_divides_by_verify_steps_not_events() -> None:
    """Events that a slow client merged do not make steps longer."""
    # 0.8 s in 4 steps, though only 3 events follow the first
    assert speed.step_time(AT_S, TOKENS, verify_steps=4) == pytest.approx(0.2)


def test_step_time_needs_to_know_the_steps_of_the_first_event() -> None:
    """A first event of several tokens hides how many steps came after it."""
    with pytest.raises(NotEnoughData, match="first events of a single token"):
        speed.step_time(AT_S, TOKENS + 2, verify_steps=4)


def test_no_verify_step_has_no_step_time() -> None:
    """Zero steps is not a step of zero or infinite length."""
    with pytest.raises(NotEnoughData, match="verify steps"):
        speed.step_time(AT_S, TOKENS, verify_steps=0)


@pytest.mark.parametrize("n_events", [0, 1])
@pytest.mark.parametrize("formula", [speed.decode_speed, speed.time_per_token])
def test_one_event_has_no_decode_speed(formula: object, n_events: int) -> None:
    """An answer in one piece, or none, tells nothing of decoding."""
    assert callable(formula)
    with pytest.raises(NotEnoughData):
        formula(AT_S[:n_events], TOKENS[:n_events])


def test_events_at_one_instant_have_no_speed() -> None:
    """Tokens in no time are not infinite speed."""
    with pytest.raises(NotEnoughData, match="distinct arrival times"):
        speed.decode_speed(np.array([0.5, 0.5]), np.array([1, 4]))


def test_nothing_streamed_has_no_first_token() -> None:
    """No event, no time to first token."""
    with pytest.raises(NotEnoughData):
        speed.time_to_first_token(np.array([]))


def test_one_event_has_no_gap() -> None:
    """A gap needs two events."""
    with pytest.raises(NotEnoughData):
        speed.burst_gap(AT_S[:1])
