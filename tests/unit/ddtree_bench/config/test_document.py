import json
from pathlib import Path

import jsonschema
import pytest
import yaml

from ddtree_bench.config import load_config
from ddtree_bench.config.document import PAGE, REPOSITORY, SCHEMA, main, page_text

CONFIGS = sorted((REPOSITORY / "config").glob("*.yaml"))


def test_schema_and_page_are_in_step_with_the_code(capsys):
    """`make docs` was run after the last change of a section."""
    assert main([]) == 0, capsys.readouterr().out


def test_every_key_stands_in_the_page():
    """A user finds each key of the schema in config/README.md."""
    schema = json.loads(SCHEMA.read_text(encoding="utf-8"))
    sections = [schema, *schema["$defs"].values()]
    keys = {key for section in sections for key in section.get("properties", {})}
    assert {key for key in keys if f"| `{key}` |" not in PAGE.read_text(encoding="utf-8")} == set()


def test_every_key_says_what_it_means():
    """No row of the page ends with an empty meaning."""
    assert "|  |" not in page_text()


@pytest.mark.parametrize("path", CONFIGS, ids=lambda path: path.name)
def test_shipped_configurations_are_valid(path: Path):
    """Every file in config/ passes both the models and the exported schema."""
    load_config(path)
    schema = json.loads(SCHEMA.read_text(encoding="utf-8"))
    jsonschema.validate(yaml.safe_load(path.read_text(encoding="utf-8")), schema)
