import json
import logging

import pytest
from fakes import cell_id, cell_record, request_record

from ddtree_bench.json_lines import DamagedFile
from ddtree_bench.session.store import (
    CellStore,
    MeasuredCell,
    Merged,
    main,
    read_cells,
    write_cells,
)
from ddtree_bench.status import Status


@pytest.fixture
def store(tmp_path):
    return CellStore(tmp_path / "cells")


def measured(key="a" * 64, **changes):
    return MeasuredCell(cell_record(key=key, **changes), (request_record(),))


def test_a_stored_cell_comes_back(store):
    """What is put is what is got, requests and all."""
    store.put(measured())
    assert store.get("a" * 64) == measured()


def test_an_unknown_key_has_no_cell(store):
    """Absence is None, also before the folder exists."""
    assert store.get("b" * 64) is None


def test_a_failure_is_never_stored(store):
    """A failed cell would hide that it has to be measured again."""
    with pytest.raises(ValueError, match="never stored"):
        store.put(measured(status=Status.HUNG))
    assert not store.folder.exists()


@pytest.mark.parametrize(
    "damage",
    [
        lambda text: text[: len(text) // 2],
        lambda text: text.splitlines()[0] + "\n",
        lambda text: text + text,
        lambda text: text.replace('"status":"ok"', '"status":"hung"', 1),
        lambda text: text.replace("a" * 64, "b" * 64),
        lambda text: "",
    ],
    ids=["cut", "no requests", "twice", "failed", "other key", "empty"],
)
def test_a_damaged_cell_is_put_aside_and_counts_as_absent(store, damage, caplog):
    """Nothing half-written is counted, and nothing is deleted."""
    store.put(measured())
    path = store.path("a" * 64)
    damaged = damage(path.read_text(encoding="utf-8"))
    path.write_text(damaged, encoding="utf-8")
    with caplog.at_level(logging.WARNING):
        assert store.get("a" * 64) is None
    assert path.with_suffix(".damaged").read_text(encoding="utf-8") == damaged
    assert not path.exists()
    assert "measured again" in caplog.text


def test_writing_leaves_no_temporary_file(store):
    """A reader that lists the folder meets whole cells only."""
    store.put(measured())
    assert [path.name for path in store.folder.iterdir()] == ["a" * 64 + ".jsonl"]


def test_a_merge_copies_what_is_lacking_and_keeps_what_is_known(store, tmp_path):
    """Cells of a GPU node join those measured here; damaged ones stay behind."""
    other = CellStore(tmp_path / "other")
    store.put(measured("a" * 64))
    other.put(measured("a" * 64, started_unix_s=1.0))
    other.put(measured("b" * 64))
    other.path("c" * 64).write_text("{}\n", encoding="utf-8")
    assert store.merge(other.folder) == Merged(copied=1, known=1, damaged=1)
    assert store.get("a" * 64) == measured("a" * 64)
    assert store.get("b" * 64) == measured("b" * 64)
    assert store.get("c" * 64) is None


def test_merging_from_nowhere_is_told(tmp_path, capsys):
    """A mistyped folder is an error, not an empty merge."""
    assert main(["merge", str(tmp_path / "typo"), str(tmp_path / "cells")]) == 2
    assert "there is no folder" in capsys.readouterr().err


def test_the_command_says_what_it_did(store, tmp_path, capsys):
    """The counts are printed."""
    store.put(measured())
    assert main(["merge", str(store.folder), str(tmp_path / "new")]) == 0
    assert capsys.readouterr().out == "1 copied, 0 known already, 0 damaged\n"


def test_a_file_may_hold_many_cells(tmp_path):
    """A session's output is read back cell by cell, in order, failed ones without requests too."""
    cells = [
        MeasuredCell(cell_record(), (request_record(), request_record(turn=1))),
        MeasuredCell(cell_record(cell=cell_id(repeat=2), status=Status.NOT_RUN), ()),
    ]
    write_cells(tmp_path / "cells.jsonl", cells)
    assert list(read_cells(tmp_path / "cells.jsonl")) == cells


def test_a_text_may_hold_any_character(tmp_path):
    """U+2028 ends no line of a file of records."""
    cells = [MeasuredCell(cell_record(), (request_record(text="a\u2028b\nc\r"),))]
    write_cells(tmp_path / "cells.jsonl", cells)
    assert list(read_cells(tmp_path / "cells.jsonl")) == cells


def test_a_request_of_another_cell_is_refused_with_its_line(tmp_path):
    """Every request belongs to the cell above it."""
    path = tmp_path / "cells.jsonl"
    stray = request_record(cell=cell_id(repeat=2))
    path.write_text(
        cell_record().model_dump_json() + "\n" + stray.model_dump_json() + "\n", encoding="utf-8"
    )
    with pytest.raises(DamagedFile) as caught:
        list(read_cells(path))
    assert caught.value.where == f"{path}:2"


def test_unknown_fields_are_refused(tmp_path):
    """A file of a newer version is not silently read by halves."""
    path = tmp_path / "cells.jsonl"
    line = {**json.loads(cell_record().model_dump_json()), "new_field": 1}
    path.write_text(json.dumps(line) + "\n", encoding="utf-8")
    with pytest.raises(DamagedFile, match="not a record"):
        list(read_cells(path))
