"""Recorded replies, from a session's cells into a prompt file."""

from __future__ import annotations

from pathlib import Path

import pytest
from fakes import cell_id, cell_record, request_record

from ddtree_bench.prompts import Prompt, load_prompts
from ddtree_bench.records import RequestRecord
from ddtree_bench.session.store import MeasuredCell, write_cells
from ddtree_bench.status import Status
from ddtree_bench.workloads.history import main, with_replies

TALK = Prompt(id="talk", turns=("a", "b"))


def said(turn: int, text: str, *, repeat: int = 1, status: Status = Status.OK) -> RequestRecord:
    return request_record(
        cell=cell_id(repeat=repeat), prompt_id="talk", turn=turn, text=text, status=status
    )


def test_replies_are_those_of_one_pass() -> None:
    """A pass that broke off is not completed from another one."""
    records = [
        said(0, "broken", repeat=1),
        said(1, "", repeat=1, status=Status.HTTP_ERROR),
        said(0, "one", repeat=2),
        said(1, "two", repeat=2),
    ]
    (prompt,) = with_replies([TALK], records)
    assert prompt.replies == ("one", "two")


def test_a_prompt_without_all_answers_is_left_out() -> None:
    """It could not be asked with `history: recorded`."""
    assert with_replies([TALK, Prompt(id="other", turns=("x",))], [said(0, "one")]) == ()


def test_a_missing_file_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Exit code 2, and what is missing."""
    prompts, nowhere = tmp_path / "p.jsonl", tmp_path / "none.jsonl"
    prompts.write_text('{"id": "a", "turns": ["x"]}', encoding="utf-8")
    for missing in ([nowhere, "short", prompts], [prompts, "short", nowhere]):
        assert main([str(part) for part in missing]) == 2
        assert str(nowhere) in capsys.readouterr().err


def test_the_written_file_is_a_prompt_file(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Everything else of a prompt is kept; a wrong workload is told with the nearest one."""
    prompts = tmp_path / "p.jsonl"
    line = '{"id": "p0", "turns": ["x"], "check": {"kind": "json_schema", "schema": {}}}'
    prompts.write_text(line, encoding="utf-8")
    cells = tmp_path / "cells.jsonl"
    write_cells(cells, [MeasuredCell(cell_record(), (request_record(text="ünd\u2028 so"),))])
    assert main([str(cells), "shrt", str(prompts)]) == 2
    assert 'did you mean "short"?' in capsys.readouterr().err
    assert main([str(cells), "short", str(prompts)]) == 0
    written = tmp_path / "recorded.jsonl"
    written.write_text(capsys.readouterr().out, encoding="utf-8")
    (before,), (after,) = load_prompts(prompts), load_prompts(written)
    assert after == before.model_copy(update={"replies": ("ünd\u2028 so",)})
