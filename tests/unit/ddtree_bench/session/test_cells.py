import pytest
from fakes import bench

from ddtree_bench.session import cells
from ddtree_bench.session.cells import cell_key, cells_of
from ddtree_bench.session.spec import SessionSpec

FACTS = {"model_sha256": "1", "tokenizer_sha256": "2", "cpu_model": "cpu", "package.torch": "2"}


def keys(spec: SessionSpec, facts=FACTS) -> dict[str, str]:
    """Key by the cell's name."""
    return {str(cell): cell_key(spec, cell, facts) for cell in cells_of(spec)}


@pytest.fixture
def spec(tmp_path):
    return bench(tmp_path)


def changed(spec: SessionSpec, section: str, **changes) -> SessionSpec:
    return spec.model_copy(
        update={section: getattr(spec, section).model_copy(update=changes)}, deep=True
    )


def with_workload(spec: SessionSpec, name: str, **changes) -> SessionSpec:
    workload = spec.workloads[name].model_copy(update=changes)
    return spec.model_copy(update={"workloads": {**spec.workloads, name: workload}})


def test_cells_are_workloads_times_concurrency_times_repeats(spec):
    """2 workloads; one of them at 2 concurrencies and 3 repeats: 1 + 2 × 3 = 7 cells."""
    more = with_workload(spec, "longform", concurrency=(1, 4), repeats=3)
    assert len(cells_of(more)) == 7
    assert [str(cell) for cell in cells_of(more)][:3] == [
        "one/launch-1/short/c1/r1",
        "one/launch-1/longform/c1/r1",
        "one/launch-1/longform/c1/r2",
    ]


def test_equal_workloads_have_different_keys(tmp_path):
    """The name is part of the key: two workloads of the same settings never share a cell."""
    spec = bench(tmp_path, "workloads: {longform: {class: short}}")
    assert len(set(keys(spec).values())) == 2


def test_another_workload_leaves_a_key_alone(spec):
    """Only the cells of the changed workload are measured again."""
    before, after = keys(spec), keys(with_workload(spec, "longform", max_new_tokens=99))
    assert before["one/launch-1/short/c1/r1"] == after["one/launch-1/short/c1/r1"]
    assert before["one/launch-1/longform/c1/r1"] != after["one/launch-1/longform/c1/r1"]


@pytest.mark.parametrize("more", [{"concurrency": (1, 8)}, {"repeats": 2}, {"rounds": (1,)}])
def test_more_cells_leave_those_measured_alone(spec, more):
    """A run can be extended without measuring anything twice."""
    assert keys(spec).items() <= keys(with_workload(spec, "short", **more)).items()


def test_more_launches_leave_those_measured_alone(spec):
    """The number of launches is no part of a key, the launch is."""
    assert keys(changed(spec, "protocol", launches=5, attempts=9)) == keys(spec)
    second = spec.model_copy(update={"launch": 2})
    assert not set(keys(second).values()) & set(keys(spec).values())


@pytest.mark.parametrize(
    "unmeasured", [{"title": "x"}, {"startup_timeout_s": 1.0}, {"python": "other"}]
)
def test_what_cannot_change_a_number_is_no_part_of_a_key(spec, unmeasured):
    """A new title or deadline measures nothing again."""
    assert keys(changed(spec, "server", **unmeasured)) == keys(spec)


@pytest.mark.parametrize(
    "measured", [{"args": ("--x",)}, {"env": {"A": "1"}}, {"engine": "sglang"}]
)
def test_what_can_change_a_number_changes_every_key(spec, measured):
    """Flags, environment and engine decide speed."""
    assert not set(keys(changed(spec, "server", **measured)).values()) & set(keys(spec).values())


@pytest.mark.parametrize("how", [{"seed": 1}, {"flush_cache": False}])
def test_how_it_is_measured_changes_every_key(spec, how):
    """Seed and cold cache are part of the protocol; a longer request deadline is not."""
    assert not set(keys(changed(spec, "protocol", **how)).values()) & set(keys(spec).values())
    assert keys(changed(spec, "protocol", request_timeout_s=1.0)) == keys(spec)


def test_leave_to_flush_matters_only_where_it_is_asked_for(spec):
    """An attached server is warm or cold by it; ours is flushed whatever the key says."""
    assert keys(changed(spec, "server", may_flush=True)) == keys(spec)
    attached = changed(spec, "server", engine="attach", base_url="http://x")
    assert keys(changed(attached, "server", may_flush=True)) != keys(attached)


def test_a_moved_model_is_the_same_model(spec):
    """The hash stands for the folder, where there is one."""
    moved = changed(spec, "server", model="/elsewhere")
    assert keys(moved) == keys(spec)
    nameless = {**FACTS, "model_sha256": None}
    assert keys(moved, nameless) != keys(spec, nameless)


@pytest.mark.parametrize("fact", sorted(FACTS))
def test_another_machine_or_version_changes_every_key(spec, fact):
    """Weights, processor and packages decide numbers."""
    other = keys(spec, {**FACTS, fact: "changed"})
    assert not set(other.values()) & set(keys(spec).values())


def test_edited_prompts_are_measured_again(spec):
    """The hash of the file is part of the key, its path is not."""
    edited = spec.model_copy(update={"prompts_sha256": {**spec.prompts_sha256, "short": "0" * 64}})
    before, after = keys(spec), keys(edited)
    assert [name for name in before if before[name] != after[name]] == ["one/launch-1/short/c1/r1"]
    assert keys(with_workload(spec, "short", prompts="moved.jsonl")) == before


def test_a_later_key_of_the_configuration_leaves_old_cells_alone(spec, monkeypatch):
    """At its default it is no part of a key, so that measured cells stay known."""
    hashed = []
    monkeypatch.setattr(cells, "json_sha256", lambda data: hashed.append(data) or str(data))
    before, after = keys(spec), keys(with_workload(spec, "short", ignore_eos=True))
    assert [name for name in before if before[name] != after[name]] == ["one/launch-1/short/c1/r1"]
    assert ["ignore_eos" in data["workload"] for data in hashed] == [False, False, True, False]


def test_each_rate_of_arrivals_is_a_cell(spec):
    """Two rates, two cells of other keys; more rates leave those measured alone."""
    one = with_workload(spec, "short", arrivals_per_s=(2.0,))
    two = with_workload(spec, "short", arrivals_per_s=(2.0, 0.5))
    assert [str(cell) for cell in cells_of(two)][:2] == [
        "one/launch-1/short/a2/r1",
        "one/launch-1/short/a0.5/r1",
    ]
    assert keys(one).items() <= keys(two).items()
    assert len(set(keys(two).values())) == 3


def test_what_fills_a_cell_is_part_of_its_key(spec):
    """8 in flight draw 32 prompts of a sample of 2, as of one of 32: the same cell."""
    two, many = (with_workload(spec, "short", sample=n, concurrency=(1, 8)) for n in (2, 32))
    all_prompts = with_workload(spec, "short", concurrency=(1, 8))
    alone, filled = "one/launch-1/short/c1/r1", "one/launch-1/short/c8/r1"
    assert keys(two)[filled] == keys(many)[filled] != keys(all_prompts)[filled]
    assert keys(two)[alone] != keys(many)[alone]
