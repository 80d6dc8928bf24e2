"""The configuration's JSON schema and its page for users, both made from the models.

`python -m ddtree_bench.config.document` checks that the files in the repository are in step and
exits 1 with a diff if not; `--fix` writes them.
"""

from __future__ import annotations

import argparse
import difflib
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ddtree_bench.config.model import Config

REPOSITORY = Path(__file__).resolve().parents[3]
SCHEMA = REPOSITORY / "workflow/schemas/config.schema.json"
PAGE = REPOSITORY / "config/README.md"

HEAD = """\
# Configuration

A configuration describes one run as data: which servers, what they are asked, how they are measured
and how the numbers are judged. `config.yaml` is the default run, `test.yaml` a small one for tests.
Use another one with `make report CONFIG=config/mine.yaml` or
`snakemake --cores 1 --configfile config/mine.yaml`: the report is `report/{run}.pdf`, where `{run}`
is its key `run`. An unknown key is an error that names the nearest right one.

`make plan CONFIG=config/mine.yaml` shows sessions, cells and expected minutes before anything
starts.

What a change measures again: a server's keys, that server; a workload's keys, that workload's cells
on every server; `protocol`, everything; `analysis` and titles, nothing.

This page is made from the code (`make docs`), do not edit it.
"""


def schema_text() -> str:
    """The JSON schema (draft 2020-12) of a configuration file."""
    schema = Config.model_json_schema(by_alias=True)
    schema["$schema"] = "https://json-schema.org/draft/2020-12/schema"
    return json.dumps(schema, indent=2, ensure_ascii=False) + "\n"


def page_text() -> str:
    """`config/README.md`: every key in a table, one table a section."""
    schema = Config.model_json_schema(by_alias=True)
    sections = [("Top level", schema)]
    titles = {
        "Server": "servers.NAME",
        "Workload": "workloads.NAME",
        "Protocol": "protocol",
        "Adaptive": "protocol.adaptive",
        "Warmup": "protocol.warmup",
        "Analysis": "analysis",
        "Limits": "analysis.limits",
    }
    sections += [(f"`{title}`", schema["$defs"][name]) for name, title in titles.items()]
    return HEAD + "".join(_section(title, section) for title, section in sections)


def _section(title: str, section: dict[str, Any]) -> str:
    required = section.get("required", [])
    rows = [f"\n## {title}\n\n{section.get('description', '')}\n\n"]
    rows.append("| key | type | default | meaning |\n| --- | --- | --- | --- |\n")
    for key, field in section["properties"].items():
        default = "required" if key in required else _default(field)
        meaning = field.get("description", "").replace("|", r"\|")
        rows.append(f"| `{key}` | {_type(field)} | {default} | {meaning} |\n")
    return "".join(rows)


def _default(field: dict[str, Any]) -> str:
    value = field.get("default")
    if value is None or isinstance(value, dict):
        return "–"
    return f"`{json.dumps(value, ensure_ascii=False)}`"


def _type(field: dict[str, Any]) -> str:
    return " or ".join(dict.fromkeys(_types(field))) or "section"


def _types(field: dict[str, Any]) -> Iterator[str]:
    if "enum" in field:
        yield ", ".join(f"`{value}`" for value in field["enum"])
    elif "const" in field:
        yield f"`{field['const']}`"
    elif "anyOf" in field:
        for option in field["anyOf"]:
            if option.get("type") != "null":
                yield from _types(option)
    elif "$ref" in field:
        yield "section"
    elif field.get("type") == "array":
        yield f"list of {_type(field['items'])}"
    elif field.get("type") == "object":
        yield "mapping"
    elif "type" in field:
        yield field["type"]


def main(arguments: list[str] | None = None) -> int:
    """Check or write the generated files; 1 if one is out of step."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--fix", action="store_true", help="write the files")
    fix = parser.parse_args(arguments).fix
    stale = 0
    for path, text in ((SCHEMA, schema_text()), (PAGE, page_text())):
        old = path.read_text(encoding="utf-8") if path.exists() else ""
        if old == text:
            continue
        if fix:
            path.write_text(text, encoding="utf-8")
            print(f"wrote {path.relative_to(REPOSITORY)}")
            continue
        stale = 1
        name = str(path.relative_to(REPOSITORY))
        sys.stdout.writelines(
            difflib.unified_diff(
                old.splitlines(True), text.splitlines(True), name, f"{name} (from the code)"
            )
        )
    if stale:
        print("out of step with src/ddtree_bench/config; run `make docs`")
    return stale


if __name__ == "__main__":
    sys.exit(main())
