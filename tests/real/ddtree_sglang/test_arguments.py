"""SGLang's own argument parser with the plug-in loaded; nothing is started."""

import json
import os
import subprocess
from functools import cache
from pathlib import Path

import pytest
from real.ddtree_sglang.servers import PLUGIN_SITE, ROOT, configured

pytestmark = pytest.mark.heavy

ACCEPTED = {
    "": [16, 16, 8],  # block, width, candidates
    "--speculative-ddtree-budget 64 --speculative-ddtree-topk-cap 4": [16, 65, 4],
    "--speculative-dflash-block-size 8 --speculative-ddtree-budget 8": [8, 9, 8],
    "--speculative-ddtree-budget 15 --speculative-num-draft-tokens 16": [16, 16, 8],
}
REFUSED = {
    "--speculative-ddtree-budget 0": "--speculative-ddtree-budget",
    "--speculative-ddtree-topk-cap 65": "--speculative-ddtree-topk-cap",
    "--speculative-dflash-block-size 32": "trained to fill 16",
    "--pp-size 2": "--pp-size",
    "--page-size 16": "--page-size",
    "--attention-backend flashinfer": "take triton",
    "--speculative-num-draft-tokens 9": "leave it out",
}

PROGRAM = """
import json, os, sys
from sglang.srt.plugins import load_plugins
load_plugins()
from sglang.srt.server_args import prepare_server_args

found = {}
before = dict(os.environ)
for case in json.loads(sys.argv[1]):
    os.environ.clear()
    os.environ.update(before)
    try:
        a = prepare_server_args(sys.argv[2:] + case.split())
        found[case] = [
            a.speculative_dflash_block_size,
            a.speculative_num_draft_tokens,
            a.speculative_eagle_topk,
        ]
    except ValueError as error:
        found[case] = str(error)
print(json.dumps(found))
"""


@cache
def outcomes(folder: Path) -> dict[str, object]:
    """What the parser made of each case: three fields, or the error's text."""
    server = configured()
    assert server.drafter is not None
    env = os.environ | server.env
    env["PYTHONPATH"] = f"{server.env['PYTHONPATH']}:{PLUGIN_SITE}"
    common = ["--model-path", server.model, "--device", "cpu"]
    common += ["--speculative-algorithm", "DDTREE"]
    common += ["--speculative-draft-model-path", server.drafter]
    cases = json.dumps([*ACCEPTED, *REFUSED])
    with (folder / "arguments.log").open("w") as log:
        done = subprocess.run(
            [server.python, "-c", PROGRAM, cases, *common],
            env=env,
            cwd=ROOT,
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
            check=True,
        )
    found: dict[str, object] = json.loads(done.stdout.splitlines()[-1])
    return found


@pytest.mark.parametrize("case", ACCEPTED)
def test_sizes_reach_the_fields_that_sglang_reads(case: str, logs: Path) -> None:
    """Draft block, verify width, and candidates."""
    assert outcomes(logs)[case] == ACCEPTED[case]


@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_run_is_refused_by_the_parser(case: str, logs: Path) -> None:
    """With the reason, before a model is loaded."""
    found = outcomes(logs)[case]
    assert isinstance(found, str)
    assert REFUSED[case] in found
