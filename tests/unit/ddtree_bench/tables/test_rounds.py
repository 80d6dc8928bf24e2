import pandas as pd
import pytest

from ddtree_bench.tables.rounds import Rounds


def rounds(times: dict[tuple[str, int], float], throttled: set[tuple[str, int]] | None = None,
           **changed: str) -> Rounds:  # fmt: skip
    """Rounds from the start of each launch, one class."""
    rows = [
        {"server": server, "launch": launch, "workload_class": "short", "concurrency": 1,
         "status": changed.get(server, "ok"), "started_unix_s": start_s}
        for (server, launch), start_s in times.items()
    ]  # fmt: skip
    return Rounds(pd.DataFrame(rows), throttled or set())


def common(found: Rounds) -> set[int]:
    return set(found.interleaved(["a", "b"], ["short"], 1))


def test_mirrored_rounds_are_side_by_side() -> None:
    """A B B A: no launch of the other round lies between the two of a round."""
    assert common(rounds({("a", 1): 1, ("b", 1): 2, ("b", 2): 3, ("a", 2): 4})) == {1, 2}


def test_a_server_added_later_is_alone() -> None:
    """A A, then B B under the same numbers: between A's first and B's first lies A's second."""
    found = rounds({("a", 1): 1, ("a", 2): 2, ("b", 1): 10, ("b", 2): 11})
    assert common(found) == set()


def test_only_the_rounds_measured_together_count() -> None:
    """B's second launch was lost and measured again after A's third."""
    times = {("a", 1): 1, ("b", 1): 2, ("a", 2): 4, ("a", 3): 5, ("b", 3): 6, ("b", 2): 9}
    assert common(rounds(times)) == {1, 3}


def test_a_failed_cell_is_no_launch() -> None:
    """A side that failed was not measured in any round."""
    assert common(rounds({("a", 1): 1, ("b", 1): 2}, b="hung")) == set()


@pytest.mark.parametrize("server", ["a", "b"])
def test_a_throttled_launch_takes_its_round_from_both_sides(server: str) -> None:
    """Whichever side was throttled, the round is left out."""
    times = {("a", 1): 1, ("b", 1): 2, ("b", 2): 3, ("a", 2): 4}
    found = rounds(times, {(server, 2), ("c", 1)})
    assert found.left_out(["a", "b"], {1, 2}) == {2}
