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
