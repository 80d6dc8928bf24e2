"""Contradictions within the section `servers`."""

import pytest
from pydantic import ValidationError

from ddtree_bench.config import Server


def test_only_a_server_of_others_needs_leave_to_be_flushed():
    """What we start is always flushed; a key without effect would mislead."""
    attached = Server(engine="attach", base_url="http://x", model="m", may_flush=True)
    assert attached.may_flush
    with pytest.raises(ValidationError, match="`may_flush` needs `engine: attach`"):
        Server(model="m", may_flush=True)


@pytest.mark.parametrize("name", ["SGLANG_SIMULATE_ACC_LEN", "SGLANG_SIMULATE_ACC_METHOD"])
def test_invented_acceptance_is_no_configuration(name):
    """SGLang can be told by a variable what acceptance to pretend."""
    with pytest.raises(ValidationError, match=f"`env.{name}` invents results"):
        Server(engine="sglang", model="m", env={name: "3"})


def test_appended_flags_are_flags_like_any_other():
    """Two ways to write the same server are the same server, under the same keys of the store."""
    whole = Server(engine="sglang", model="m", args=("--a", "--b=1"))
    parted = Server(engine="sglang", model="m", args=["--a"], args_add=["--b=1"])
    assert parted == whole
    assert parted.model_dump() == whole.model_dump()
    assert Server.model_validate(parted.model_dump()) == whole


@pytest.mark.parametrize("wrong", [{"args_add": "--a"}, {"args": "--a", "args_add": ["--b"]}])
def test_flags_are_lists(wrong):
    """A text would be taken letter by letter."""
    with pytest.raises(ValidationError, match="valid tuple"):
        Server(engine="sglang", model="m", **wrong)


def test_flags_of_a_server_that_runs_already_are_refused():
    """Those that are appended, too."""
    with pytest.raises(ValidationError, match="runs already"):
        Server(engine="attach", base_url="http://x", model="m", args_add=("--a",))
