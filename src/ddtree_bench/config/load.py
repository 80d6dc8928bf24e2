"""From a YAML file to a validated `Config`, with every fault told by file, line and key."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, get_args

import yaml
from pydantic import BaseModel, ValidationError

from ddtree_bench.config.model import Config
from ddtree_bench.config.suggest import nearest
from ddtree_bench.errors import ConfigError, Fault

KeyPath = tuple[str | int, ...]


def load_config(path: Path, overrides: Mapping[str, Any] | None = None) -> Config:
    """The configuration in a file, `overrides` replacing its top-level keys one by one.

    Raises:
        ConfigError: the file is missing, not YAML, or does not describe a run; holds all faults.
    """
    try:
        root = yaml.compose(path.read_text(encoding="utf-8"), Loader=yaml.SafeLoader)
    except FileNotFoundError:
        raise ConfigError([Fault(str(path), None, "", "there is no such file")]) from None
    except yaml.MarkedYAMLError as error:
        line = None if error.problem_mark is None else error.problem_mark.line + 1
        raise ConfigError([Fault(str(path), line, "", f"not YAML: {error.problem}")]) from error
    lines: dict[KeyPath, int | None] = dict(_lines(root)) if root is not None else {}
    repeated = list(_repeated_keys(root, str(path))) if root is not None else []
    if repeated:
        raise ConfigError(repeated)
    data = yaml.safe_load(path.read_text(encoding="utf-8"))
    if not isinstance(data, dict):
        raise ConfigError([Fault(str(path), 1, "", "a configuration is a mapping of sections")])
    # a key of the command line stands in no line of the file
    lines.update({(key,): None for key in overrides or {}})
    return _validate({**data, **(overrides or {})}, str(path), lines)


def _validate(data: Mapping[str, Any], file: str, lines: Mapping[KeyPath, int | None]) -> Config:
    try:
        return Config.model_validate(data)
    except ValidationError as error:
        faults = [_fault(detail, file, lines) for detail in error.errors()]
        raise ConfigError(_merged(faults)) from error


def _merged(faults: Iterable[Fault]) -> list[Fault]:
    """One fault a key: a value that fits no alternative of a union comes once for each."""
    by_key: dict[str, Fault] = {}
    for fault in faults:
        first = by_key.get(fault.key)
        by_key[fault.key] = (
            fault if first is None else replace(first, what=f"{first.what}, or: {fault.what}")
        )
    return list(by_key.values())


def _fault(detail: Mapping[str, Any], file: str, lines: Mapping[KeyPath, int | None]) -> Fault:
    # pydantic appends markers such as "[key]" or a type name of a union: they are no YAML keys
    location = tuple(part for part in detail["loc"] if not str(part).startswith("["))
    location += detail.get("ctx", {}).get("key", ())
    while location and location not in lines and location[:-1] in lines:
        if detail["type"] == "missing":
            break
        location = location[:-1]
    what = str(detail["msg"]).removeprefix("Value error, ")
    if detail["type"] == "extra_forbidden":
        what = "unknown key" + nearest(str(location[-1]), _known_keys(location[:-1]))
    elif detail["type"] == "missing":
        what = "this key is required"
    return Fault(file, _line(location, lines), ".".join(map(str, location)), what)


def _line(location: KeyPath, lines: Mapping[KeyPath, int | None]) -> int | None:
    for end in range(len(location), 0, -1):
        if location[:end] in lines:
            return lines[location[:end]]
    return None


def _known_keys(location: KeyPath) -> list[str]:
    model: type[BaseModel] = Config
    for part in location:
        field = model.model_fields.get(str(part))
        if field is None:
            continue  # a name that the user chose: servers.NAME
        for candidate in (field.annotation, *get_args(field.annotation)):
            if isinstance(candidate, type) and issubclass(candidate, BaseModel):
                model = candidate
    return [field.alias or name for name, field in model.model_fields.items()]


def _lines(node: yaml.Node, path: KeyPath = ()) -> Iterator[tuple[KeyPath, int]]:
    """Every key path with the line its key stands on (counted from 1)."""
    if isinstance(node, yaml.MappingNode):
        for key, value in node.value:
            here = (*path, str(key.value))
            yield here, key.start_mark.line + 1
            yield from _lines(value, here)
    elif isinstance(node, yaml.SequenceNode):
        for index, value in enumerate(node.value):
            yield (*path, index), value.start_mark.line + 1
            yield from _lines(value, (*path, index))


def _repeated_keys(node: yaml.Node, file: str, path: KeyPath = ()) -> Iterator[Fault]:
    """Keys that stand twice in one mapping: YAML would keep the last and drop a server silently."""
    if not isinstance(node, yaml.MappingNode):
        return
    first: dict[str, int] = {}
    for key, value in node.value:
        name = str(key.value)
        here = (*path, name)
        line = key.start_mark.line + 1
        if name in first:
            what = f"this name is taken: it stands in line {first[name]} already"
            yield Fault(file, line, ".".join(map(str, here)), what)
        first.setdefault(name, line)
        yield from _repeated_keys(value, file, here)
