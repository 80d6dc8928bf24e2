"""The shipped test configuration for real: the reference engine, the shipped drafter, the PDF."""

from __future__ import annotations

import shutil
from pathlib import Path

import pandas as pd
import pytest
import yaml

from .conftest import REPOSITORY, Project, new_project

pytestmark = [pytest.mark.dag, pytest.mark.engine, pytest.mark.heavy]
ENGINE = REPOSITORY / ".venv-reference"


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> Project:
    """config/test.yaml measured from nothing, the target model made by its rule."""
    project = new_project(tmp_path_factory.mktemp("reference"))
    shutil.copytree(
        REPOSITORY / "models/smollm2-135m-dflash-b16",
        project.folder / "models/smollm2-135m-dflash-b16",
    )
    (project.folder / ".venv-reference").symlink_to(ENGINE)
    text = (REPOSITORY / "config/test.yaml").read_text(encoding="utf-8")
    project.config = yaml.safe_load(text)
    project.run()
    return project


def table(project: Project, name: str) -> pd.DataFrame:
    return pd.read_csv(project.folder / f"results/test/tables/{name}.csv")


def test_every_cell_of_every_server_is_measured(measured):
    """Five classes and the three original prompts, three servers, two rounds."""
    cells = table(measured, "cells")
    assert set(cells["status"]) == {"ok"}
    assert len(cells) == 3 * (5 + 5 + 1)  # the original prompts are measured in round 1 only


def test_drafting_does_not_change_the_answers(measured):
    """In float32 every greedy answer of chain and tree is plain decoding's, token for token."""
    lossless = table(measured, "lossless")
    assert (lossless["compared"] > 0).all()
    assert (lossless["identical"] == lossless["compared"]).all()


def test_drafts_are_accepted(measured):
    """A verify step yields more than its bonus token, the tree's no fewer than the chain's."""
    pooled = table(measured, "overall").set_index("server")["acceptance_length"]
    assert pooled["dflash-b8"] > 1.5
    assert pooled["ddtree-b7-k8"] >= pooled["dflash-b8"]


def test_the_report_is_there_and_up_to_date(measured):
    """The PDF is made, and another run has nothing to do."""
    assert measured.pdf.read_bytes().startswith(b"%PDF")
    assert "Nothing to be done" in measured.run()


def test_servers_are_what_was_asked_for(measured):
    """The record of a launch names the width that the server verifies."""
    assert measured.launch("ddtree-b7-k8")["identity"]["speculative_num_draft_tokens"] == 8
    assert Path(measured.launch("ar")["argv"][0]).name == "python"
