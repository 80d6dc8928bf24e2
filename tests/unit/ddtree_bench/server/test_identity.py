import json
from pathlib import Path

import pytest

from ddtree_bench.config import Server
from ddtree_bench.errors import ServerError
from ddtree_bench.server.identity import (
    check_identity,
    check_verify_width,
    differences,
    expected_facts,
    fact_of,
    kept_facts,
)
from ddtree_bench.status import Status

FIXTURES = Path(__file__).parents[3] / "fixtures/sglang-0.5.17-h200"
MODEL = "/models/SmolLM2-135M-Instruct"
AR = Server(engine="sglang", model=MODEL)
CHAIN = Server(
    engine="sglang",
    algorithm="DFLASH",
    model=MODEL,
    drafter="/models/smollm2-135m-dflash-b16",
    block_size=16,
)
TREE = Server(algorithm="DDTREE", model="m", drafter="d", block_size=16, budget=7, topk_cap=4)
TREE_INFO = {
    "model_path": "m",
    "served_model_name": "t",
    "speculative_algorithm": "DDTREE",
    "speculative_draft_model_path": "d",
    "speculative_num_draft_tokens": 8,
    "speculative_dflash_block_size": 16,
    "speculative_ddtree_budget": 7,
    "speculative_ddtree_topk_cap": 4,
    "speculative_accept_threshold_single": 1.0,
    "speculative_accept_threshold_acc": 1.0,
}


def info(name: str) -> dict:
    return json.loads((FIXTURES / name / "server_info.json").read_text(encoding="utf-8"))


def wrong(name, server, found) -> list[str]:
    return [each.fact for each in differences(expected_facts(name, server), found)]


@pytest.mark.parametrize(("name", "server"), [("ar", AR), ("dflash", CHAIN)])
def test_a_real_sglang_server_is_what_it_was_started_as(name, server):
    """Recorded answers of SGLang 0.5.17 match the configuration that they were recorded with."""
    check_identity("target", server, info(name))


@pytest.mark.parametrize(("name", "server"), [("dflash", AR), ("ar", CHAIN)])
def test_one_real_server_is_not_taken_for_the_other(name, server):
    """A port taken by the wrong server ends the launch, every difference named."""
    with pytest.raises(ServerError) as caught:
        check_identity("target", server, info(name))
    assert caught.value.status is Status.WRONG_SERVER
    assert "speculative_algorithm: expected" in caught.value.what


def test_a_tree_server_verifies_its_budget_and_the_root():
    """Budget 7: width 8."""
    assert wrong("t", TREE, TREE_INFO) == []
    assert wrong("t", TREE, {**TREE_INFO, "speculative_num_draft_tokens": 7}) == [
        "speculative_num_draft_tokens"
    ]


@pytest.mark.parametrize("fact", sorted(TREE_INFO))
def test_each_fact_is_checked(fact):
    """No fact of the configuration is taken on trust."""
    assert wrong("t", TREE, {**TREE_INFO, fact: "changed"}) == [fact]


def test_thresholds_below_one_would_accept_what_the_target_does_not_say():
    """Lossy verification is another algorithm."""
    lossy = {**TREE_INFO, "speculative_accept_threshold_acc": 0.9}
    assert wrong("t", TREE, lossy) == ["speculative_accept_threshold_acc"]


def test_paths_are_compared_as_places(tmp_path, monkeypatch):
    """A relative path and the absolute one that the server tells are the same folder."""
    monkeypatch.chdir(tmp_path)
    assert wrong("t", TREE, {**TREE_INFO, "model_path": str(tmp_path / "m")}) == []
    assert wrong("t", TREE, {**TREE_INFO, "model_path": str(tmp_path / "n")}) == ["model_path"]


def test_an_attached_server_keeps_its_models_where_it_likes():
    """Of a path on another machine the name is compared, and its own served name is accepted."""
    attached = Server(engine="attach", base_url="http://x", model="/here/SmolLM2-135M-Instruct")
    check_identity("any", attached, info("ar"))
    other = attached.model_copy(update={"model": "/here/another"})
    with pytest.raises(ServerError, match="model_path"):
        check_identity("any", other, info("ar"))


@pytest.mark.parametrize(
    ("expected", "found", "holds"),
    [
        (32, 32, True),
        (32, 16, False),
        (True, True, True),
        (True, 1, False),
        (1, True, False),
        (None, None, True),
        (0.25, 0.25, True),
        ("triton", "fa3", False),
    ],
)
def test_expects_is_compared_by_value_and_kind(expected, found, holds):
    """1 is not true, and a fact that is absent is null."""
    server = AR.model_copy(update={"expects": {"some_fact": expected}})
    body = {**info("ar"), "some_fact": found}
    assert (wrong("target", server, body) == []) == holds


def test_facts_worth_keeping():
    """Settings that change speed and what was expected are kept, the hundreds of others are not."""
    server = CHAIN.model_copy(update={"expects": {"schedule_policy": "fcfs"}})
    kept = kept_facts(server, info("dflash"))
    assert kept["version"] == "0.5.17"
    assert kept["attention_backend"] == "triton"
    assert kept["speculative_num_draft_tokens"] == 16
    assert kept["schedule_policy"] == "fcfs"
    assert "internal_states" not in kept


def test_expects_reaches_into_nested_facts():
    """SGLang keeps the sizes of its CUDA graphs two levels down."""
    graphs = {"cuda_graph_config.decode.max_bs": 32, "cuda_graph_config.prefill.backend": "full"}
    server = CHAIN.model_copy(update={"expects": graphs})
    assert wrong("target", server, info("dflash")) == ["cuda_graph_config.prefill.backend"]


@pytest.mark.parametrize(
    ("name", "found"),
    [("a", 1), ("a.b", 2), ("c.0.d", 3), ("c.1.d", None), ("c.d", None), ("a.x", None)],
)
def test_fact_of(name, found):
    """A fact's own name goes before a path, lists are counted from 0, what is absent is null."""
    assert fact_of({"a": 1, "a.b": 2, "c": [{"d": 3}]}, name) == found


def test_sizes_of_the_captured_graphs_are_kept():
    """Where SGLang 0.5.17 has them, under the name that finds them again."""
    kept = kept_facts(CHAIN, info("dflash"))
    assert kept["cuda_graph_config.decode.bs"][-1] == 32
    assert kept["disable_overlap_schedule"] is False


@pytest.mark.parametrize("value", [3, "3.5", 1.0, True])
def test_a_server_that_invents_acceptance_is_not_measured(value):
    """Whatever the fact is called exactly, and although no key asks for it."""
    with pytest.raises(ServerError, match="simulate_acc_len"):
        check_identity("t", TREE, {**TREE_INFO, "simulate_acc_len": value})


@pytest.mark.parametrize("value", [None, False, 0, -1, ""])
def test_a_switch_that_is_off_simulates_nothing(value):
    """SGLang's own default is -1."""
    check_identity("t", TREE, {**TREE_INFO, "simulate_acc_len": value})


@pytest.mark.parametrize(
    ("server", "told", "captured"),
    [(TREE, 8, 8), (TREE, 8, None), (AR, None, 1), (AR, None, None)],
)
def test_a_right_width_or_no_graph(server, told, captured):
    """Budget 7: 8 tokens; plain decoding: 1; without a graph there is nothing to compare."""
    check_verify_width("t", server, told, captured)


@pytest.mark.parametrize(
    ("server", "told", "captured"),
    [
        (TREE, 8, 16),
        (AR, None, 16),
        (CHAIN.model_copy(update={"block_size": None}), 16, 8),  # the drafter decides the width
    ],
)
def test_a_captured_graph_of_another_width(server, told, captured):
    """The server says one width and runs another."""
    with pytest.raises(ServerError) as caught:
        check_verify_width("t", server, told, captured)
    assert caught.value.status is Status.WRONG_SERVER
    assert f"found {captured}" in caught.value.what
