"""One server, and everything a request can do to a tree: ends, batches, caches, limits."""

import json
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import requests
from real.ddtree_sglang.servers import (
    ROOT,
    Running,
    check_choices,
    serving,
    shared_length,
    steps_within,
    tree_server,
)

pytestmark = pytest.mark.heavy

BUDGET, TOPK = 15, 8
TOKENS = 96
SOME = 8
"""Prompts that most tests ask: short and long ones."""
REFERENCE = ROOT / "benchmarks/reference_engine.json"
REFERENCE_TOKENS = 192
"""New tokens a prompt at most in the reference engine's figures."""
LEAST_SHARED = 0.4
"""Share of all tokens before the answers part; else a test would have compared nothing."""
RESUMED = 32
EOS = 2


def read(server: Running, prompts: Sequence[Sequence[int]]) -> None:
    """Put prompts into the cache, so that each later answer starts from the same computation.

    A prompt read in other pieces is rounded otherwise: with these prompts plain decoding and DFLASH
    part from themselves, at a token with an exact rival.
    """
    server.answers(prompts, 1, at_once=1)


@pytest.fixture(scope="module")
def tree(prompts: list[list[int]], logs: Path) -> Iterator[Running]:
    """The server that all tests here ask."""
    with tree_server(logs, BUDGET, TOPK, "--speculative-ddtree-trace", name="tree") as server:
        read(server, prompts)
        yield server


@pytest.fixture(scope="module")
def alone(tree: Running, prompts: list[list[int]]) -> list[dict[str, Any]]:
    """Answers to some prompts, one at a time."""
    return tree.answers(prompts[:SOME], TOKENS, at_once=1)


def acceptance(answers: Sequence[dict[str, Any]]) -> float:
    """Tokens a verify step, bonus included, pooled."""
    steps = sum(answer["meta_info"]["spec_verify_ct"] for answer in answers)
    accepted = sum(answer["meta_info"]["spec_num_correct_drafts"] for answer in answers)
    return (steps + accepted) / steps


@pytest.mark.extended
def test_acceptance_is_that_of_the_reference_engine(
    tree: Running, prompts: list[list[int]]
) -> None:
    """Same prompts, same trees, both in float32."""
    figures = json.loads(REFERENCE.read_text(encoding="utf-8"))
    wanted = figures["arms"]["tree 15/8"]["acceptance_length"]
    answers = tree.answers(prompts, REFERENCE_TOKENS, at_once=1)
    assert acceptance(answers) == pytest.approx(wanted, rel=0.03)


def test_server_info_shows_the_trees_sizes(tree: Running) -> None:
    """Beside what SGLang says of itself."""
    info = requests.get(f"{tree.url}/server_info", timeout=30).json()
    assert info["speculative_algorithm"] == "DDTREE"
    assert info["speculative_ddtree_budget"] == BUDGET
    assert info["speculative_ddtree_topk_cap"] == TOPK
    assert info["speculative_num_draft_tokens"] == BUDGET + 1
    assert info["speculative_dflash_block_size"] == 16


@pytest.mark.extended
@pytest.mark.parametrize("at_once", [4, 8])
def test_a_batch_answers_like_one_at_a_time(
    at_once: int,
    tree: Running,
    plain: Running,
    prompts: list[list[int]],
    alone: list[dict[str, Any]],
) -> None:
    """Other row counts round differently: texts part at near ties, and until then cost as much."""
    together = tree.answers(prompts[:SOME], TOKENS, at_once=at_once)
    shared, steps, steps_together = 0, 0, 0
    for prompt, one, other in zip(prompts, alone, together, strict=False):
        length = shared_length(plain, prompt, one["output_ids"], other["output_ids"])
        shared += length
        steps += steps_within(one, 0, length)
        steps_together += steps_within(other, 0, length)
    assert shared >= LEAST_SHARED * sum(len(answer["output_ids"]) for answer in alone)
    assert steps_together == pytest.approx(steps, rel=0.03)


def test_a_length_limit_cuts_inside_a_path(tree: Running, prompts: list[list[int]]) -> None:
    """Every shorter answer is the beginning of the longest, to the token."""
    whole = tree.answer(prompts[0], 32)["output_ids"]
    for limit in range(1, len(whole)):
        answer = tree.answer(prompts[0], limit)
        assert answer["output_ids"] == whole[:limit]
        assert answer["meta_info"]["finish_reason"]["type"] == "length"


def test_a_stop_token_cuts_inside_a_path(tree: Running, prompts: list[list[int]]) -> None:
    """Whichever token of an answer is the stop, the answer ends with its first occurrence."""
    whole = tree.answer(prompts[0], 32)["output_ids"]
    for token in dict.fromkeys(whole):
        answer = tree.answer(prompts[0], 32, stop_token_ids=[token])
        assert answer["output_ids"] == whole[: whole.index(token) + 1]


def test_an_answer_ends_with_the_end_of_text(alone: list[dict[str, Any]]) -> None:
    """Nothing that a tree accepted behind it is kept."""
    ended = [a for a in alone if a["meta_info"]["finish_reason"]["type"] == "stop"]
    assert ended
    for answer in ended:
        assert answer["output_ids"].index(EOS) == len(answer["output_ids"]) - 1


@pytest.mark.extended
def test_a_cached_prefix_continues_an_answer(
    tree: Running, plain: Running, prompts: list[list[int]], alone: list[dict[str, Any]]
) -> None:
    """Moved cache entries and the drafter's appended ones serve as those of a fresh prompt."""
    long = [
        (prompt, answer)
        for prompt, answer in zip(prompts, alone, strict=False)
        if len(answer["output_ids"]) >= 64
    ]
    shared, rest, steps, steps_resumed = 0, 0, 0, 0
    for prompt, answer in long:
        known, wanted = answer["output_ids"][:RESUMED], answer["output_ids"][RESUMED:]
        resumed = tree.answer([*prompt, *known], len(wanted))
        assert resumed["meta_info"]["cached_tokens"] >= 24
        length = shared_length(plain, [*prompt, *known], resumed["output_ids"], wanted)
        shared += length
        rest += len(wanted)
        steps += steps_within(answer, RESUMED, RESUMED + length)
        steps_resumed += steps_within(resumed, 0, length)
    assert shared >= LEAST_SHARED * rest
    # each answer's first step may begin elsewhere on its path
    assert abs(steps_resumed - steps) <= len(long) + 0.05 * steps


def test_an_aborted_request_leaves_the_others_alone(
    tree: Running, prompts: list[list[int]], alone: list[dict[str, Any]]
) -> None:
    """A client that hangs up frees its slots while another answer goes on."""
    hung_up = threading.Event()

    def hang_up() -> None:
        body = {
            "input_ids": prompts[5],
            "sampling_params": {"temperature": 0, "max_new_tokens": 512, "ignore_eos": True},
            "stream": True,
        }
        with requests.post(f"{tree.url}/generate", json=body, stream=True, timeout=60) as stream:
            next(stream.iter_lines())
        hung_up.set()

    with ThreadPoolExecutor(2) as pool:
        gone = pool.submit(hang_up)
        kept = pool.submit(tree.answer, prompts[6], TOKENS)
        gone.result()
        assert len(kept.result()["output_ids"]) == min(TOKENS, len(alone[6]["output_ids"]))
    assert hung_up.is_set()
    assert tree.answer(prompts[0], 32)["output_ids"] == alone[0]["output_ids"][:32]


def test_a_traced_answer_shows_its_trees(tree: Running, prompts: list[list[int]]) -> None:
    """An entry a verify step; the accepted paths spell the answer."""
    answer = tree.answer(prompts[0], 32)
    meta, ids = answer["meta_info"], answer["output_ids"]
    steps = [(i, entry) for i, entry in enumerate(meta["ddtree_trace"]) if entry is not None]
    assert len(steps) == meta["spec_verify_ct"]
    for place, step in steps:
        assert len(step["tokens"]) == len(step["parents"]) == len(step["log_probs"]) == BUDGET + 1
        assert step["tokens"][0] == ids[place - 1]  # the bonus token of the step before
        spelled = [step["tokens"][node] for node in step["path"][1:]]
        assert spelled[: len(ids) - place] == ids[place : place + len(spelled)]
        assert step["path"] == sorted(step["path"])


def test_log_probabilities_are_refused_with_the_reason(
    tree: Running, prompts: list[list[int]]
) -> None:
    """As DFLASH refuses them, for the request and not for the server."""
    body = {"input_ids": prompts[0], "return_logprob": True}
    response = requests.post(f"{tree.url}/generate", json=body, timeout=60)
    assert "return_logprob" in response.text
    assert response.status_code == 400


@pytest.mark.extended
@pytest.mark.parametrize("budget", [8, 31])
def test_requests_run_into_the_context_limit(
    budget: int, prompts: list[list[int]], logs: Path
) -> None:
    """The CPU's kernel raises where a step would write past a request's row."""
    name = f"limit-b{budget}"
    with tree_server(logs, budget, TOPK, "--context-length", "128", name=name) as server:
        asked = [*prompts[5:8], prompts[12]]

        def fill(prompt: list[int]) -> dict[str, Any]:
            return server.answer(prompt, 127 - len(prompt), ignore_eos=True)

        with ThreadPoolExecutor(4) as pool:
            answers = list(pool.map(fill, asked))
    for prompt, answer in zip(asked, answers, strict=True):
        # SGLang itself ends two positions short of the limit
        assert len(prompt) + len(answer["output_ids"]) == 126
        assert answer["meta_info"]["finish_reason"]["type"] == "length"


@pytest.mark.extended
def test_a_long_prompt_is_read_in_chunks(prompts: list[list[int]], logs: Path) -> None:
    """The drafter's cache is filled chunk by chunk, and drafts are accepted afterwards."""
    with tree_server(logs, BUDGET, TOPK, "--chunked-prefill-size", "64", name="chunks") as server:
        prompt = [token for prompt in prompts[:10] for token in prompt]
        answer = server.answer(prompt, 48)
    assert answer["meta_info"]["spec_num_correct_drafts"] > 0
    assert len(answer["output_ids"]) > 0


@pytest.mark.extended
def test_without_overlap_the_answers_are_plain_decodings_too(
    prompts: list[list[int]], plain: Running, logs: Path
) -> None:
    """The scheduler's lead changes when things happen, not what.

    Texts are not compared with those of the other scheduler: stock DFLASH, too, parts from itself
    there, at tokens with an exact rival.
    """
    flag = "--disable-overlap-schedule"
    with tree_server(logs, BUDGET, TOPK, flag, name="no-overlap") as server:
        answers = server.answers(prompts[:4], TOKENS, at_once=1)
    for prompt, answer in zip(prompts, answers, strict=False):
        check_choices(plain, prompt, answer["output_ids"])


@pytest.mark.extended
def test_retracted_requests_go_on_where_they_were(
    prompts: list[list[int]], plain: Running, logs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SGLang's own switch takes requests out of the batch and puts them back."""
    monkeypatch.setenv("SGLANG_TEST_RETRACT", "1")
    with tree_server(logs, BUDGET, TOPK, name="retract") as server:
        answers = server.answers(prompts[:8], TOKENS, at_once=8)
    assert sum(answer["meta_info"]["num_retractions"] for answer in answers) > 0
    for prompt, answer in zip(prompts, answers, strict=False):
        check_choices(plain, prompt, answer["output_ids"])
    log = (logs / "retract.log").read_text(encoding="utf-8", errors="replace")
    assert "Traceback" not in log


@pytest.mark.extended
def test_an_impossible_size_ends_the_start_with_the_reason(logs: Path) -> None:
    """Before the model is loaded."""
    from ddtree_bench.errors import ServerError  # its message holds the end of the log

    with pytest.raises(ServerError) as caught, tree_server(logs, 0, TOPK, name="no-budget"):
        pass
    text = str(caught.value) + (logs / "no-budget.log").read_text(encoding="utf-8")
    assert "must be 1 to 255, got 0" in text
    assert "Load weight begin" not in text


@pytest.mark.extended
def test_other_algorithms_are_left_alone(logs: Path, prompts: list[list[int]]) -> None:
    """DFLASH with the plug-in loaded reports its own fields and none of ours."""
    from real.ddtree_sglang.servers import configured

    drafter = configured().drafter
    assert drafter is not None
    flags = ("--speculative-algorithm", "DFLASH", "--speculative-draft-model-path", drafter)
    with serving("dflash", logs, *flags) as server:
        meta = server.answer(prompts[0], 32)["meta_info"]
        info = requests.get(f"{server.url}/server_info", timeout=30).json()
    assert meta["spec_num_correct_drafts"] > 0
    assert not [key for key in [*meta, *info] if "ddtree" in key]
