"""In what servers differ besides what the configuration varies."""

from typing import Any

from ddtree_bench.config import Config
from ddtree_bench.records import Launch
from ddtree_bench.status import Status
from ddtree_bench.tables.differences import difference_frame

PLAIN = {
    "served_model_name": "ar",
    "port": 1,
    "random_seed": 5,
    "attention_backend": "triton",
    "speculative_algorithm": None,
    "max_total_num_tokens": 1606158,
}
CHAIN = {
    **PLAIN,
    "served_model_name": "chain",
    "random_seed": 6,
    "speculative_algorithm": "DFLASH",
    "speculative_num_draft_tokens": 8,
    "speculative_draft_attention_backend": "triton",
    "speculative_eagle_topk": 1,
    "max_total_num_tokens": 1459234,
    "log.verify_width": 8,
}
TREE = {
    **CHAIN,
    "served_model_name": "tree",
    "speculative_algorithm": "DDTREE",
    "speculative_ddtree_budget": 7,
    "speculative_ddtree_trace": False,
    "speculative_eagle_topk": 8,
}
PLUGIN = {"plugin_source_sha256": "0132"}


def launch(server: str, identity: dict[str, Any], **changes: Any) -> Launch:
    """A good launch that says this of itself."""
    fields = {
        "protocol": 1,
        "run": "story",
        "server": server,
        "launch": 1,
        "attempt": 1,
        "status": Status.OK,
        "started_unix_s": 0.0,
        "ended_unix_s": 1.0,
        "identity": identity,
    }
    return Launch.model_validate({**fields, **changes})


def told(config: Config, *launches: Launch) -> list[tuple[str, ...]]:
    """The rows: server, reference, fact, both values."""
    frame = difference_frame(launches, config)
    return [tuple(row) for row in frame.astype(object).where(frame.notna(), None).to_numpy()]


def test_what_the_configuration_varies_is_no_difference(config: Config) -> None:
    """Names, seeds, ports, and all that follows from algorithm, drafter, block and budget."""
    servers = launch("ar", PLAIN), launch("chain", CHAIN), launch("tree", TREE, machine=PLUGIN)
    assert told(config, *servers) == []


def test_what_looks_declared_but_is_not_is_told(config: Config) -> None:
    """Trees that are traced step by step, and a smaller KV cache beside the same drafter."""
    other = {**TREE, "speculative_ddtree_trace": True, "max_total_num_tokens": 1000}
    assert told(config, launch("chain", CHAIN), launch("tree", other)) == [
        ("tree", "chain", "identity.max_total_num_tokens", "1000", "1459234"),
        ("tree", "chain", "identity.speculative_ddtree_trace", "true", None),
    ]


def test_a_second_factor_is_told(config: Config) -> None:
    """Another attention backend in one of them, for the drafter only, or of the environment."""
    other = {**TREE, "speculative_draft_attention_backend": "fa3", "attention_backend": "fa3"}
    rows = told(
        config,
        launch("ar", PLAIN),
        launch("chain", CHAIN),
        launch("tree", other, environment={"OMP_NUM_THREADS": "1"}),
    )
    # plain decoding has no drafter: its backend is no difference there
    assert rows == [
        ("tree", "ar", "env.OMP_NUM_THREADS", "1", None),
        ("tree", "ar", "identity.attention_backend", "fa3", "triton"),
        ("tree", "chain", "env.OMP_NUM_THREADS", "1", None),
        ("tree", "chain", "identity.attention_backend", "fa3", "triton"),
        ("tree", "chain", "identity.speculative_draft_attention_backend", "fa3", "triton"),
    ]


def test_another_machine_is_a_difference(config: Config) -> None:
    """Of its facts those that can change a number; the load of the moment is none."""
    first = launch("ar", PLAIN, machine={"package.torch": "2.12", "load_average_1min": 1.0})
    second = launch("chain", CHAIN, machine={"package.torch": "2.13", "load_average_1min": 2.0})
    assert told(config, first, second) == [("chain", "ar", "machine.package.torch", "2.13", "2.12")]


def test_the_newest_good_launch_counts(config: Config) -> None:
    """A failed one says nothing; without a good one nothing is compared."""
    changed = {**CHAIN, "attention_backend": "fa3"}
    newer = launch("chain", changed, launch=2, status=Status.WRONG_SERVER)
    assert told(config, launch("ar", PLAIN), launch("chain", CHAIN), newer) == []
    assert told(config, launch("ar", PLAIN), newer) == []
