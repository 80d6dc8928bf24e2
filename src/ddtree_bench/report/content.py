"""Everything that the template prints, made from tables and configuration; no files."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ddtree_bench.charts.data import Tables
from ddtree_bench.config import CLASSES, Config
from ddtree_bench.report import (
    conditions,
    judgement,
    quality,
    results,
    sampling,
    setup,
    summary,
    talks,
)
from ddtree_bench.report.view import View


def content(
    tables: Tables,
    config: Config,
    table_hashes: Mapping[str, str],
    power: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """The template's names and their values; `power`: figures of the simulated verdicts."""
    view = View(tables, config)
    return {
        "run": config.run,
        "title": config.title,
        "classes": CLASSES,
        "confidence": view.confidence,
        "margin": f"{100 * config.analysis.margin:g} %",
        "launches": setup.rounds(view),
        "baseline": view.baseline,
        "concurrencies": view.concurrencies,
        "asks_original": view.asks_original,
        "simulated": summary.simulated(tables["environment"]),
        "power": judgement.power(power),
        **_first_page(view),
        **_results(view),
        **_judgements(view),
        **_conditions(view),
        **_appendix(view, table_hashes),
    }


def newest_measurement(tables: Tables) -> int:
    """Unix time of the last cell that was started; 0 if there is none."""
    known = tables["cells"]["started_unix_s"].dropna()
    return 0 if known.empty else int(known.max())


def _first_page(view: View) -> dict[str, Any]:
    return {
        "scope": summary.scope(view),
        "dates": summary.dates(view.tables["cells"]["started_unix_s"]),
        "headline": summary.headline(view),
        "verdicts": summary.verdicts(view),
        "overturn": summary.overturn(view),
    }


def _judgements(view: View) -> dict[str, Any]:
    return {
        "bottom_line": judgement.bottom_line(view),
        "causes": judgement.causes(view),
        "causes_by_class": judgement.causes_by_class(view),
        "profile": judgement.profile(view),
        "trees": judgement.trees(view),
        "answers": judgement.answers(view),
        "choice": judgement.choice(view),
        "no_choice": judgement.no_choice(view),
        "latency": judgement.latency(view),
        "goodput": judgement.goodput(view),
        "crossovers": judgement.crossovers(view),
    }


def _conditions(view: View) -> dict[str, Any]:
    return {
        "differences": conditions.differences(view),
        "startup": conditions.startup(view),
        "flags": conditions.flags(view),
        "findings": conditions.findings(view),
        "gpus": conditions.gpus(view),
        "host": conditions.host(view),
    }


def _results(view: View) -> dict[str, Any]:
    return {
        "by_class": results.classes(view),
        "most_accepted": results.most_accepted(view),
        "fastest": results.fastest(view),
        "pairs": results.comparisons(view, pooled=True),
        "pairs_by_class": results.comparisons(view, pooled=False),
        "acceptance": results.acceptance(view),
        "shape": results.tree_shape(view),
        "cost": results.cost(view),
        "predictions": results.predictions(view),
        "lossless": results.lossless(view),
        "quality": quality.quality(view),
        "sampling": sampling.sampling(view),
        "load": results.load(view),
        "arrivals": results.arrivals(view),
        "turns": talks.turns(view),
        "loops": talks.loops(view),
        "original": results.original(view),
        "published": results.published(view),
    }


def _appendix(view: View, table_hashes: Mapping[str, str]) -> dict[str, Any]:
    return {
        "servers": setup.servers(view),
        "workloads": setup.workloads(view),
        "protocol": setup.protocol(view),
        "failures": setup.failures(view),
        "log_tails": setup.log_tails(view),
        "launch_list": setup.launches(view),
        "environment": setup.environment(view),
        "commands": setup.commands(view),
        "hashes": setup.hashes(table_hashes),
        "configuration": setup.configuration(view),
    }
