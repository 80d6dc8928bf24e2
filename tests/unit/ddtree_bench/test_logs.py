import logging
import sys

import pytest

from ddtree_bench.logs import log_to


def test_all_that_a_script_says_is_in_its_log(tmp_path):
    """stdout, stderr and logging end in one file, the trace of an error last."""
    path = tmp_path / "deep" / "script.log"

    def script() -> None:
        with log_to(path):
            print("printed")
            print("complained", file=sys.stderr)
            logging.getLogger("x").warning("logged")
            raise ZeroDivisionError("why")

    with pytest.raises(ZeroDivisionError):
        script()
    lines = path.read_text(encoding="utf-8").splitlines()
    assert lines[:3] == ["printed", "complained", "WARNING x: logged"]
    assert lines[-1] == "ZeroDivisionError: why"


def test_the_log_ends_with_the_block(tmp_path, capsys):
    """Afterwards everything goes where it went before."""
    handlers = list(logging.getLogger().handlers)
    with log_to(tmp_path / "log"):
        print("inside")
    print("outside")
    assert capsys.readouterr().out == "outside\n"
    assert (tmp_path / "log").read_text(encoding="utf-8") == "inside\n"
    assert logging.getLogger().handlers == handlers
