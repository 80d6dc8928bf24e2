"""How late the client's own clock ticks."""

import time
from types import SimpleNamespace

from ddtree_bench.session import lag
from ddtree_bench.session.lag import LagMeter


def test_a_held_up_client_is_seen(monkeypatch):
    """The clock itself stands in for a machine that lets the thread wait 0.5 s at each tick."""
    monkeypatch.setattr(lag, "TICK_S", 0.001)
    monkeypatch.setattr(lag, "time", SimpleNamespace(monotonic=lambda: 500 * time.monotonic()))
    with LagMeter() as meter:
        time.sleep(0.1)
    assert meter.lag_s is not None
    assert meter.lag_s > 0.01


def test_no_tick_is_no_lag():
    """A block shorter than a tick has measured nothing."""
    with LagMeter() as meter:
        pass
    assert meter.lag_s is None
