import tomllib
from importlib.metadata import entry_points
from pathlib import Path

import pytest

import ddtree_sglang
from ddtree_sglang.launch import GROUP, NAME, TARGET, PluginError, arguments, check_entry_point
from ddtree_sglang.plugin import register

SITE = Path(ddtree_sglang.__file__).parent / "site"


@pytest.fixture
def installed(monkeypatch: pytest.MonkeyPatch) -> None:
    """The metadata that a source tree puts on PYTHONPATH."""
    monkeypatch.syspath_prepend(SITE)


@pytest.mark.usefixtures("installed")
def test_the_entry_point_leads_to_register() -> None:
    """SGLang loads what the metadata name."""
    [entry] = {e for e in entry_points(group=GROUP) if e.name == NAME}
    assert entry.load() is register


@pytest.mark.usefixtures("installed")
@pytest.mark.parametrize("allowed", [None, "", "ddtree", "other, ddtree"])
def test_a_plugin_that_sglang_will_load_is_accepted(allowed: str | None) -> None:
    """SGLANG_PLUGINS unset, empty, or with the plug-in among its names."""
    check_entry_point(allowed)


@pytest.mark.usefixtures("installed")
def test_a_plugin_that_is_left_out_is_an_error() -> None:
    """SGLang would skip it with a line in the log."""
    with pytest.raises(PluginError, match="SGLANG_PLUGINS=other leaves ddtree out"):
        check_entry_point("other")


def test_a_plugin_without_metadata_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """SGLang's own processes would not find it, whatever this process has imported."""
    monkeypatch.setattr("ddtree_sglang.launch.entry_points", lambda group: ())
    with pytest.raises(PluginError, match="install this project"):
        check_entry_point(None)


def test_the_algorithm_is_added_unless_one_is_given() -> None:
    """Both spellings of the flag count."""
    assert arguments(["--port", "1"]) == ["--port", "1", "--speculative-algorithm", "DDTREE"]
    given = ["--speculative-algorithm", "DFLASH"]
    assert arguments(given) == given
    assert arguments(["--speculative-algorithm=DFLASH"]) == ["--speculative-algorithm=DFLASH"]


def test_the_project_declares_the_same_entry_point() -> None:
    """An installed project and a source tree register the same function."""
    pyproject = SITE.parents[2] / "pyproject.toml"
    declared = tomllib.loads(pyproject.read_text(encoding="utf-8"))["project"].get("entry-points")
    if declared is None:
        pytest.skip("pyproject.toml has no entry points yet")
    assert declared[GROUP] == {NAME: TARGET}
