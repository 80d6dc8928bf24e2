import json
import signal
import socket

import httpx
import pytest

pytestmark = pytest.mark.engine

CHAT = "/v1/chat/completions"
ENDLESS = {"max_new_tokens": 4000, "temperature": 0, "ignore_eos": True}


@pytest.fixture
def tree_flags(drafter_path):
    """Flags of a tree of budget 7."""
    flags = ["--port", "0", "--threads", "1", "--served-model-name", "tiny"]
    flags += ["--speculative-algorithm", "DDTREE", "--speculative-draft-model-path", drafter_path]
    return [*flags, "--speculative-ddtree-budget", "7", "--speculative-ddtree-topk-cap", "3"]


def events(response):
    """JSON of each event as it comes."""
    for line in response.iter_lines():
        if line.startswith("data: {"):
            yield json.loads(line.removeprefix("data: "))


def test_a_server_from_start_to_end(start, tree_flags):
    """One server answers, streams, aborts, notices a client that leaves, and ends on SIGTERM."""
    process = start(*tree_flags)
    with process.client() as client:
        info = client.get("/server_info").json()
        assert info["speculative_algorithm"] == "DDTREE"
        assert info["speculative_num_draft_tokens"] == 8
        assert info["speculative_dflash_block_size"] == 6
        assert info["served_model_name"] == "tiny"
        assert info["port"] == process.port
        assert info["internal_states"] == [{}], "the warm-up belongs to no request"

        sent = {"text": "hello", "sampling_params": {**ENDLESS, "max_new_tokens": 12}}
        whole = client.post("/generate", json=sent).json()
        with client.stream("POST", "/generate", json={**sent, "stream": True}) as response:
            *_, last = events(response)
        assert last["output_ids"] == whole["output_ids"]
        assert last["text"] == whole["text"]
        meta = last["meta_info"]
        assert sum(meta["spec_accept_histogram"]) == meta["spec_verify_ct"]
        assert sum(meta["ddtree_accepted_by_rank"]) == meta["spec_num_correct_drafts"]
        assert sum(meta["ddtree_nodes_by_depth"]) == 7 * meta["spec_verify_ct"]

        chat = {"model": "tiny", "messages": [{"role": "user", "content": "hi"}], "max_tokens": 3}
        assert client.post(CHAT, json=chat).json()["usage"]["completion_tokens"] in (1, 2, 3)

        endless = {"text": "x", "stream": True, "rid": "me", "sampling_params": ENDLESS}
        with client.stream("POST", "/generate", json=endless) as response:
            answers = events(response)
            next(answers)
            assert httpx.post(f"{client.base_url}/abort_request", json={"rid": "me"}).is_success
            *_, last = answers
        assert last["meta_info"]["finish_reason"]["type"] == "abort"
        assert last["meta_info"]["completion_tokens"] < 4000

        with client.stream("POST", "/generate", json=endless) as response:
            next(events(response))
        # the connection is closed: the next request must not wait for 4,000 tokens
        assert client.post("/generate", json=sent).json()["output_ids"] == whole["output_ids"]

        large = client.post("/generate", content=b" " * 50_000_000)
        assert large.status_code == 413

        with client.stream("POST", "/generate", json=endless) as response:
            answers = events(response)
            next(answers)
            process.child.send_signal(signal.SIGTERM)
            *_, last = answers
        assert last["meta_info"]["finish_reason"]["type"] == "abort"
    assert process.end(timeout_s=20.0) == 0
    assert "Traceback" not in process.output


def test_plain_chain_and_tree_agree(start, drafter_path):
    """Greedy ids are the same with and without drafts."""
    common = ["--port", "0", "--threads", "1"]
    chain = ["--speculative-algorithm", "DFLASH", "--speculative-draft-model-path", drafter_path]
    sent = {"input_ids": [104, 105], "sampling_params": {**ENDLESS, "max_new_tokens": 20}}
    answers = []
    for process in (start(*common), start(*common, *chain)):
        with process.client() as client:
            answers.append(client.post("/generate", json=sent).json())
    plain, drafted = answers
    assert plain["output_ids"] == drafted["output_ids"]
    assert "spec_verify_ct" not in plain["meta_info"]
    assert drafted["meta_info"]["ddtree_verify_width"] == 6


def test_port_in_use(start):
    """A port that is taken is told at once, with the port and what to do."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        process = start("--port", str(port))
        assert process.end() == 1
    assert f"127.0.0.1:{port}: Address already in use; choose another --port" in process.output
    assert "Traceback" not in process.output


def test_wrong_flags_end_before_torch_is_loaded(start):
    """A contradiction exits with 2 and names the flag; torch is not imported for it."""
    process = start("--speculative-ddtree-budget", "3", PYTHONPROFILEIMPORTTIME="1")
    assert process.end() == 2
    assert "argparse" in process.output, "imports are listed"
    assert "torch" not in process.output
    assert "--speculative-ddtree-budget needs --speculative-algorithm" in process.output


def test_sigterm_while_loading(start):
    """A server that is stopped before it is ready ends in order, too."""
    process = start("--port", "0", PYTHONPROFILEIMPORTTIME="1")
    # torch is being imported: signal handlers are in place, the model is not loaded
    assert process.wait_for_line("torch")
    process.child.send_signal(signal.SIGTERM)
    assert process.end() == 0
    assert "ready to roll" not in process.output


def test_a_drafter_that_asks_too_much(start, drafter_path):
    """What only the loaded models can tell ends with 1 and the reason."""
    flags = ["--speculative-algorithm", "DFLASH", "--speculative-draft-model-path", drafter_path]
    process = start("--port", "0", *flags, "--speculative-dflash-block-size", "7")
    assert process.end() == 1
    assert "block_size 7 is above the checkpoint's 6" in process.output
    assert "Traceback" not in process.output
