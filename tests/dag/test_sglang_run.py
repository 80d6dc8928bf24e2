"""Stock SGLang on this machine's CPU, launched by the workflow, from the launch to the PDF.

A server that nobody here wrote stands behind every merge: plain, n-gram, DFlash and DDTREE, and
beside them the reference engine as the oracle of the tree.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
import pandas as pd
import pytest
import yaml

from ddtree_bench.records import Launch, RequestRecord
from ddtree_bench.session.store import MeasuredCell, read_cells

from .conftest import REPOSITORY, Project, new_project

pytestmark = [pytest.mark.dag, pytest.mark.engine, pytest.mark.heavy]

NEEDED = (
    ".venv-reference",
    ".venv-sglang-cpu",
    "models/SmolLM2-135M-Instruct",
    "models/smollm2-135m-dflash-b16",
)
TREE, ORACLE = "ddtree-b15-k8", "reference-b15-k8"
STOCK = ("ar", "ngram", "dflash-b16", TREE)
WIDTHS = {"ngram": 12, "dflash-b16": 16, TREE: 16, ORACLE: 16}
TERM_PATIENCE_S = 15.0
"""After that a session stops its server by SIGKILL."""
SMALL: dict[str, dict[str, Any]] = {
    "short": {"sample": 2, "max_new_tokens": 12},
    "longform": {"sample": 1, "max_new_tokens": 32},
    # recorded replies would cost another launch
    "multiturn": {"sample": 1, "max_new_tokens": 8, "history": "own"},
    "structured": {"sample": 1, "max_new_tokens": 16, "repeats": 2},
    "agentic": {"sample": 1, "max_new_tokens": 12, "max_steps": 1, "history": "own"},
}


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> Project:
    """config/sglang-cpu.yaml, one launch a server, few prompts of each class, short answers."""
    for path in NEEDED:
        if not (REPOSITORY / path).exists():
            pytest.skip(f"{path} is missing; docs/sglang-cpu.md says how to get it")
    project = new_project(tmp_path_factory.mktemp("sglang"))
    for path in NEEDED:
        (project.folder / path).symlink_to(REPOSITORY / path)
    text = (REPOSITORY / "config/sglang-cpu.yaml").read_text(encoding="utf-8")
    project.config = yaml.safe_load(text)
    servers = project.config["servers"]
    del servers["dflash-b8"]
    same = ("model", "drafter", "algorithm", "block_size", "budget", "topk_cap")
    servers[ORACLE] = {key: servers[TREE][key] for key in same}
    workloads = project.config["workloads"]
    project.config["workloads"] = {name: workloads[name] | SMALL[name] for name in SMALL}
    warmup = {"min_requests": 1, "max_requests": 1, "max_new_tokens": 9}
    project.config["protocol"] = {"launches": 1, "warmup": warmup}
    project.run(timeout_s=1800)
    return project


def table(project: Project, name: str) -> pd.DataFrame:
    return pd.read_csv(project.folder / f"results/sglang-cpu/tables/{name}.csv")


def launch(project: Project, server: str) -> Launch:
    return Launch.model_validate(project.launch(server))


def cells(project: Project, server: str) -> list[MeasuredCell]:
    folder = project.folder / f"results/sglang-cpu/sessions/{server}/launch-1"
    return list(read_cells(folder / "cells.jsonl"))


def requests(project: Project, server: str) -> Iterator[RequestRecord]:
    return (request for cell in cells(project, server) for request in cell.requests)


def test_everything_is_measured(measured: Project) -> None:
    """Five classes and the second pass of one, five servers; nothing failed, nothing is faulty."""
    found = table(measured, "cells")
    assert set(found["status"]) == {"ok"}
    assert len(found) == len([*STOCK, ORACLE]) * (len(SMALL) + 1)
    assert len(table(measured, "failures")) == 0
    assert set(table(measured, "classes")["workload_class"]) >= set(SMALL)


@pytest.mark.parametrize("server", STOCK)
def test_what_runs_is_what_was_asked_for(measured: Project, server: str) -> None:
    """Release, device and verify width are SGLang's own words."""
    identity = launch(measured, server).identity
    assert (identity["version"], identity["device"]) == ("0.5.17", "cpu")
    assert identity["speculative_num_draft_tokens"] == WIDTHS.get(server)
    algorithm = measured.config["servers"][server].get("algorithm")
    assert identity["speculative_algorithm"] == algorithm


@pytest.mark.parametrize("server", STOCK)
def test_every_hook_found_its_target(measured: Project, server: str) -> None:
    """SGLang only logs a plug-in or hook that fails; the log has no such line."""
    path = measured.folder / str(launch(measured, server).log_path)
    log = path.read_text(encoding="utf-8", errors="replace")
    assert "fired up" in log
    assert "dtype: torch.float32" in log
    assert "Failed to" not in log
    assert "Traceback" not in log


@pytest.mark.parametrize("server", STOCK)
def test_term_ends_a_server(measured: Project, server: str) -> None:
    """The group, its port and all are gone before a session would lose its patience."""
    done = launch(measured, server)
    asked_until = max(cell.cell.ended_unix_s for cell in cells(measured, server))
    assert done.ended_unix_s - asked_until - (done.logprob_s or 0.0) < TERM_PATIENCE_S


@pytest.mark.parametrize("server", [*STOCK, ORACLE])
def test_answers_are_streamed(measured: Project, server: str) -> None:
    """Plain decoding sends its tokens one by one, the others fewer events than tokens."""
    some = [request for request in requests(measured, server) if request.completion_tokens]
    events = sum(len(request.events) for request in some)
    tokens = sum(request.completion_tokens or 0 for request in some)
    assert events == tokens if server == "ar" else events < tokens


@pytest.mark.parametrize("server", list(WIDTHS))
def test_acceptance_is_that_of_the_requests_own_counters(measured: Project, server: str) -> None:
    """The table's figure is (steps + accepted drafts) ÷ steps of `meta_info`, class by class."""
    classes = table(measured, "classes").set_index(["server", "workload_class"])
    for name in SMALL:
        mine = [r.spec for r in requests(measured, server) if r.cell.workload == name and r.spec]
        steps = sum(spec.verify_steps for spec in mine)
        accepted = sum(spec.accepted_drafts for spec in mine)
        assert steps > 0
        told = classes.loc[(server, name), "acceptance_length"]
        assert told == pytest.approx((steps + accepted) / steps)
    assert table(measured, "overall").set_index("server")["acceptance_length"][server] > 1


def test_plain_decoding_has_no_counters_of_speculation(measured: Project) -> None:
    """No speculation is not zero accepted drafts."""
    assert all(request.spec is None for request in requests(measured, "ar"))
    overall = table(measured, "overall").set_index("server")
    assert np.isnan(overall["acceptance_length"]["ar"])


def test_speculation_gives_what_the_target_would_choose(measured: Project) -> None:
    """Up to near ties, judged by the log probabilities that plain decoding gave afterwards."""
    lossless = table(measured, "lossless").set_index("server")
    assert launch(measured, "ar").logprob_requests > 0
    assert (lossless["compared"] > 0).all()
    assert (lossless["regret_faults"] == 0).all()
    assert (lossless["verdict"] == "sound").all()


def test_a_flush_empties_the_memory_of_ngram(measured: Project) -> None:
    """NGRAM drafts from earlier answers: without a flush the second pass would take fewer steps."""
    steps = {
        (request.cell.repeat, request.prompt_id): request.spec and request.spec.verify_steps
        for request in requests(measured, "ngram")
        if request.cell.workload == "structured"
    }
    prompts = {prompt for _, prompt in steps}
    first = [steps[1, prompt] for prompt in prompts]
    assert first == [steps[2, prompt] for prompt in prompts]


def test_the_tree_drafts_what_the_reference_engine_drafts(measured: Project) -> None:
    """Same texts; the same trees up to rounding, which now and then moves a node: a few in 100."""
    mine, oracle = (
        {(*request.question, request.cell.repeat): request for request in requests(measured, name)}
        for name in (TREE, ORACLE)
    )
    assert mine.keys() == oracle.keys()
    parted = [q for q in mine if mine[q].output_ids != oracle[q].output_ids]
    assert not parted
    assert acceptance(mine.values()) == pytest.approx(acceptance(oracle.values()), rel=0.05)


def acceptance(some: Iterable[RequestRecord]) -> float:
    """Tokens a verify step, bonus included, pooled."""
    specs = [request.spec for request in some if request.spec is not None]
    steps = sum(spec.verify_steps for spec in specs)
    return (steps + sum(spec.accepted_drafts for spec in specs)) / steps


def test_the_tree_is_compared_with_its_opponents(measured: Project) -> None:
    """Plain decoding, and the chain that verifies as many tokens."""
    found = table(measured, "comparisons")
    mine = found[(found["candidate"] == TREE) & (found["workload_class"] == "all")]
    relations = dict(zip(mine["relation"], mine["reference"], strict=False))
    assert relations["baseline"] == "ar"
    assert relations["equal width"] == "dflash-b16"


def test_the_report_is_there_and_up_to_date(measured: Project) -> None:
    """The PDF is made, and another run has nothing to do."""
    assert measured.pdf.read_bytes().startswith(b"%PDF")
    assert "Nothing to be done" in measured.run()
