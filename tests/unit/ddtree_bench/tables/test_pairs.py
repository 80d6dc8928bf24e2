"""Who is compared with whom."""

from __future__ import annotations

from typing import Any

from ddtree_bench.config import Config
from ddtree_bench.tables.pairs import Pair, pairs_of

CHAIN = {"model": "m", "drafter": "d", "algorithm": "DFLASH", "block_size": 8}
TREE = {**CHAIN, "algorithm": "DDTREE", "budget": 7}
SERVERS: dict[str, dict[str, Any]] = {
    "ar": {"model": "m"},
    "chain": CHAIN,
    "serial": {**CHAIN, "args": ["--disable-overlap-schedule"]},
    "tree": TREE,
    "ngram": {"model": "m", "engine": "sglang", "algorithm": "NGRAM"},
}


def pairs(against: dict[str, list[str]] | None = None) -> list[Pair]:
    """All pairs of the five servers."""
    return list(
        pairs_of(
            Config.model_validate(
                {
                    "run": "story",
                    "servers": SERVERS,
                    "workloads": {"short": {"class": "short", "prompts": "p.jsonl"}},
                    "analysis": {"against": against or {}},
                }
            )
        )
    )


def test_automatic_pairs() -> None:
    """All with plain decoding; the tree with every chain, of which one has the same flags."""
    assert pairs() == [
        *(Pair(name, "ar", "baseline") for name in ("chain", "serial", "tree", "ngram")),
        Pair("tree", "chain", "equal width"),
        Pair("tree", "serial", "chain"),
    ]


def test_planned_pairs_take_the_place_of_a_servers_automatic_ones() -> None:
    """Others keep theirs; plain decoding is still shown, and not tested unless it is named."""
    found = pairs({"tree": ["ngram", "chain"], "serial": ["ar", "chain"]})
    assert [pair for pair in found if pair.candidate == "tree"] == [
        Pair("tree", "ar", "baseline", tested=False),
        Pair("tree", "ngram", "planned"),
        Pair("tree", "chain", "equal width"),
    ]
    assert [pair for pair in found if pair.candidate == "serial"] == [
        Pair("serial", "ar", "baseline"),
        Pair("serial", "chain", "planned"),
    ]
    assert Pair("ngram", "ar", "baseline") in found


def test_the_baseline_may_be_a_candidate() -> None:
    """Against nothing by itself, against what is planned else."""
    assert [pair for pair in pairs({"ar": ["ngram"]}) if pair.candidate == "ar"] == [
        Pair("ar", "ngram", "planned")
    ]
