import pytest
from pydantic import BaseModel, TypeAdapter

from ddtree_bench.json_lines import WrongLine, read_good_lines, read_lines


class Point(BaseModel):
    x: int


POINT = TypeAdapter(Point)


def test_every_line_is_a_record_with_its_number(tmp_path):
    """Blank lines count as lines and are none; U+2028 ends no line."""
    path = tmp_path / "points.jsonl"
    path.write_text('{"x": 1}\n \n{"x": 2, "name": "a\u2028b"}\n', encoding="utf-8")
    assert list(read_lines(path, POINT)) == [(1, Point(x=1)), (3, Point(x=2))]


def test_a_wrong_line_is_refused_after_those_before_it(tmp_path):
    """With its place, the field at fault, and what is wrong with it."""
    path = tmp_path / "points.jsonl"
    path.write_text('{"x": 1}\n{"x": "a"}\n{"x": 3}\n', encoding="utf-8")
    lines = read_lines(path, POINT)
    assert next(lines) == (1, Point(x=1))
    with pytest.raises(WrongLine, match="not a record") as caught:
        next(lines)
    assert (caught.value.where, caught.value.number) == (f"{path}:2", 2)
    assert (caught.value.key, "integer" in caught.value.reason) == ("x", True)


def test_a_wrong_line_costs_itself_only_where_nothing_can_be_made_again(tmp_path, caplog):
    """Half a line, as after a full disk."""
    path = tmp_path / "points.jsonl"
    path.write_text('{"x": 1}\n{"x": \n{"x": 3}\n', encoding="utf-8")
    assert list(read_good_lines(path, POINT)) == [Point(x=1), Point(x=3)]
    assert f"{path}:2" in caplog.text
    assert list(read_good_lines(tmp_path / "none.jsonl", POINT)) == []
