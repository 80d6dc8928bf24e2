from ddtree_bench.rounds.schedule import schedule


def names(*args) -> list[str]:
    return [f"{turn.server}{turn.launch}" for turn in schedule(*args)]


def test_every_second_round_is_mirrored():
    """A B C, C B A: a linear drift of the machine cancels."""
    assert names(["a", "b", "c"], 2) == ["a1", "b1", "c1", "c2", "b2", "a2"]


def test_each_server_is_launched_once_a_round():
    """Rounds are complete, however many there are."""
    turns = schedule(["a", "b"], 5)
    assert {(turn.server, turn.launch) for turn in turns} == {
        (server, launch) for server in "ab" for launch in range(1, 6)
    }


def test_priorities_fall_in_the_order_of_turns():
    """Snakemake runs the highest priority first."""
    priorities = [turn.priority for turn in schedule(["a", "b", "c"], 3)]
    assert priorities == sorted(priorities, reverse=True)
    assert len(set(priorities)) == 9
