"""Measuring a server once more, with its opponents."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from fakes import cell_id, cell_record, request_record
from synthetic_tables import synthetic_config

from ddtree_bench.errors import ConfigError
from ddtree_bench.layout import RunLayout
from ddtree_bench.rounds.again import in_common_rounds, losing, main, put_aside, with_opponents
from ddtree_bench.session.store import CellStore, MeasuredCell, write_cells

CONFIG = synthetic_config()


def test_a_tree_is_measured_again_with_plain_decoding_and_its_chains() -> None:
    """The other tree is no opponent; plain decoding is everybody's."""
    assert with_opponents(CONFIG, "ddtree-b7") == ("ar", "dflash-b16", "dflash-b8", "ddtree-b7")
    assert with_opponents(CONFIG, "ar") == tuple(CONFIG.servers)
    with pytest.raises(ConfigError, match='did you mean "ddtree-b7"'):
        with_opponents(CONFIG, "dtree-b7")


def test_measuring_a_server_again_costs_no_pair_its_verdict() -> None:
    """Plain decoding is compared with all, so all are measured in common rounds."""
    chosen = in_common_rounds(CONFIG, "ddtree-b7")
    assert chosen == tuple(CONFIG.servers)
    assert losing(CONFIG, chosen) == []
    with pytest.raises(ConfigError, match='did you mean "ddtree-b7"'):
        in_common_rounds(CONFIG, "dtree-b7")


def test_with_its_opponents_alone_other_pairs_lose_their_rounds() -> None:
    """The other tree stays where it was, and its opponents are measured at another time."""
    lost = losing(CONFIG, with_opponents(CONFIG, "ddtree-b7"))
    named = {(pair.candidate, pair.reference) for pair in lost}
    assert named == {("ddtree-b15", other) for other in ("ar", "dflash-b16", "dflash-b8")}
    assert {pair.reference for pair in losing(CONFIG, ["ddtree-b7"])} == {
        "ar", "dflash-b16", "dflash-b8",
    }  # fmt: skip


def written(folder: Path, **top: object) -> str:
    """A configuration file of three servers, of which no two trees are compared."""
    server = {"model": "m", "drafter": "d"}
    config = {
        "run": "demo",
        "servers": {
            "ar": {"model": "m"},
            "one": {**server, "algorithm": "DFLASH"},
            "two": {**server, "algorithm": "DFLASH"},
        },
        "workloads": {"short": {"class": "short", "prompts": "p.jsonl"}},
        **top,
    }
    path = folder / "config.yaml"
    path.write_text(yaml.safe_dump(config), encoding="utf-8")
    return str(path)


def test_what_is_lost_is_printed_with_the_way_back(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """`--opponents`: `two` and plain decoding lose their rounds; by default nobody does."""
    path, results = written(tmp_path), str(tmp_path / "results")
    assert main([path, "one", "--opponents", "--results", results]) == 0
    said = capsys.readouterr().out
    assert said.startswith("ar, one: to be measured again")
    assert "  two and ar\n" in said
    assert f"`python -m ddtree_bench.rounds.again {path} one` puts all aside" in said
    assert main([path, "one", "--results", results]) == 0
    said = capsys.readouterr().out
    assert said.startswith("ar, one, two: to be measured again")
    assert "undecided" not in said


def test_results_of_another_sample_are_not_put_aside(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Measured with `sample=full`; without it, all would be measured again with the file's."""
    path, results = written(tmp_path), tmp_path / "results"
    config_json = results / "demo/config.json"
    config_json.parent.mkdir(parents=True)
    config_json.write_text('{"sample": "full"}', encoding="utf-8")
    assert main([path, "one", "--results", str(results)]) == 2
    assert "say SAMPLE=full (`--sample full`)" in capsys.readouterr().err
    assert not (results / "demo/replaced").exists()
    assert main([path, "one", "--results", str(results), "--sample", "full"]) == 0
    config_json.write_text('{"sample": null}', encoding="utf-8")
    assert main([path, "one", "--results", str(results), "--sample", "20"]) == 2
    assert "leave SAMPLE out" in capsys.readouterr().err


def test_sessions_and_cells_are_kept_elsewhere(tmp_path: Path) -> None:
    """Neither a session nor the store holds them any more; a second time has its own folder."""
    layout = RunLayout(tmp_path)
    for server in ("ar", "tree"):
        record = cell_record(key=server * 3, cell=cell_id(server=server))
        measured = MeasuredCell(record, (request_record(cell=record.cell),))
        CellStore(layout.cells).put(measured)
        write_cells(layout.session(server, 1) / "cells.jsonl", [measured])
    aside = RunLayout(put_aside(layout, ["tree"]))
    assert aside.root == tmp_path / "replaced" / "1"
    for folder, kept, gone in ((layout, "ar", "tree"), (aside, "tree", "ar")):
        assert CellStore(folder.cells).get(kept * 3) is not None
        assert CellStore(folder.cells).get(gone * 3) is None
        assert (folder.session(kept, 1) / "cells.jsonl").exists()
        assert not (folder.root / "sessions" / gone).exists()
    assert put_aside(layout, ["ar"]).name == "2"
