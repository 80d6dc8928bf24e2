import pytest

from ddtree_bench.config import Config
from ddtree_bench.session.spec import SessionSpec


@pytest.fixture
def config(tmp_path) -> dict:
    """A configuration with two servers, and a workload that only round 1 measures."""
    prompts = tmp_path / "prompts.jsonl"
    prompts.write_text('{"id": "a", "turns": ["hi"]}\n', encoding="utf-8")
    workload = {"class": "short", "prompts": str(prompts)}
    return {
        "run": "demo",
        "servers": {"ar": {"model": "m"}, "other": {"model": "n"}},
        "workloads": {"all": workload, "first": {**workload, "class": "longform", "rounds": [1]}},
    }


def spec(config: dict, name: str = "ar", launch: int = 1) -> str:
    return SessionSpec.of(Config.model_validate(config), name, launch).to_json()


def test_a_spec_survives_its_file(config):
    """What a session reads is what was resolved."""
    text = spec(config)
    assert SessionSpec.model_validate_json(text).to_json() == text


def test_a_round_measures_its_own_workloads(config):
    """A workload bound to round 1 is absent from launch 2."""
    second = SessionSpec.of(Config.model_validate(config), "ar", 2)
    assert set(second.workloads) == {"all"}


def test_another_server_does_not_change_a_spec(config):
    """Only the changed server is measured again."""
    before = spec(config)
    config["servers"]["other"]["model"] = "changed"
    assert spec(config) == before


def test_a_title_does_not_change_a_spec(config):
    """Renaming a server in the report measures nothing."""
    before = spec(config)
    config["servers"]["ar"]["title"] = "plain"
    assert spec(config) == before


def test_edited_prompts_change_a_spec(config, tmp_path):
    """The prompts' text is part of what is measured."""
    before = spec(config)
    (tmp_path / "prompts.jsonl").write_text('{"id": "a", "turns": ["ho"]}\n', encoding="utf-8")
    assert spec(config) != before
