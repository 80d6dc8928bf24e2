"""SYNTHETIC tables for tests of charts and report: invented numbers, nothing was measured."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from ddtree_bench.columns import POOLED, TABLES
from ddtree_bench.config import CLASSES, Config
from ddtree_bench.status import Status

Rows = list[dict[str, Any]]
Tables = dict[str, pd.DataFrame]

ACCEPTANCE = {"ar": 1.0, "dflash-b16": 3.1, "dflash-b8": 2.8, "ddtree-b15": 3.6, "ddtree-b7": 3.2}
STEP_S = {
    "ar": 0.030,
    "dflash-b16": 0.052,
    "dflash-b8": 0.044,
    "ddtree-b15": 0.056,
    "ddtree-b7": 0.046,
}
BIAS = dict(zip(CLASSES, (1.1, 1.0, 0.8, 1.35, 1.2), strict=True))
HOSTILE = "died\n\\input{/etc/passwd} ^^5c %}{ 木 \x1b[31m --model /opt/" + "long_path/" * 12


def synthetic_config(**changes: Any) -> Config:
    """A run of plain decoding, two chains and two trees; nothing of it exists."""
    common = {"model": "models/target", "drafter": "models/drafter"}
    tree = common | {"algorithm": "DDTREE"}
    chain = common | {"algorithm": "DFLASH"}
    servers = {
        "ar": {"title": "plain", "model": "models/target"},
        "dflash-b16": {"title": "chain 16", "block_size": 16} | chain,
        "dflash-b8": {"title": "chain 8 & $co_1", "block_size": 8} | chain,
        "ddtree-b15": {"title": "tree 15/8", "block_size": 16, "budget": 15, "topk_cap": 8} | tree,
        "ddtree-b7": {"title": "tree 7/8 木", "block_size": 8, "budget": 7, "topk_cap": 8} | tree,
    }
    workloads = {name: {"class": name, "prompts": f"{name}.jsonl"} for name in CLASSES}
    original = {"class": "original", "prompts": "original.jsonl", "repeats": 3, "stream": False}
    data = {
        "run": "synthetic",
        "title": "Synthetic & 100 % invented",
        "servers": servers,
        "workloads": workloads | {"original": original},
    }
    return Config.model_validate(data | changes)


def tables_of(kind: str, config: Config) -> Tables:
    """The tables of a run that is `full`, `empty` or `failed`."""
    if kind == "full":
        return full_tables(config)
    return failed_tables(config) if kind == "failed" else empty_tables()


def empty_tables() -> Tables:
    """All tables with headers and no rows: nothing was measured yet."""
    return {name: frame(name, []) for name in TABLES} | {"published": published([])}


def failed_tables(config: Config) -> Tables:
    """Every launch failed, with a hostile log."""
    failures = [
        {
            "level": "launch",
            "server": server,
            "launch": launch,
            "status": Status.DIED_AT_START,
            "sentence": Status.DIED_AT_START.sentence,
            "detail": HOSTILE,
            "attempt": 2,
            "final": "true",
            "log_tail": f"loading\n{HOSTILE}\nRuntimeError: no kernel image",
        }
        for server in config.servers
        for launch in (1, 2)
    ]
    cells = [
        _cell(server, launch, name, status=Status.NOT_RUN, sentence=Status.NOT_RUN.sentence)
        for server in config.servers
        for launch in (1, 2)
        for name in config.workloads
    ]
    changed = {
        "failures": frame("failures", failures),
        "cells": frame("cells", cells),
        "servers": frame("servers", list(_servers(config, ok=0))),
    }
    return empty_tables() | changed


def full_tables(config: Config, seed: int = 0) -> Tables:
    """A finished run with one failed launch and one failed cell; numbers drawn by `seed`."""
    rng = np.random.default_rng(seed)
    rows: Mapping[str, Rows] = {
        "classes": list(_classes(rng)),
        "overall": list(_overall(rng)),
        "comparisons": list(_comparisons(rng)),
        "histogram": list(_histogram()),
        "depths": list(_depths()),
        "ranks": list(_ranks()),
        "cost": list(_cost(config)),
        "budgets": list(_budgets()),
        "lossless": list(_lossless()),
        "quality": list(_quality()),
        "draws": list(_draws()),
        "trees": list(_trees()),
        "choice": list(_choice()),
        "latency": list(_latency()),
        "turns": list(_turns()),
        "loops": list(_loops()),
        "crossover": list(_crossover()),
        "original": list(_original(rng)),
        "servers": list(_servers(config, ok=2)),
        "cells": list(_cells(config)),
        "failures": list(_failures()),
        "environment": list(_environment()),
        "startup": list(_startup()),
        "findings": list(_findings()),
        "telemetry": list(_telemetry()),
        "differences": list(_differences()),
    }
    notes = [
        {"source": "notes", "system": "invented GPU", "config": config_name, "prompt_id": prompt,
         "tok_per_s": speed}
        for config_name, speed in (("AR", 90.0), ("DFlash", 310.0), ("DDTree b15", 388.0))
        for prompt in ("fibonacci", "quicksort", "two-plus-two")
    ]  # fmt: skip
    made = {name: frame(name, some) for name, some in rows.items()}
    return empty_tables() | made | {"published": published(notes)}


def _turns() -> Iterator[dict[str, Any]]:
    for server, acceptance in ACCEPTANCE.items():
        for turn in range(3):
            yield {
                "server": server,
                "workload_class": "multiturn",
                "concurrency": 1,
                "turn": turn,
                "n_requests": 8 - turn,
                "ttft_p50_s": 0.1 + 0.01 * turn,
                "tok_per_s": acceptance / STEP_S[server],
                "acceptance_length": None if server == "ar" else acceptance,
            }


def _loops() -> Iterator[dict[str, Any]]:
    for server in ACCEPTANCE:
        yield {
            "server": server,
            "workload": "agentic",
            "concurrency": 1,
            "loops": 4,
            "steps": 10,
            "steps_per_loop": 2.5,
            "tokens_per_step": 31.4,
            "checks": 10,
            "checks_valid": 9,
            "valid_share": 0.9,
        }


def frame(table: str, rows: Rows) -> pd.DataFrame:
    """Rows under the table's columns; a column that a row lacks is empty."""
    return pd.DataFrame(rows, columns=list(TABLES[table].names))


def published(rows: Rows) -> pd.DataFrame:
    """Figures that others published."""
    return pd.DataFrame(rows, columns=["source", "system", "config", "prompt_id", "tok_per_s"])


def write_tables(tables: Tables, folder: Path) -> Path:
    """The tables as CSV files in a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, table in tables.items():
        table.to_csv(folder / f"{name}.csv", index=False)
    return folder


def _speed(server: str, workload_class: str) -> float:
    acceptance = max(1.0, ACCEPTANCE[server] * BIAS[workload_class]) if server != "ar" else 1.0
    return acceptance / STEP_S[server]


def _summary(server: str, speed: float, rng: np.random.Generator) -> dict[str, Any]:
    spread = 1 + rng.uniform(0.02, 0.06)
    drafting = server != "ar"
    return {
        "server": server,
        "concurrency": 1,
        "n_prompts": 4,
        "n_launches": 2,
        "n_requests": 16,
        "tok_per_s": speed,
        "tok_per_s_low": speed / spread,
        "tok_per_s_high": speed * spread,
        "tok_per_s_of_totals": speed * 0.98,
        "decode_tok_per_s": speed * 1.05,
        "ttft_p50_s": 0.061,
        "tpot_p50_s": 1 / speed,
        "burst_gap_p50_s": STEP_S[server],
        "end_p50_s": 96 / speed,
        "acceptance_length": speed * STEP_S[server] if drafting else None,
        "step_time_s": STEP_S[server],
        "checks": 8,
        "checks_valid": 6,
        "length_share": 0.25,
        "failed_requests": 0,
    }


def _classes(rng: np.random.Generator) -> Iterator[dict[str, Any]]:
    for server in ACCEPTANCE:
        for name in CLASSES:
            if (server, name) == ("ddtree-b7", "agentic"):
                continue  # its cell failed
            yield {"workload_class": name} | _summary(server, _speed(server, name), rng)


def _pooled(server: str) -> float:
    return float(np.exp(np.mean([np.log(_speed(server, name)) for name in CLASSES])))


def _overall(rng: np.random.Generator) -> Iterator[dict[str, Any]]:
    for server in ACCEPTANCE:
        n_classes = 4 if server == "ddtree-b7" else 5
        yield {"n_classes": n_classes} | _summary(server, _pooled(server), rng)


PAIRS = (
    *((server, "ar", "baseline") for server in ACCEPTANCE if server != "ar"),
    ("ddtree-b15", "dflash-b16", "equal width"),
    ("ddtree-b15", "dflash-b8", "chain"),
    ("ddtree-b7", "dflash-b8", "equal width"),
    ("ddtree-b7", "dflash-b16", "chain"),
)


def _comparisons(rng: np.random.Generator) -> Iterator[dict[str, Any]]:
    for candidate, reference, relation in PAIRS:
        for name in (*CLASSES, POOLED):
            both = [
                _pooled(server) if name == POOLED else _speed(server, name)
                for server in (candidate, reference)
            ]
            yield _comparison(candidate, reference, relation, name, both[0] / both[1], rng)


def _comparison(
    candidate: str, reference: str, relation: str, name: str, ratio: float, rng: np.random.Generator
) -> dict[str, Any]:
    half = rng.uniform(0.01, 0.08)
    decided = abs(np.log(ratio)) > half + 0.02
    verdict = ("faster" if ratio > 1 else "slower") if decided else "undecided"
    return {
        "candidate": candidate,
        "reference": reference,
        "relation": relation,
        "workload_class": name,
        "concurrency": 1,
        "classes": ", ".join(CLASSES) if name == POOLED else name,
        "n_prompts": 20 if name == POOLED else 4,
        "n_launches": 2,
        "speedup": ratio,
        "speedup_low": ratio * np.exp(-half),
        "speedup_high": ratio * np.exp(half),
        "p_value": 0.001,
        "p_holm": 0.006,
        "wins": 14,
        "ties": 3,
        "losses": 3,
        "sign_p": 0.0127,
        "noise_floor": 1.012,
        "totals_ratio": ratio * 0.98,
        "acceptance_ratio": ACCEPTANCE[candidate] / ACCEPTANCE[reference],
        "step_time_ratio": STEP_S[candidate] / STEP_S[reference],
        "predicted_speedup": ratio * 1.03,
        "first_token_factor": 0.97,
        "verdict": verdict,
        "verdict_detail": f"invented: {verdict}; launches limit, about 3 more would decide",
    }


def _histogram() -> Iterator[dict[str, Any]]:
    for server, length in ACCEPTANCE.items():
        if server == "ar":
            continue
        top = 7 if server.endswith(("b8", "b7")) else 15
        weights = (1 - 1 / length) ** np.arange(top + 1)
        shares = weights / weights.sum()
        for name in (*CLASSES, POOLED):
            for accepted, share in enumerate(shares):
                yield {"server": server, "workload_class": name, "accepted_drafts": accepted,
                       "steps": round(1000 * share), "share": share}  # fmt: skip


def _depths() -> Iterator[dict[str, Any]]:
    for server, top in (("ddtree-b15", 9), ("ddtree-b7", 5)):
        for depth in range(1, top + 1):
            yield {"server": server, "depth": depth, "nodes": 3000 // depth,
                   "accepted": 900 // depth**2}  # fmt: skip


def _ranks() -> Iterator[dict[str, Any]]:
    for server in ("ddtree-b15", "ddtree-b7"):
        for rank in range(8):
            yield {"server": server, "rank": rank, "accepted": 1500 // (1 + rank) ** 3}


def _cost(config: Config) -> Iterator[dict[str, Any]]:
    for name, server in config.servers.items():
        yield {
            "server": name,
            "concurrency": 1,
            "algorithm": server.algorithm,
            "verify_width": server.verify_width,
            "block_size": server.block_size,
            "step_time_s": STEP_S[name],
            "step_time_low_s": STEP_S[name] * 0.97,
            "step_time_high_s": STEP_S[name] * 1.03,
            "acceptance_length": ACCEPTANCE[name],
            "tok_per_s": _pooled(name),
        }


def _budgets() -> Iterator[dict[str, Any]]:
    for budget in range(1, 16):
        yield {"server": "ddtree-b15", "budget": budget, "acceptance_length": 1 + budget / 6,
               "step_time_s": 0.03 + 0.002 * budget,
               "predicted_speedup": 1.9 - (budget - 9) ** 2 / 100}  # fmt: skip


def _lossless() -> Iterator[dict[str, Any]]:
    for server in ACCEPTANCE:
        same = 40 if server != "ddtree-b7" else 39
        yield {"server": server, "compared": 40, "identical": same, "share": same / 40,
               "first_difference_median": None if same == 40 else 31, "near_ties": 40 - same,
               "regret_faults": 0, "not_judged": 0, "worst_regret_nats": 0.01,
               "near_tie_nats": 0.1, "loops": 1, "empty": 0, "broken": 2, "worse": 0,
               "better": 0, "cut": 9, "longer": 1, "shorter": 0, "verdict": "sound",
               "verdict_detail": ""}  # fmt: skip


def _draws() -> Iterator[dict[str, Any]]:
    for server in ACCEPTANCE:
        for prompt in ("all", "once-upon", "木 & co_1"):
            yield {"server": server, "workload": "drawn", "prompt_id": prompt, "n": 400,
                   "n_reference": 400, "answers": 90, "answers_reference": 88, "prefixes": 7,
                   "tokens": 2400, "chi_square": 31.4, "df": 28, "p_value": 0.30, "p_holm": 1.0,
                   "verdict": "same", "verdict_detail": ""}  # fmt: skip


def _trees() -> Iterator[dict[str, Any]]:
    for server, budget in (("ddtree-b15", 15), ("ddtree-b7", 7)):
        yield {"server": server, "steps": 1000, "nodes_per_step": budget, "root_children": 3.1,
               "deepest": 9, "deepest_accepted": 7, "accepted_per_step": 2.6, "spine_share": 0.4,
               "off_spine_share": 0.2,
               "shape": "a chain in effect: nothing off the spine was accepted"}  # fmt: skip


def _choice() -> Iterator[dict[str, Any]]:
    for split in ("first", "second"):
        for relation, reference in (("equal width", "dflash-b16"), ("best chain", "dflash-b8")):
            yield {"concurrency": 1, "split": split, "candidate": "ddtree-b15", "picked": "true",
                   "picked_on": 20, "relation": relation, "reference": reference, "n_prompts": 20,
                   "n_launches": 1, "speedup": 1.08, "speedup_low": 1.02,
                   "speedup_high": 1.14}  # fmt: skip


def _latency() -> Iterator[dict[str, Any]]:
    for server in ACCEPTANCE:
        for metric in ("ttft_s", "tok_per_s"):
            for share in (0.5, 0.9, 0.99):
                known = share < 0.99
                yield {"server": server, "workload_class": POOLED, "concurrency": 1,
                       "metric": metric, "share": share, "n": 80, "n_questions": 40,
                       "value": 0.0612 if known else None, "low": 0.0571 if known else None,
                       "high": 0.0712 if known else None,
                       "note": "" if known else "40 independent values"}  # fmt: skip


def _crossover() -> Iterator[dict[str, Any]]:
    yield {"server": "ddtree-b15", "classes": "short, longform", "levels": 2, "lowest": 1,
           "highest": 8, "crossover": 5.2, "crossover_low": 4.1,
           "said": "pays up to about 5.2 in flight"}  # fmt: skip


def _quality() -> Iterator[dict[str, Any]]:
    for server in ACCEPTANCE:
        plain = server == "ar"
        shares = {"n": 12, "valid": 9, "share": 0.75, "share_low": 0.468, "share_high": 0.911}
        differences = {
            "difference": 0.0,
            "difference_low": -0.18,
            "difference_high": 0.18,
            "mcnemar_p": 1.0,
        }
        for workload_class, kind in (("short", "number"), ("structured", "json_schema")):
            yield {
                "server": server,
                "workload_class": workload_class,
                "check_kind": kind,
                "pairs": 0 if plain else 12,
                **shares,
                **({} if plain else differences),
            }


def _original(rng: np.random.Generator) -> Iterator[dict[str, Any]]:
    for server in ACCEPTANCE:
        for prompt in ("fibonacci", "quicksort", "two-plus-two"):
            speed = _pooled(server) * rng.uniform(0.5, 1.4)
            yield {"server": server, "prompt_id": prompt, "n": 3, "tok_per_s": speed,
                   "tok_per_s_sd": speed * 0.02, "completion_tokens": 96}  # fmt: skip


def _servers(config: Config, ok: int) -> Iterator[dict[str, Any]]:
    for name, server in config.servers.items():
        yield {
            "server": name,
            "title": server.title or name,
            "engine": server.engine,
            "algorithm": server.algorithm,
            "model": server.model,
            "drafter": server.drafter,
            "block_size": server.block_size,
            "budget": server.budget,
            "topk_cap": server.topk_cap,
            "verify_width": server.verify_width,
            "launches_ok": ok - (ok > 0 and name == "ddtree-b7"),
            "launches_failed": 2 - ok + (ok > 0 and name == "ddtree-b7"),
            "argv": f".venv-reference/bin/python -m ddtree.server --model {server.model} --port 1",
        }


def _cells(config: Config) -> Iterator[dict[str, Any]]:
    for server in config.servers:
        for launch in (1, 2):
            for workload in config.workloads:
                status = Status.OK
                if (server, launch) == ("ddtree-b7", 1):
                    status = Status.NOT_RUN
                elif (server, workload) == ("ddtree-b7", "agentic"):
                    status = Status.DIED_IN_REQUEST
                yield _cell(server, launch, workload, status, status.sentence)


def _cell(
    server: str,
    launch: int,
    workload: str,
    status: Status = Status.OK,
    sentence: str = Status.OK.sentence,
) -> dict[str, Any]:
    started = 1_790_000_000 + 3600 * launch + 60 * len(server)
    return {"server": server, "launch": launch, "workload": workload, "workload_class": workload,
            "concurrency": 1, "repeat": 1, "round": launch, "status": status,
            "sentence": sentence, "started_unix_s": started, "overshoot_tokens": 1,
            "client_cpu_share": 0.03, "joules_per_token": 2.0,
            "flags": "busy_host eager_decode" if workload == "short" else ""}  # fmt: skip


def _failures() -> Iterator[dict[str, Any]]:
    yield {"level": "launch", "server": "ddtree-b7", "launch": 1, "status": Status.OUT_OF_MEMORY,
           "sentence": Status.OUT_OF_MEMORY.sentence, "detail": HOSTILE, "attempt": 1,
           "final": "false", "log_tail": f"allocating\n{HOSTILE}\nOutOfMemoryError"}  # fmt: skip
    yield {"level": "cell", "server": "ddtree-b7", "launch": 2, "workload": "agentic",
           "concurrency": 1, "repeat": 1, "status": Status.DIED_IN_REQUEST,
           "sentence": Status.DIED_IN_REQUEST.sentence, "detail": "exit code −9",
           "attempt": 2, "final": "true"}  # fmt: skip


def _startup() -> Iterator[dict[str, Any]]:
    for launch in (1, 2):
        phases = (("load InventedForCausalLM", 1.0 * launch), ("capture target verify", None))
        for step, (phase, seconds) in enumerate(phases, start=1):
            yield {"server": "dflash-b16", "launch": launch, "step": step, "phase": phase,
                   "elapsed_s": seconds, "used_gib": 0.5, "batch_sizes": "1 2 4"}  # fmt: skip


def _findings() -> Iterator[dict[str, Any]]:
    for level, count in (("launch", 7), ("cell", 2)):
        yield {"level": level, "server": "ddtree-b15", "launch": 1, "code": "eager_decode",
               "sentence": "decode steps ran outside the CUDA graphs", "count": count,
               "detail": HOSTILE}  # fmt: skip


def _telemetry() -> Iterator[dict[str, Any]]:
    for server in ACCEPTANCE:
        place = {"server": server, "launch": 1, "workload": "short", "workload_class": "short",
                 "concurrency": 1, "repeat": 1, "samples": 9}  # fmt: skip
        yield place | {"device": "host", "busy_share": 0.9, "foreign_share": 0.04}
        # as large as an H200's, which the page has to hold; one server's GPU tells no clocks
        clocks = (None,) * 3 if server == "ar" else (1095.0, 1710.0, 1980.0)
        yield place | {
            "device": "GPU-0",
            **_spread("sm_clock_{}_mhz", *clocks),
            **_spread("power_{}_w", 148.0, 456.0, 702.0),
            **_spread("temperature_{}_c", 35.0, 45.0, 66.0),
            **_spread("memory_{}_bytes", 129.25 * 2**30, 131.5 * 2**30, 139.75 * 2**30),
            "throttled_share": 0.0,
        }


def _spread(name: str, low: float | None, mean: float | None, high: float | None) -> dict[str, Any]:
    values = {"low": low, "mean": mean, "high": high}
    return {name.format(which): value for which, value in values.items()}


def _differences() -> Iterator[dict[str, Any]]:
    yield {"server": "ddtree-b15", "reference": "dflash-b16", "fact": "identity.page_size",
           "value": HOSTILE, "reference_value": "1"}  # fmt: skip


def _environment() -> Iterator[dict[str, Any]]:
    facts = {
        "identity.model_path": "models/target",
        "machine.cpu_model": "Invented CPU @ 2.0 GHz",
        "machine.cpu_usable": "2",
        "machine.memory_bytes": str(8 * 2**30),
        "launch.started_unix_s": "1790000000.25",
        "launch.ready_after_s": "3.42",
        "launch.attempt": "1",
        "launch.status": "ok",
        "machine.git_commit": "0123456789abcdef0123456789abcdef01234567",
        "machine.model_sha256": "f" * 64,
        "machine.packages": '{"torch": "2.13", "transformers": "5.0"}',
        "env.OMP_NUM_THREADS": "2",
        "identity.speculative_ngram_capacity": "10000000",
        "startup.parts_s.prefill": "5.91",
    }
    for server in ACCEPTANCE:
        own = {"identity.speculative_num_draft_tokens": None if server == "ar" else "16"}
        for launch in (1, 2):
            for name, value in (facts | own).items():
                if value is not None:
                    yield {"server": server, "launch": launch, "name": name, "value": value}
