import pytest

from ddtree.server.errors import ApiError
from ddtree.server.schema import check_chat, check_generate, parse_json

MESSAGES = [{"role": "user", "content": "hi"}]


@pytest.mark.parametrize(
    ("body", "named"),
    [
        ([], "dictionary"),
        ({"model": "target"}, "messages: Field required"),
        ({"messages": "hi"}, "messages"),
        ({"messages": [{"role": "user"}]}, "messages.0.content"),
        ({"messages": [{"role": "<|im_start|>", "content": "x"}]}, "messages.0.role"),
        ({"messages": [{"role": "user", "content": [{"type": "image"}]}]}, "messages.0.content"),
        ({"messages": MESSAGES, "max_tokens": -1}, "max_tokens"),
        ({"messages": MESSAGES, "max_tokens": "5"}, "max_tokens"),
        ({"messages": MESSAGES, "max_tokens": True}, "max_tokens"),
        ({"messages": MESSAGES, "temperature": -0.1}, "temperature"),
        ({"messages": MESSAGES, "temperature": float("inf")}, "temperature"),
        ({"messages": MESSAGES, "top_p": 0}, "top_p"),
        ({"messages": MESSAGES, "top_p": 1.5}, "top_p"),
        ({"messages": MESSAGES, "top_k": 0}, "top_k"),
        ({"messages": MESSAGES, "seed": 2**63}, "seed"),
        ({"messages": MESSAGES, "stop": [""]}, "stop"),
        ({"messages": MESSAGES, "n": 2}, "n is not supported"),
        ({"messages": MESSAGES, "tools": [{}]}, "tools is not supported"),
        ({"messages": MESSAGES, "temprature": 0}, "temprature: unknown key"),
    ],
)
def test_wrong_chat_body_names_the_key(body, named):
    """Each fault is a 400 that names where it is."""
    with pytest.raises(ApiError, match=named.replace(".", r"\.")) as caught:
        check_chat(body)
    assert caught.value.status == 400


@pytest.mark.parametrize(
    ("params", "named"),
    [
        ({"max_new_tokens": 0}, "sampling_params.max_new_tokens"),
        ({"stop_token_ids": [-1]}, "sampling_params.stop_token_ids.0"),
        ({"seed": 1}, "sampling_params.seed: unknown key"),
        ({"min_p": 0.1}, "min_p is not supported"),
        ({"ignore_eos": 1}, "sampling_params.ignore_eos"),
    ],
)
def test_wrong_sampling_params_name_the_key(params, named):
    """An unknown or unsupported sampling parameter is never dropped in silence."""
    with pytest.raises(ApiError, match=named.replace(".", r"\.")):
        check_generate({"text": "x", "sampling_params": params})


def test_all_faults_at_once():
    """One answer lists every fault."""
    with pytest.raises(ApiError, match=r"top_p.*max_tokens"):
        check_chat({"messages": MESSAGES, "top_p": 2, "max_tokens": 0})


def test_null_and_neutral_values_are_taken():
    """Null means the default, and a parameter that changes nothing is accepted."""
    body = check_chat({"messages": MESSAGES, "temperature": None, "n": 1, "presence_penalty": 0.0})
    assert body.temperature == 1.0
    params = check_generate({"text": "x", "sampling_params": {"min_p": 0}}).sampling_params
    assert (params.temperature, params.max_new_tokens) == (1.0, 128)


@pytest.mark.parametrize(
    "body",
    [b"", b"{", b'{"a": NaN}', b"[-Infinity]", b"\xff", b'"\\ud800"', b"[" * 100_000, b"9" * 5000],
)
def test_not_json(body):
    """Anything but strict JSON is a 400, however it fails to parse."""
    with pytest.raises(ApiError, match="not JSON"):
        parse_json(body)
