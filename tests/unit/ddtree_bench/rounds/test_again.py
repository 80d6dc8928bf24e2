"""Measuring a server once more, with its opponents."""

from __future__ import annotations

from pathlib import Path

import pytest
from fakes import cell_id, cell_record, request_record
from synthetic_tables import synthetic_config

from ddtree_bench.errors import ConfigError
from ddtree_bench.layout import RunLayout
from ddtree_bench.rounds.again import put_aside, with_opponents
from ddtree_bench.session.store import CellStore, MeasuredCell, write_cells

CONFIG = synthetic_config()


def test_a_tree_is_measured_again_with_plain_decoding_and_its_chains() -> None:
    """The other tree is no opponent; plain decoding is everybody's."""
    assert with_opponents(CONFIG, "ddtree-b7") == ("ar", "dflash-b16", "dflash-b8", "ddtree-b7")
    assert with_opponents(CONFIG, "ar") == tuple(CONFIG.servers)
    with pytest.raises(ConfigError, match='did you mean "ddtree-b7"'):
        with_opponents(CONFIG, "dtree-b7")


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
