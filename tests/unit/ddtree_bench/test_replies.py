"""Recorded replies: to which prompts they belong, and what they change."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from fakes import bench, cell_id

from ddtree_bench.config import Workload
from ddtree_bench.errors import ConfigError
from ddtree_bench.findings import FindingCode
from ddtree_bench.prompts import Prompt, prompts_of
from ddtree_bench.replies import Replies, read_replies, replies_text
from ddtree_bench.session.cells import cell_key
from ddtree_bench.session.histories import history_findings
from ddtree_bench.session.spec import SessionSpec

TALK = Prompt(id="talk", turns=("a", "b"))
SINGLE = Prompt(id="single", turns=("a",))


def said(prompt: Prompt, *replies: str, **changes: Any) -> Replies:
    fields = {"prompt_id": prompt.id, "questions_sha256": prompt.questions_sha256}
    return Replies(**{**fields, "replies": replies, **changes})


def replies_file(path: Path, *replies: Replies) -> Path:
    path.write_text(replies_text(replies), encoding="utf-8")
    return path


@pytest.fixture
def workload(tmp_path: Path) -> Workload:
    """A conversation and a single question."""
    lines = [{"id": each.id, "turns": each.turns} for each in (TALK, SINGLE)]
    prompts = tmp_path / "talks.jsonl"
    prompts.write_text("\n".join(map(json.dumps, lines)), encoding="utf-8")
    return Workload.model_validate({"class": "multiturn", "prompts": str(prompts)})


def asked(workload: Workload, **changes: Any) -> dict[str, tuple[str, ...]]:
    """The replies that each prompt goes on with."""
    prompts = prompts_of(workload.model_copy(update=changes), seed=0)
    return {prompt.id: prompt.replies for prompt in prompts}


def test_conversations_go_on_with_the_files_replies(workload: Workload, tmp_path: Path) -> None:
    """The first file that has them counts; a single question goes on with nothing."""
    files = (
        str(replies_file(tmp_path / "one", said(TALK, "x", "y"), said(SINGLE, "z"))),
        str(replies_file(tmp_path / "two", said(TALK, "other", "replies"))),
    )
    assert asked(workload, replies=files) == {"talk": ("x", "y"), "single": ()}
    assert asked(workload, replies=files[::-1])["talk"] == ("other", "replies")
    assert asked(workload, replies=files, history="own")["talk"] == ()


def test_edited_questions_have_no_replies(workload: Workload, tmp_path: Path) -> None:
    """Replies belong to what was asked, not to an id."""
    edited = TALK.model_copy(update={"turns": ("a", "other")})
    file = replies_file(tmp_path / "one", said(edited, "x", "y", prompt_id="talk"))
    assert asked(workload, replies=(str(file),))["talk"] == ()


@pytest.mark.parametrize(
    ("line", "key"),
    [("{", ""), ('{"prompt_id": "a"}', "questions_sha256"), ('{"prompt": "a"}', "prompt_id")],
)
def test_a_fault_names_file_line_and_key(tmp_path: Path, line: str, key: str) -> None:
    """A blank line is none."""
    file = replies_file(tmp_path / "one", said(TALK, "x"))
    file.write_text(file.read_text(encoding="utf-8") + "\n" + line, encoding="utf-8")
    with pytest.raises(ConfigError) as caught:
        read_replies([file])
    (fault,) = caught.value.faults
    assert (fault.file, fault.line, fault.key) == (str(file), 3, key)
    with pytest.raises(ConfigError, match="no such file"):
        read_replies([tmp_path / "none"])


def spec_of(tmp_path: Path, workload: Workload) -> SessionSpec:
    keys = workload.model_dump_json(by_alias=True, exclude_defaults=True)
    return bench(tmp_path / "bench", f"workloads: {{talks: {keys}}}")


def test_recorded_replies_are_part_of_a_conversations_key(
    workload: Workload, tmp_path: Path
) -> None:
    """Other replies are other prompts; a cell of single questions does not care."""
    before = spec_of(tmp_path, workload)
    recorded = replies_file(tmp_path / "recorded", said(TALK, "x", "y"))
    after = before.with_replies(recorded)
    talks, short = cell_id(workload="talks"), cell_id()
    assert cell_key(before, talks, {}) != cell_key(after, talks, {})
    assert cell_key(before, short, {}) == cell_key(after, short, {})
    assert before.with_replies(tmp_path / "none") == before


def test_a_sound_history_is_no_finding(workload: Workload, tmp_path: Path) -> None:
    """Recorded by the server's own weights."""
    recorded = replies_file(tmp_path / "recorded", said(TALK, "x", "y", model_sha256="w"))
    spec = spec_of(tmp_path, workload).with_replies(recorded)
    assert list(history_findings(spec, "w")) == []
    assert list(history_findings(spec, None)) == []
    (found,) = history_findings(spec, "other weights")
    assert found.code is FindingCode.FOREIGN_HISTORY


def test_a_conversation_without_replies_is_found(workload: Workload, tmp_path: Path) -> None:
    """It goes on with the server's own; with `history: own` that was asked for."""
    (found,) = history_findings(spec_of(tmp_path, workload), "w")
    assert (found.code, found.detail) == (
        FindingCode.OWN_HISTORY,
        "talks: 1 of 1, the first talk",
    )
    own = workload.model_copy(update={"history": "own"})
    assert list(history_findings(spec_of(tmp_path / "own", own), "w")) == []
