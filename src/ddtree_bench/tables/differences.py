"""In what two servers differ besides what the configuration varies between them.

A comparison says something of one factor only if all else is equal. What the running servers say of
themselves, their variables and their machines are held against each other.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

import pandas as pd

from ddtree_bench.columns import DIFFERENCES
from ddtree_bench.config import Config, Server
from ddtree_bench.records import Launch
from ddtree_bench.server.machine import decisive_facts
from ddtree_bench.tables.pairs import pairs_of
from ddtree_bench.tables.raw import flat
from ddtree_bench.tables.rows import Value, frame_of

_NAMES: Final = re.compile(r"identity\.(served_model_name|host|\w*port|\w*seed)")
"""What is different in any two launches and changes nothing."""
_DECLARED: Final = {
    "model": r"identity\.model_path|machine\.(model|tokenizer)_sha256",
    # a drafter takes its memory from the KV cache
    "drafter": r"identity\.(speculative_draft_model_path|max_total_num_tokens)"
    r"|machine\.drafter_sha256",
    # trees come with the plug-in; SGLang calls their top-k cap EAGLE's
    "algorithm": r"identity\.speculative_(algorithm|num_draft_tokens|eagle_topk)"
    r"|machine\.plugin_source_sha256",
    "block_size": r"identity\.speculative_(dflash_block_size|num_draft_tokens)"
    r"|identity\.log\.(verify_width|drafter\.block_size)",
    "budget": r"identity\.speculative_(ddtree_budget|num_draft_tokens)|identity\.log\.verify_width",
    "topk_cap": r"identity\.speculative_ddtree_topk_cap",
}
"""Facts that follow from a key of the configuration."""
_DRAFTING: Final = re.compile(r"identity\.(speculative_|log\.)|machine\.drafter_sha256")
"""Facts that mean nothing to plain decoding."""
_SWITCHES: Final = re.compile(r"identity\.speculative_ddtree_\w+")
"""Options of trees only: what is off there is what a chain does not have."""


def difference_frame(launches: Sequence[Launch], config: Config) -> pd.DataFrame:
    """The table of differences; a server without a good launch is compared with none."""
    newest = {
        launch.server: launch
        for launch in sorted(launches, key=lambda launch: launch.launch)
        if launch.status.ok and launch.identity
    }
    return frame_of(_rows(newest, config), DIFFERENCES)


def _rows(newest: Mapping[str, Launch], config: Config) -> Iterator[Mapping[str, Value]]:
    for pair in pairs_of(config):
        name, reference = pair.servers
        if name not in newest or reference not in newest:
            continue
        one, other = _facts(newest[name]), _facts(newest[reference])
        servers = config.servers[name], config.servers[reference]
        for fact in sorted(one.keys() | other.keys()):
            values = one.get(fact), other.get(fact)
            if not _is_same(fact, *values) and not _is_declared(fact, *servers):
                yield {
                    "server": name,
                    "reference": reference,
                    "fact": fact,
                    "value": values[0],
                    "reference_value": values[1],
                }


def _facts(launch: Launch) -> dict[str, str]:
    return {
        **dict(flat("identity", launch.identity)),
        **dict(flat("env", launch.environment)),
        **dict(flat("machine", decisive_facts(launch.machine))),
    }


def _is_same(fact: str, one: str | None, other: str | None) -> bool:
    return one == other or (bool(_SWITCHES.fullmatch(fact)) and {one, other} == {"false", None})


def _is_declared(fact: str, one: Server, other: Server) -> bool:
    """Whether the configuration itself makes the two differ in this fact."""
    if _NAMES.fullmatch(fact):
        return True
    if "AR" in (one.algorithm, other.algorithm) and _DRAFTING.match(fact):
        return True
    return any(
        getattr(one, key) != getattr(other, key) and re.fullmatch(pattern, fact)
        for key, pattern in _DECLARED.items()
    )
