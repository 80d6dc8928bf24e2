"""Load and validate the configuration; names and functions that the other rule files share."""

import os
import re
import sys
from pathlib import Path

from snakemake.exceptions import WorkflowError

BASE = Path(workflow.basedir)
sys.path.insert(0, str(BASE / "src"))
# jobs on a cluster or in a conda environment have no installed copy of the library
os.environ |= {"PYTHONPATH": str(BASE / "src")}

from ddtree_bench import PROTOCOL
from ddtree_bench.config import load_config
from ddtree_bench.errors import BenchError
from ddtree_bench.hashing import json_sha256
from ddtree_bench.layout import RunLayout
from ddtree_bench.rounds import replies
from ddtree_bench.rounds.schedule import schedule_of
from ddtree_bench.session.spec import SessionSpec

# A run is one file, whole. Snakemake's `configfile:` would merge --configfile into the default
# configuration key by key, and the default servers would be measured beside the user's.
CONFIG_FILES = [str(file) for file in workflow.config_settings.configfiles]
if len(CONFIG_FILES) > 1:
    raise WorkflowError(
        f"a run has one configuration, not {len(CONFIG_FILES)}: {CONFIG_FILES}"
    )
try:
    CONFIG = load_config(
        Path((CONFIG_FILES or ["config/config.yaml"])[0]),
        overrides=workflow.config_settings.config,
    )
    TURNS = {(turn.server, turn.launch): turn for turn in schedule_of(CONFIG)}
    SPECS = {turn: SessionSpec.of(CONFIG, *turn) for turn in TURNS}
    # what decides the replies that conversations go on with; empty if there are all
    REPLIES = replies.fingerprint(CONFIG)
except BenchError as error:
    raise WorkflowError(str(error)) from error

RUN = RunLayout.of(CONFIG.run)
LOGS = f"logs/{CONFIG.run}"
PDF = f"report/{CONFIG.run}.pdf"
SESSIONS = [RUN.session(*turn) for turn in TURNS]
SPEC_FILES = [session / "spec.json" for session in SESSIONS]
# A rule's params are recorded even when it fails, and Snakemake then takes stale outputs for fresh
# ones; the fingerprint of what was measured stands in the params of every rule downstream.
FINGERPRINT = json_sha256([spec.to_json() for spec in SPECS.values()])[:12]


wildcard_constraints:
    server="|".join(map(re.escape, CONFIG.servers)),
    launch=r"\d+",


def turn_of(wildcards):
    return wildcards.server, int(wildcards.launch)


def spec_text(wildcards):
    return SPECS[turn_of(wildcards)].to_json()


def turn_priority(wildcards):
    return TURNS[turn_of(wildcards)].priority


def made_models(wildcards):
    """Weights that a session needs and a rule of this workflow makes."""
    return made_weights(SPECS[turn_of(wildcards)].server)


def baseline_models(wildcards):
    return made_weights(CONFIG.servers[CONFIG.analysis.baseline])


def made_weights(server):
    made = {TARGET_MODEL: rules.target_model.output.weights}
    return [made[folder] for folder in (server.model, server.drafter) if folder in made]


def attempt_number(wildcards, attempt):
    return attempt


def sources(*patterns):
    """Files of the library that decide a rule's output: an edit runs the rule again."""
    library = BASE / "src/ddtree_bench"
    found = {pattern: list(library.glob(pattern)) for pattern in patterns}
    if gone := [pattern for pattern in patterns if not found[pattern]]:
        raise WorkflowError(f"no file of {library} matches {gone}")
    return sorted(
        str(file.relative_to(BASE)) for each in found.values() for file in each
    )


def files(folder):
    """Every file below a folder of the workflow."""
    found = [file for file in (BASE / folder).rglob("*") if file.is_file()]
    return sorted(str(file.relative_to(BASE)) for file in found)
