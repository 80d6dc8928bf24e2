from typing import Any

import numpy as np
import pandas as pd
import pytest

from ddtree_bench.errors import NotEnoughData
from ddtree_bench.tables.panel import Panel


def panel(*rows: tuple[str, str, int, str, float]) -> Panel:
    """A panel of (server, class, launch, unit, value) at concurrency 1."""
    columns = ["server", "workload_class", "launch", "unit", "value"]
    frame = pd.DataFrame(rows, columns=columns).assign(concurrency=1)
    return Panel(frame, "value")


def test_repeats_are_averaged_on_the_log_scale() -> None:
    """Two repeats of a prompt in a launch become one value, their geometric mean."""
    found = panel(("a", "short", 1, "p", 1.0), ("a", "short", 1, "p", 4.0))
    block = found.matched(["a"], ["short"], 1).blocks[0][0]
    assert np.exp(block) == pytest.approx(np.array([[2.0]]))


def test_sides_are_cut_to_what_both_have() -> None:
    """A launch or prompt that one side lacks is left out on the other, too."""
    found = panel(
        *[("a", "short", launch, unit, 1.0) for launch in (1, 2, 3) for unit in "pqr"],
        *[("b", "short", launch, unit, 2.0) for launch in (2, 3, 4) for unit in "qrs"],
    )
    matched = found.matched(["a", "b"], ["short"], 1)
    assert matched.launches == (2, 3)
    assert matched.n_prompts == 2
    assert [side[0].shape for side in matched.blocks] == [(2, 2), (2, 2)]


def test_a_prompt_missing_in_one_launch_is_left_out() -> None:
    """Blocks are complete: no gap is filled."""
    found = panel(
        ("a", "short", 1, "p", 1.0), ("a", "short", 2, "p", 1.0), ("a", "short", 1, "q", 9.0)
    )
    matched = found.matched(["a"], ["short"], 1)
    assert matched.n_prompts == 1
    assert matched.blocks[0][0].shape == (2, 1)


def test_classes_are_shared_only_with_a_round_in_common() -> None:
    """Both sides have `longform`, but never in the same round."""
    found = panel(
        ("a", "short", 1, "p", 1.0),
        ("b", "short", 1, "p", 1.0),
        ("a", "longform", 1, "p", 1.0),
        ("b", "longform", 2, "p", 1.0),
    )
    assert found.shared_classes(["a", "b"], 1) == ("short",)
    with pytest.raises(NotEnoughData, match="rounds in common"):
        found.matched(["a", "b"], ["longform"], 1)


def test_nothing_asked_is_nothing_shared() -> None:
    """No class at all is too little, not an empty result."""
    with pytest.raises(NotEnoughData):
        panel(("a", "short", 1, "p", 1.0)).matched(["a"], [], 1)


def test_noise_skips_servers_that_lack_a_class() -> None:
    """A server without one of the classes says nothing about their pooled mean."""
    rows: list[Any] = [
        ("a", name, launch, unit, 1.0)
        for name in ("short", "longform")
        for launch in (1, 2)
        for unit in "pq"
    ]
    rows += [("b", "short", launch, unit, float(launch)) for launch in (1, 2) for unit in "pq"]
    found = panel(*rows)
    assert found.noise(("short", "longform"), 1).variance == 0.0
    # b's launches differ by ln 2; pooled over both servers' one degree of freedom each
    assert found.noise(("short",), 1).variance == pytest.approx(np.log(2) ** 2 / 2 / 2)


def test_values_that_are_not_above_zero_do_not_enter() -> None:
    """A zero has no logarithm; it is no measurement of a duration."""
    found = panel(("a", "short", 1, "p", 0.0), ("a", "short", 1, "q", 1.0))
    assert found.matched(["a"], ["short"], 1).n_prompts == 1


def test_each_concurrency_has_its_own_prompts() -> None:
    """More in flight ask more prompts; those of the smaller cell do not cut the larger one."""
    rows = [
        (server, "short", level, launch, f"p{n}", 1.0)
        for server in "ab" for launch in (1, 2) for level, size in ((1, 2), (8, 32))
        for n in range(size)
    ]  # fmt: skip
    columns = ["server", "workload_class", "concurrency", "launch", "unit", "value"]
    found = Panel(pd.DataFrame(rows, columns=columns), "value")
    assert found.matched(["a", "b"], ["short"], 1).n_prompts == 2
    assert found.matched(["a", "b"], ["short"], 8).n_prompts == 32
