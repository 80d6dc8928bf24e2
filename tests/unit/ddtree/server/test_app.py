import pytest

from ddtree.server.http import BODY_MAX_BYTES

CHAT = "/v1/chat/completions"
MESSAGES = [{"role": "user", "content": "hi"}]
CHAIN_KEYS = {"ddtree_verify_width", "ddtree_drafting_s"}
TREE_KEYS = CHAIN_KEYS | {
    "ddtree_nodes_by_depth",
    "ddtree_accepted_by_depth",
    "ddtree_accepted_by_rank",
    "ddtree_accepted_by_node",
    "ddtree_spine_nodes",
}


@pytest.fixture
def client(client_of, make_engine, ids):
    """Client of a chain server that answers "héllo"."""
    return client_of(make_engine("DFLASH", ids("héllo")))


def greedy(**params):
    return {"temperature": 0, "max_new_tokens": 32, **params}


def test_generate_has_the_recorded_keys(client, recorded):
    """A chain's body has exactly the fields of a real server, and what a chain has of a tree's."""
    body = client.post("/generate", json={"text": "x", "sampling_params": greedy()}).json()
    real = recorded("dflash/generate.json")
    assert body.keys() == real.keys()
    assert body["meta_info"].keys() - CHAIN_KEYS == real["meta_info"].keys()
    assert body["text"] == "héllo"
    assert body["output_ids"][-1] == 257


def test_spec_fields(client):
    """Acceptance fields follow from the steps."""
    info = client.post("/generate", json={"text": "x", "sampling_params": greedy()}).json()[
        "meta_info"
    ]
    # 6 bytes + eos = 7 tokens: 1 from the prefill, 3 from each of 2 verify steps of width 4
    assert info["completion_tokens"] == 7
    assert info["spec_verify_ct"] == 2
    assert info["spec_accept_length"] == 7 / 2
    assert info["spec_num_correct_drafts"] == 4
    assert info["spec_num_proposed_drafts"] == 2 * 3
    assert info["spec_accept_rate"] == 4 / 6
    assert info["spec_accept_histogram"] == info["spec_correct_drafts_histogram"] == [0, 0, 2]
    assert info["prompt_tokens"] == 1
    assert info["cached_tokens"] == 0
    assert info["finish_reason"] == {"type": "stop", "matched": 257}
    assert info["e2e_latency"] > 0


def test_plain_decoding_has_no_spec_fields(client_of, make_engine, ids, recorded):
    """Without drafts the acceptance fields are absent, not zero."""
    client = client_of(make_engine("AR", ids("abc")))
    body = client.post("/generate", json={"text": "x", "sampling_params": greedy()}).json()
    assert body["meta_info"].keys() == recorded("ar/generate.json")["meta_info"].keys()


def test_tree_fields(client_of, make_engine, ids):
    """A tree's steps come as sums over verify steps, beside SGLang's fields."""
    client = client_of(make_engine("DDTREE", ids("abcdef")))
    body = client.post("/generate", json={"text": "x", "sampling_params": greedy()}).json()
    info = body["meta_info"]
    assert {key for key in info if key.startswith("ddtree")} == TREE_KEYS
    # two steps of nodes (2, 2, 1), ranks (0, 1) and nodes (1, 4) accepted, 3 on the spine, 1/8 s
    assert info["ddtree_verify_width"] == 6
    assert info["ddtree_nodes_by_depth"] == [4, 4, 2]
    assert info["ddtree_accepted_by_depth"] == [2, 2]
    assert info["ddtree_accepted_by_rank"] == [2, 2]
    assert info["ddtree_accepted_by_node"] == [2, 0, 0, 2]
    assert info["ddtree_drafting_s"] == 0.25
    assert info["ddtree_spine_nodes"] == 6
    assert info["spec_num_proposed_drafts"] == 2 * 5


def test_generate_stream_is_cumulative(client, bodies, recorded):
    """Each event holds the answer so far; only the last has the keys of the end."""
    sent = {"text": "x", "stream": True, "sampling_params": greedy()}
    response = client.post("/generate", json=sent)
    assert response.headers["content-type"].startswith("text/event-stream")
    *events, done = bodies(response.text)
    assert done == "[DONE]"
    assert [event["text"] for event in events] == ["h", "hél", "héllo"]
    assert [len(event["output_ids"]) for event in events] == [1, 4, 7]
    real = recorded("dflash/generate_stream.sse")
    # the recorded second event: the first one also tells when it was sent
    assert events[0]["meta_info"].keys() == real[1]["meta_info"].keys()
    extra = CHAIN_KEYS
    assert events[-1]["meta_info"].keys() - extra == real[-2]["meta_info"].keys()


def test_chat_has_the_recorded_keys(client, recorded):
    """A chat answer has exactly the fields of a real server."""
    sent = {"model": "target", "messages": MESSAGES, "temperature": 0, "max_tokens": 5}
    body, real = client.post(CHAT, json=sent).json(), recorded("dflash/chat.json")
    for mine, theirs in (
        (body, real),
        (body["choices"][0], real["choices"][0]),
        (body["choices"][0]["message"], real["choices"][0]["message"]),
        (body["usage"], real["usage"]),
    ):
        assert mine.keys() == theirs.keys()
    assert body["choices"][0]["message"]["content"] == "héll"
    assert body["choices"][0]["finish_reason"] == "length"
    assert body["usage"]["completion_tokens"] == 5


def test_chat_meta_info(client, recorded):
    """`return_meta_info` adds the counts to the choice; a stream refuses it."""
    sent = {"messages": MESSAGES, "return_meta_info": True}
    choice = client.post(CHAT, json=sent).json()["choices"][0]
    real = recorded("dflash/chat_meta.json")["choices"][0]
    assert choice.keys() == real.keys()
    assert choice["meta_info"].keys() - CHAIN_KEYS == real["meta_info"].keys()
    refused = client.post(CHAT, json={**sent, "stream": True})
    assert refused.status_code == 400
    assert "return_meta_info" in refused.json()["message"]


def test_chat_stream(client, bodies, recorded):
    """Chunks carry cumulative usage; then come the end, the usage alone, and [DONE]."""
    options = {"include_usage": True, "continuous_usage_stats": True}
    sent = {"messages": MESSAGES, "stream": True, "stream_options": options}
    *chunks, done = bodies(client.post(CHAT, json=sent).text)
    real = recorded("dflash/chat_stream.sse")
    assert done == "[DONE]"
    for mine, theirs in ((0, 0), (1, 1), (-2, -3), (-1, -2)):
        assert chunks[mine].keys() == real[theirs].keys()
    for mine, theirs in ((0, 0), (1, 1), (-2, -3)):
        one, other = chunks[mine]["choices"][0], real[theirs]["choices"][0]
        assert one.keys() == other.keys()
        assert one["delta"].keys() == other["delta"].keys()
    text = [c["choices"][0]["delta"].get("content") for c in chunks[:-2]]
    assert text == ["", "h", "él", "lo"]
    assert [c["usage"]["completion_tokens"] for c in chunks[1:-2]] == [1, 4, 7]
    assert chunks[-2]["choices"][0]["finish_reason"] == "stop"
    assert chunks[-2]["choices"][0]["matched_stop"] == 257
    assert chunks[-1]["choices"] == []
    assert chunks[-1]["usage"]["completion_tokens"] == 7


def test_chat_stream_without_usage(client, bodies):
    """No usage is sent unless asked for."""
    *chunks, _ = bodies(client.post(CHAT, json={"messages": MESSAGES, "stream": True}).text)
    assert not any("usage" in chunk for chunk in chunks)


def test_logprobs_of_plain_decoding(client_of, make_engine, ids, recorded):
    """Both routes give the recorded shapes of log-probabilities."""
    client = client_of(make_engine("AR", ids("abc")))
    sent = {"text": "x", "return_logprob": True, "top_logprobs_num": 2}
    info = client.post("/generate", json=sent).json()["meta_info"]
    assert info.keys() == recorded("ar/generate_logprob.json")["meta_info"].keys()
    assert info["output_token_logprobs"][0] == [-0.5, ids("a")[0], None]
    assert info["output_top_logprobs"][0] == [[-1.0, 0, None], [-2.0, 1, None]]
    sent = {"messages": MESSAGES, "logprobs": True, "top_logprobs": 2}
    content = client.post(CHAT, json=sent).json()["choices"][0]["logprobs"]["content"]
    real = recorded("ar/chat_logprobs.json")["choices"][0]["logprobs"]["content"]
    assert content[0].keys() == real[0].keys()
    assert (content[0]["token"], content[0]["bytes"]) == ("a", [97])
    assert len(content) == 4
    assert len(content[0]["top_logprobs"]) == 2


def test_logprobs_are_refused_with_drafts(client, recorded):
    """A speculative server refuses log-probabilities, in each route's error shape."""
    native = client.post("/generate", json={"text": "x", "return_logprob": True})
    assert native.status_code == 400
    assert native.json().keys() == recorded("dflash/generate_logprob.json").keys()
    chat = client.post(CHAT, json={"messages": MESSAGES, "logprobs": True})
    assert chat.status_code == 400
    assert chat.json().keys() == recorded("dflash/chat_logprobs.json").keys()
    assert "DFLASH" in chat.json()["message"]


@pytest.mark.parametrize(
    ("body", "status", "message"),
    [
        ({"model": "target"}, 400, "messages"),
        ({"messages": []}, 400, "messages is empty"),
        ({"messages": MESSAGES, "model": "other"}, 404, "'other' does not exist"),
        ({"messages": [{"role": "user", "content": "x" * 400}]}, 400, "longer than the model"),
        ({"messages": MESSAGES, "max_tokens": 390}, 400, "ask for at most"),
    ],
)
def test_wrong_chat_requests(client, recorded, body, status, message):
    """A wrong chat request gets the recorded error shape and a sentence that helps."""
    response = client.post(CHAT, json=body)
    assert response.status_code == status
    assert response.json().keys() == recorded("dflash/bad_body.json").keys()
    assert message in response.json()["message"]
    assert response.json()["code"] == status


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ({}, "either text or input_ids"),
        ({"text": "x", "input_ids": [1]}, "either text or input_ids"),
        ({"text": ["x", "y"]}, "text"),
        ({"text": ""}, "empty"),
        ({"input_ids": []}, "empty"),
        ({"input_ids": [258]}, "outside the vocabulary"),
        ({"input_ids": [1] * 400}, "longer than the model"),
    ],
)
def test_wrong_generate_requests(client, body, message):
    """A wrong native request is a 400 in the native error shape."""
    response = client.post("/generate", json=body)
    assert response.status_code == 400
    assert message in response.json()["error"]["message"]


def test_body_too_large_is_413(client):
    """A body over the limit is refused with its own status, and the server goes on."""
    response = client.post("/generate", content=b" " * (BODY_MAX_BYTES + 1))
    assert response.status_code == 413
    assert str(BODY_MAX_BYTES) in response.json()["error"]["message"]
    assert client.post("/generate", json={"text": "x"}).status_code == 200


def test_not_json_is_400(client):
    """A body that is not JSON is the client's fault."""
    response = client.post(CHAT, content=b"{")
    assert response.status_code == 400
    assert "not JSON" in response.json()["message"]


def test_unknown_path_and_method(client):
    """Unknown paths and methods answer as FastAPI does."""
    assert client.get("/nope").json() == {"detail": "Not Found"}
    assert client.get("/generate").status_code == 405


def test_engine_error_before_the_first_token(client_of, make_engine):
    """An engine error is a 500 with its message, also for a stream that has not begun."""
    client = client_of(make_engine(answer=[RuntimeError("no memory")]))
    for stream in (False, True):
        native = client.post("/generate", json={"text": "x", "stream": stream})
        assert native.status_code == 500
        assert "no memory" in native.json()["error"]["message"]
        chat = client.post(CHAT, json={"messages": MESSAGES, "stream": stream})
        assert chat.status_code == 500
        assert chat.json()["code"] == 500


def test_engine_error_in_a_stream(client_of, make_engine, ids, bodies):
    """An engine error after the first token is an event of the stream."""
    engine = make_engine(answer=[*ids("a"), RuntimeError("no memory")])
    client = client_of(engine)
    for path, body in (("/generate", {"text": "x"}), (CHAT, {"messages": MESSAGES})):
        *_, error, done = bodies(client.post(path, json={**body, "stream": True}).text)
        assert "no memory" in error["error"]["message"]
        assert done == "[DONE]"
    engine.answer = ids("b")
    assert client.post("/generate", json={"text": "x"}).json()["text"] == "b"


def test_sampling_reaches_the_engine(client_of, make_engine, ids):
    """Parameters arrive as sent; absent ones are SGLang's defaults, with a seed of ours."""
    engine = make_engine(answer=ids("a"))
    client = client_of(engine)
    given = {"temperature": 0.5, "top_p": 0.9, "top_k": 5, "max_new_tokens": 3, "sampling_seed": 4}
    given |= {"stop_token_ids": [9], "ignore_eos": True}
    client.post("/generate", json={"text": "x", "sampling_params": given})
    client.post("/generate", json={"text": "x"})
    client.post(CHAT, json={"messages": MESSAGES, "temperature": 1e-7})
    sent, default, chat = engine.asked
    assert (sent.temperature, sent.top_p, sent.top_k, sent.max_new_tokens) == (0.5, 0.9, 5, 3)
    assert (sent.seed, sent.stop_token_ids, sent.ignore_eos) == (4, (9,), True)
    assert (default.temperature, default.top_p, default.top_k) == (1.0, 1.0, -1)
    assert default.max_new_tokens == 128
    assert default.seed is not None
    assert chat.temperature == 0.0
    # "<start>user\nhi<end>\n<start>assistant\n": 1 + 5 + 2 + 1 + 1 + 1 + 10 tokens
    assert chat.max_new_tokens == 400 - 21


def test_health(client):
    """Both health routes answer an empty 200 while the engine serves."""
    for path in ("/health", "/health_generate"):
        response = client.get(path)
        assert (response.status_code, response.text) == (200, "")


def test_models_and_info(client, recorded):
    """The model list has the recorded keys; `/get_server_info` is the old name."""
    body, real = client.get("/v1/models").json(), recorded("dflash/models.json")
    assert body["data"][0].keys() == real["data"][0].keys()
    assert body["data"][0]["max_model_len"] == 400
    assert client.get("/server_info").json() == client.get("/get_server_info").json()
    assert client.get("/model_info").json() == {"model_type": "llama"}


def test_mean_accept_length(client):
    """The mean is absent before a verify step and after a flush."""
    assert client.get("/server_info").json()["internal_states"] == [{}]
    client.post("/generate", json={"text": "x"})
    # 2 steps of 2 accepted drafts and a bonus token each
    state = client.get("/server_info").json()["internal_states"][0]
    assert state == {"avg_spec_accept_length": 3.0}
    flushed = client.post("/flush_cache")
    assert flushed.status_code == 200
    assert flushed.text.startswith("Cache flushed.")
    assert client.get("/server_info").json()["internal_states"] == [{}]


def test_metrics_count_ended_requests(client):
    """Counters add up over requests, split by streaming."""
    client.post("/generate", json={"text": "x"})
    client.post("/generate", json={"text": "xyz", "stream": True})
    lines = client.get("/metrics").text.splitlines()
    for line in (
        'sglang:num_requests_total{is_streaming="false",model_name="target"} 1.0',
        'sglang:prompt_tokens_total{is_streaming="true",model_name="target"} 3.0',
        'sglang:generation_tokens_total{is_streaming="true",model_name="target"} 7.0',
        'sglang:spec_verify_calls_total{model_name="target"} 4.0',
        'sglang:num_running_reqs{model_name="target"} 0.0',
        'sglang:num_queue_reqs{model_name="target"} 0.0',
    ):
        assert line in lines


def test_abort_of_nothing(client):
    """An unknown id is no error; a wrong body is."""
    response = client.post("/abort_request", json={"rid": "x"})
    assert (response.status_code, response.text) == (200, "")
    assert client.post("/abort_request", json={"rid": 1}).status_code == 400


def test_a_bug_shows_no_traceback(client, monkeypatch):
    """An error of the server itself is a 500 that tells nothing of its inside."""
    monkeypatch.setattr("ddtree.server.app.check_generate", lambda body: 1 / 0)
    response = client.post("/generate", json={"text": "x"})
    assert response.status_code == 500
    assert response.json() == {"error": {"message": "internal error; see the server's log"}}
