import json
from pathlib import Path

import pytest

from ddtree_bench.errors import BenchError
from ddtree_bench.session.logprobs import TopLogprobs, read_logprobs

PLACE = {
    "workload": "short",
    "prompt_id": "p0",
    "turn": 0,
    "prompt_sha256": "a",
    "position": 3,
    "top": [[5, -0.1], [6, -2.5]],
}


def test_no_file_holds_no_places(tmp_path: Path) -> None:
    """Log probabilities are optional."""
    assert list(read_logprobs(tmp_path / "logprobs.jsonl")) == []


def test_written_places_are_read_back(tmp_path: Path) -> None:
    """A line a place, as its record writes it."""
    place = TopLogprobs.model_validate(PLACE)
    path = tmp_path / "logprobs.jsonl"
    path.write_text(place.model_dump_json() + "\n", encoding="utf-8")
    assert list(read_logprobs(path)) == [place]


def test_a_wrong_line_is_told(tmp_path: Path) -> None:
    """A positive log probability is none; the error names the line."""
    path = tmp_path / "logprobs.jsonl"
    path.write_text("\n" + json.dumps({**PLACE, "top": [[5, 0.1]]}) + "\n", encoding="utf-8")
    with pytest.raises(BenchError, match=r"less than or equal to 0(.|\n)*logprobs\.jsonl:2"):
        list(read_logprobs(path))
