"""Tables of the set-up, the failures and the provenance."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

import pandas as pd

from ddtree_bench.config import Workload
from ddtree_bench.report.grid import Grid, Row, group, head, number, text
from ddtree_bench.report.tex import Tex, breakable, escape, lines
from ddtree_bench.report.view import View, column
from ddtree_bench.status import Status

_DETAIL_LETTERS = 300
_LOG_LINES = 15
_DIGITS = 16
"""Of a hash, in print."""
_NOT_PRINTED = (
    r"launch\.|startup\.(parts_s|max_running)|machine\.load_average"
    r"|identity\.(served_model_name|host|\w*port|\w*seed)$"
)
"""Facts that are in environment.csv only."""
_LOG_LETTERS = 240
_LAUNCH_FACTS = ("attempt", "status", "started_unix_s", "ready_after_s", "warmup_requests")
_NUMBERS = ("block_size", "budget", "topk_cap", "verify_width", "launches_ok", "launches_failed")


@dataclass(frozen=True, slots=True)
class LogTail:
    """The end of what a failed launch printed."""

    title: Tex
    text: Tex


def servers(view: View) -> Grid:
    """The configured servers."""
    return Grid(
        "tab:servers",
        escape(
            "The servers. Block: tokens of a draft block, the bonus token included. Budget: nodes "
            "of a tree besides its root. Verified: tokens that the target verifies in a step."
        ),
        r"L{24mm}L{24mm}llrrrrrr",
        (
            tuple(
                map(
                    head,
                    ("Name", "Key", "Engine", "Algorithm", "Block", "Budget", "Top-k", "Verified",
                     "Launches", "Failed"),
                )
            ),
        ),
        tuple(
            (
                text(view.title(row["server"])),
                text(row["server"]),
                text(row["engine"]),
                text(row["algorithm"]),
                *(number(column("servers", name), row[name]) for name in _NUMBERS),
            )
            for _, row in view.tables["servers"].iterrows()
        ),
    )  # fmt: skip


def workloads(view: View) -> Grid:
    """What the servers were asked."""
    return Grid(
        "tab:workloads",
        escape(
            "The workloads. Sample: prompts drawn; with c > 1 in flight at least 4 c, as far as "
            "there are so many. Longest: tokens of an answer at most. T: sampling temperature, 0 "
            "being greedy. Repeats: passes over the prompts in each launch. Always: answers were "
            "kept from ending by themselves; such a workload enters no pooled figure and no "
            "judgement."
        ),
        r"L{22mm}lL{42mm}rrrlrr",
        (
            tuple(
                map(
                    head,
                    ("Workload", "Class", "Prompts", "Sample", "Longest", "T", "Route", "In flight",
                     "Repeats"),
                )
            ),
        ),
        tuple(
            (
                text(name),
                text(load.workload_class),
                text(load.prompts),
                text(load.sample),
                text(f"{load.max_new_tokens}, always" if load.ignore_eos else load.max_new_tokens),
                text(f"{load.temperature:g}"),
                text(load.route if load.stream else f"{load.route}, whole"),
                text(_load(load)),
                text(load.repeats),
            )
            for name, load in view.config.workloads.items()
        ),
    )  # fmt: skip


def _load(load: Workload) -> str:
    rates = ", ".join(f"{rate:g}" for rate in load.arrivals_per_s)
    return f"{rates} /s arrive" if rates else ", ".join(map(str, load.concurrency))


def protocol(view: View) -> list[str]:
    """How it was measured, a sentence each."""
    how = view.config.protocol
    cache = "flushed before every cell" if how.flush_cache else "not flushed between cells"
    return [
        *_launches(view),
        *_adaptive(view),
        f"The prefix cache was {cache}.",
        "Warm-up: a request as long as the longest prompt, then, with the fewest and with the most "
        f"requests in flight, {how.warmup.min_requests} to {how.warmup.max_requests} times until "
        f"seconds per token differ from the time before by less than {100 * how.warmup.tolerance:g}"
        " % and the log told of no compilation since; who was not steady at the end is named under "
        "the findings.",
        f"A request was given up after {how.request_timeout_s:g} s of silence; a launch was tried "
        f"{how.attempts} times. Seed {how.seed}.",
    ]


def _launches(view: View) -> Iterator[str]:
    """How often servers were launched, by us or by others."""
    servers = view.config.servers
    others = [view.title(name) for name, server in servers.items() if server.engine == "attach"]
    if len(others) < len(servers):
        whose = "Every other server" if others else "Every server"
        yield (
            f"{whose} was launched {rounds(view)} times, once a round, each second round in "
            "reverse order."
        )
    if others:
        yield (
            f"Measured {rounds(view)} times, but launched by others: {', '.join(others)}. Sessions "
            "on one running process do not show how much its launches differ, so that its "
            "comparisons stay undecided."
        )


def rounds(view: View) -> int:
    """Rounds that were needed; as many as configured if no launch is known."""
    frame = view.tables["environment"]
    told = frame[frame["name"] == "launch.status"]
    needed = told[told["value"] != Status.NOT_NEEDED.value]["launch"]
    return view.config.protocol.launches if needed.empty else int(needed.max())


def _adaptive(view: View) -> Iterator[str]:
    """How the number of rounds came about, if it was not fixed."""
    how, goal = view.config.protocol, view.config.protocol.adaptive
    if goal is not None:
        yield (
            f"{how.launches} to {goal.max_launches} rounds were allowed; they ended one round "
            f"after no interval of a pooled speed-up over {view.baseline} was wider than "
            f"{100 * goal.width:g} % of it any more. {rounds(view)} were needed. Only widths "
            "decided, never what an interval said."
        )


def failures(view: View) -> Grid:
    """Every failed launch, cell and request."""
    frame = view.tables["failures"]
    return Grid(
        "tab:failures",
        escape(
            "Everything that did not end well. An attempt with a star was followed by another one, "
            "whose numbers count. Details are cut at 300 letters."
        ),
        r"lrrL{26mm}L{38mm}L{54mm}",
        (tuple(map(head, ("Level", "Launch", "Attempt", "Where", "What happened", "Detail"))),),
        tuple(_failure_row(view, row) for _, row in frame.iterrows()),
    )


def _failure_row(view: View, row: pd.Series) -> Row:
    place = (view.title(row["server"]), row["workload"], row["prompt_id"])
    attempt = column("failures", "attempt").show(row["attempt"])
    return (
        text(row["level"]),
        number(column("failures", "launch"), row["launch"]),
        text(f"{attempt}*" if row["final"] == "false" else attempt),
        text(" / ".join(part for part in place if part)),
        text(row["sentence"]),
        text(_cut(row["detail"], _DETAIL_LETTERS)),
    )


def log_tails(view: View) -> list[LogTail]:
    """The logs of failed launches, their last lines."""
    return [
        LogTail(
            escape(
                f"{view.title(row['server'])}, launch {row['launch']:.0f}, "
                f"attempt {row['attempt']:.0f}: {row['sentence']}"
            ),
            lines(_tail(row["log_tail"])),
        )
        for _, row in view.failures("launch").iterrows()
        if row["log_tail"]
    ]


def _tail(log: str) -> str:
    last = [line for line in log.splitlines() if line.strip()][-_LOG_LINES:]
    return "\n".join(_cut(line, _LOG_LETTERS) for line in last)


def _cut(value: str, letters: int) -> str:
    return value if len(value) <= letters else value[:letters] + " …"


def launches(view: View) -> Grid:
    """Every launch: when, how often tried, how long it took to be ready."""
    frame = view.tables["environment"]
    facts = frame[frame["name"].str.startswith("launch.")]
    known = facts[["server", "launch"]].drop_duplicates()
    return Grid(
        "tab:launches",
        escape(
            "The launches. Started: UTC. Ready: seconds from start to the first good answer. "
            "Warm-up: requests whose numbers were thrown away."
        ),
        r"L{40mm}rrlrrr",
        (
            tuple(
                map(
                    head,
                    ("Server", "Launch", "Attempt", "Status", "Started", "Ready", "Warm-up"),
                )
            ),
        ),
        tuple(_launch_row(view, facts, row) for _, row in known.iterrows()),
    )


def _launch_row(view: View, facts: pd.DataFrame, launch: pd.Series) -> Row:
    of_it = (facts["server"] == launch["server"]) & (facts["launch"] == launch["launch"])
    return (
        text(view.title(launch["server"])),
        text(f"{launch['launch']:.0f}"),
        *(text(_fact(facts[of_it], name)) for name in _LAUNCH_FACTS),
    )


def _fact(facts: pd.DataFrame, name: str) -> str:
    """A fact's value, a time as UTC; empty if it is not there."""
    found = facts[facts["name"] == f"launch.{name}"]["value"]
    if found.empty:
        return ""
    value = str(found.iloc[0])
    if name == "started_unix_s":
        return datetime.fromtimestamp(float(value), UTC).strftime("%Y-%m-%d %H:%M:%S")
    if name == "ready_after_s":
        return f"{float(value):.1f}"
    return value


def environment(view: View) -> Grid:
    """What was recorded of machine, identity and variables; a common fact is told once."""
    frame = _worth_printing(view.tables["environment"], _plain(view))
    launches = set(zip(frame["server"], frame["launch"], strict=True))
    holders: dict[tuple[str, str], list[tuple[str, float]]] = defaultdict(list)
    for row in frame.to_dict("records"):
        holders[row["name"], row["value"]].append((row["server"], row["launch"]))
    common = [fact for fact, who in holders.items() if len(who) == len(launches)]
    own = [(fact, who) for fact, who in holders.items() if len(who) != len(launches)]
    found: list[Row] = [group("all launches", 2)] if common else []
    found += [(text(name), text(_cut(value, 600))) for name, value in common]
    found += list(_own_facts(view, own, launches))
    return Grid(
        "tab:environment",
        escape(
            "What was recorded of machines, running servers and their variables; a fact that is "
            "the same in all launches is told once. environment.csv has the rest: the seconds of "
            "each start, loads of the moment, ports and seeds, and options of speculative decoding "
            "that no server sets."
        ),
        r"L{64mm}L{93mm}",
        ((head("Fact"), head("Value")),),
        tuple(found),
    )


def _plain(view: View) -> list[str]:
    """Servers that decode plainly."""
    return [name for name, server in view.config.servers.items() if server.algorithm == "AR"]


def _worth_printing(facts: pd.DataFrame, plain: Sequence[str]) -> pd.DataFrame:
    """The facts without those of one moment and those that another table has.

    An option of speculative decoding that all servers have as `plain` ones have it is a default.
    """
    named = facts[~facts["name"].str.match(_NOT_PRINTED)]
    options = named["name"].str.startswith("identity.speculative_")
    of_plain = named["server"].isin(plain)
    values = named[options].groupby("name")["value"].nunique()
    defaults = set(values[values == 1].index) & set(named[options & of_plain]["name"])
    kept: pd.DataFrame = named[~named["name"].isin(defaults)]
    return kept


def _own_facts(
    view: View,
    facts: list[tuple[tuple[str, str], list[tuple[str, float]]]],
    launches: Collection[tuple[str, float]],
) -> Iterator[Row]:
    """Facts of some launches only, under the names of those launches."""
    by_holders: dict[tuple[tuple[str, float], ...], list[tuple[str, str]]] = defaultdict(list)
    for fact, who in facts:
        by_holders[tuple(who)].append(fact)
    for holders, some in by_holders.items():
        yield group(_named(view, holders, launches), 2, "@{}L{158mm}@{}")
        for name, value in some:
            yield text(name), text(_cut(value, 600))


def _named(
    view: View, holders: Sequence[tuple[str, float]], launches: Collection[tuple[str, float]]
) -> str:
    """Launches in words; a server with all of its launches by its name alone."""
    said = []
    for server in dict.fromkeys(name for name, _ in holders):
        mine = [number for name, number in holders if name == server]
        whole = len(mine) == sum(name == server for name, _ in launches)
        numbers = ", ".join(f"{number:.0f}" for number in mine)
        said.append(view.title(server) + ("" if whole else f" launch {numbers}"))
    return "; ".join(said)


def commands(view: View) -> Grid:
    """The command line of every server."""
    rows = view.tables["servers"]
    return Grid(
        "tab:commands",
        escape("Command line of each server's last launch."),
        r"L{28mm}L{124mm}",
        ((head("Server"), head("Command")),),
        tuple(
            (text(view.title(row["server"])), text(_cut(row["argv"], 2000)))
            for _, row in rows.iterrows()
        ),
    )


def hashes(found: Mapping[str, str]) -> Grid:
    """SHA-256 of the tables that the report was made from."""
    cells = [(text(name), text(value[:_DIGITS])) for name, value in found.items()]
    cells += [(text(" "), text(" "))] * (-len(cells) % 2)
    half = len(cells) // 2
    return Grid(
        "tab:hashes",
        escape(
            f"SHA-256 of the tables that this report was made from, the first {_DIGITS} of 64 "
            "digits."
        ),
        r"llll",
        (tuple(map(head, ("Table", "SHA-256", "Table", "SHA-256"))),),
        tuple((*left, *right) for left, right in zip(cells[:half], cells[half:], strict=True)),
    )


def configuration(view: View) -> Tex:
    """What the configuration sets, a line for each server and workload."""
    data = view.config.model_dump(mode="json", by_alias=True, exclude_defaults=True)
    found = []
    for section, value in data.items():
        parts = value if section in ("servers", "workloads") else {"": value}
        for name, part in parts.items():
            key = f"{section}.{name}" if name else section
            found.append(breakable(f"{key}: {json.dumps(part, ensure_ascii=False)}"))
    return Tex("\\newline\n".join(found))
