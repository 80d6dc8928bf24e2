"""Step time, speed and acceptance of servers that run side by side."""

from __future__ import annotations

from collections.abc import Sequence

from asking import (
    CLASSES,
    TOKENS,
    Answer,
    Loop,
    Question,
    Server,
    class_questions,
    in_turn,
    long_questions,
)
from estimates import Sums, pooled, ratio
from run import Run
from sameness import judge_differences
from servers import CHAIN, TREE, JsonObject

EVAL_SEED, TUNING_SEED = 1, 2
AT_ONCE = (8, 32)
LOOPS_A_CLIENT = {8: 6, 32: 3}
"""Requests a client and class; the last ones, when clients run out of work, weigh less then."""
CONTEXTS = (512, 4096, 8000)
CONTEXT_PROMPTS = 6
WIDE = "ddtree-b63-k8"
BLOCKS = ("dflash-b4", "dflash-b8", CHAIN)
SMALL_TREE, OWN_CHAIN = "ddtree-b7-k8-block8", "ddtree-b15-k1"

Pairs = Sequence[Sequence[Answer]]


# --- sums a prompt


def _both(pairs: Pairs, over: str, under: str) -> Sums:
    """Two quantities of an answer, summed over the answers to a prompt."""
    values = {
        "decoding": lambda a: a.end_s - a.first_s,
        "whole": lambda a: a.end_s - a.sent_s,
        "steps": lambda a: a.steps,
        "later": lambda a: len(a.ids) - 1,
        "tokens": lambda a: len(a.ids),
        "produced": lambda a: a.produced,
    }
    kept = [pair for pair in pairs if all(a.steps > 0 and a.end_s > a.first_s for a in pair)]
    return Sums(
        [sum(values[over](a) for a in pair) for pair in kept],
        [sum(values[under](a) for a in pair) for pair in kept],
    )


def step_times(pairs: Pairs) -> Sums:
    """Seconds a verify step after the first event."""
    return _both(pairs, "decoding", "steps")


def speeds(pairs: Pairs) -> Sums:
    """Tokens a second after the first event."""
    return _both(pairs, "later", "decoding")


def whole_speeds(pairs: Pairs) -> Sums:
    """Tokens a second from sending to the end, prefill included."""
    return _both(pairs, "tokens", "whole")


def acceptances(pairs: Pairs) -> Sums:
    """Tokens a verify step, bonus included."""
    return _both(pairs, "produced", "steps")


def figures(pairs: Pairs) -> JsonObject:
    """Pooled figures of one server."""
    return {
        "step_ms": 1e3 * pooled(step_times(pairs)),
        "tok_per_s": pooled(speeds(pairs)),
        "tok_per_s_with_prefill": pooled(whole_speeds(pairs)),
        "acceptance_length": pooled(acceptances(pairs)),
        "prompts": len(pairs),
    }


# --- parts


def step(run: Run) -> JsonObject:
    """One client, all classes: the tree against the chain of the same width, and a wide tree."""
    servers = run.servers(CHAIN, TREE, WIDE, "ar")
    questions = class_questions(run.target, run.prompts, EVAL_SEED, servers[0])
    _warm(servers, questions, 1)
    found = in_turn(servers, questions, _ask, run.deadline_s)
    asked = questions[: len(found[TREE])]
    result: JsonObject = {name: figures(pairs) for name, pairs in found.items()}
    tree, chain = found[TREE], found[CHAIN]
    run.target_of(
        "step time, tree 15/8 ÷ chain 16, 1 client",
        ratio(step_times(tree), step_times(chain)),
        most=1.05,
    )
    run.target_of(
        "step time, budget 63 ÷ budget 15, 1 client",
        ratio(step_times(found[WIDE]), step_times(tree)),
        most=1.25,
    )
    result["speed"] = _speed_rows(run, asked, tree, chain)
    result["losslessness"] = judge_differences(
        run, asked, {name: [pair[0] for pair in pairs] for name, pairs in found.items()}
    )
    result["raw"] = {name: [_raw(pair) for pair in pairs] for name, pairs in found.items()}
    return result


def control(run: Run) -> JsonObject:
    """What the plug-in's own step is worth without branches: its chain against SGLang's."""
    servers = run.servers(CHAIN, OWN_CHAIN, TREE)
    questions = class_questions(run.target, run.prompts, EVAL_SEED, servers[0])
    _warm(servers, questions, 1)
    found = in_turn(servers, questions, _ask, run.deadline_s)
    chain, own, tree = (found[name] for name in (CHAIN, OWN_CHAIN, TREE))
    return {
        "step time, own chain ÷ SGLang's": str(ratio(step_times(own), step_times(chain))),
        "step time, tree ÷ own chain": str(ratio(step_times(tree), step_times(own))),
        "tok/s, own chain ÷ SGLang's": str(ratio(speeds(own), speeds(chain))),
        "tok/s, tree ÷ own chain": str(ratio(speeds(tree), speeds(own))),
        "acceptance, tree ÷ own chain": str(ratio(acceptances(tree), acceptances(own))),
        "raw": {name: [_raw(pair) for pair in pairs] for name, pairs in found.items()},
    }


def _speed_rows(run: Run, asked: Sequence[Question], tree: Pairs, chain: Pairs) -> JsonObject:
    accepted = ratio(acceptances(tree), acceptances(chain))
    rows: JsonObject = {"acceptance_ratio": str(accepted)}
    run.target_of(
        "tok/s, tree 15/8 ÷ chain 16, 1 client",
        ratio(speeds(tree), speeds(chain)),
        least=0.95 * accepted.value,
    )
    rows["with_prefill"] = str(ratio(whole_speeds(tree), whole_speeds(chain)))
    for name in CLASSES:
        places = [i for i, question in enumerate(asked) if question.group == name]
        some, others = [tree[i] for i in places], [chain[i] for i in places]
        if not places:
            continue
        run.target_of(
            f"tok/s, tree 15/8 ÷ chain 16, 1 client, {name}",
            ratio(speeds(some), speeds(others)),
            least=1.0,
        )
        rows[f"acceptance_ratio {name}"] = str(ratio(acceptances(some), acceptances(others)))
    return rows


def chains(run: Run) -> JsonObject:
    """The best chain, its block chosen on other prompts, against trees of block 16 and 8."""
    servers = run.servers(*BLOCKS, TREE, SMALL_TREE)
    tuning = class_questions(run.target, max(run.prompts // 3, 2), TUNING_SEED, servers[0])
    _warm(servers, tuning, 1)
    blocks = [server for server in servers if server.name in BLOCKS]
    tuned = in_turn(blocks, tuning, _ask, run.deadline_s)
    best = max(BLOCKS, key=lambda name: pooled(speeds(tuned[name])))
    questions = class_questions(run.target, max(run.prompts // 2, 2), EVAL_SEED, servers[0])
    for server in servers:
        for question in questions:
            server.ask_whole(question.ids, 1)
    found = in_turn(servers, questions, _ask, run.deadline_s)
    result: JsonObject = {name: figures(pairs) for name, pairs in found.items()}
    result["tuning_tok_per_s"] = {name: pooled(speeds(tuned[name])) for name in BLOCKS}
    result["best"] = best
    for name in (TREE, SMALL_TREE):
        run.target_of(
            f"tok/s, {name} ÷ best chain ({best}), 1 client",
            ratio(speeds(found[name]), speeds(found[best])),
        )
    run.target_of(
        f"tok/s, {SMALL_TREE} ÷ dflash-b8, 1 client",
        ratio(speeds(found[SMALL_TREE]), speeds(found["dflash-b8"])),
    )
    result["raw"] = {name: [_raw(pair) for pair in pairs] for name, pairs in found.items()}
    return result


def clients(run: Run) -> JsonObject:
    """Several clients: tree and chain in blocks of one class, forwards and backwards."""
    tree, chain = run.servers(TREE, CHAIN)
    questions = class_questions(run.target, max(run.prompts, 8), EVAL_SEED, chain)
    _warm((tree, chain), questions, max(AT_ONCE))
    result: JsonObject = {}
    for at_once in AT_ONCE:
        loops: dict[str, list[Loop]] = {tree.name: [], chain.name: []}
        for name in CLASSES:
            some = [question for question in questions if question.group == name]
            load = [some[i % len(some)] for i in range(at_once * LOOPS_A_CLIENT[at_once])]
            for server in (chain, tree, tree, chain):
                loops[server.name].append(server.loop(load, at_once))
            if run.is_late():
                break
        result[f"{at_once} clients"] = _loop_rows(run, at_once, loops[tree.name], loops[chain.name])
    return result


def _loop_rows(run: Run, at_once: int, tree: Sequence[Loop], chain: Sequence[Loop]) -> JsonObject:
    def speed(loops: Sequence[Loop]) -> Sums:
        return Sums([sum(len(a.ids) for a in x.answers) for x in loops], [x.wall_s for x in loops])

    def accepted(loops: Sequence[Loop]) -> Sums:
        return Sums(
            [sum(a.produced for a in x.answers) for x in loops],
            [sum(a.steps for a in x.answers) for x in loops],
        )

    def step_s(loops: Sequence[Loop]) -> Sums:
        """Wall × clients ÷ steps: seconds a step of one request, waiting and prefill included."""
        return Sums([x.wall_s * at_once for x in loops], accepted(loops).under)

    gained = ratio(accepted(tree), accepted(chain))
    run.target_of(
        f"tok/s, tree 15/8 ÷ chain 16, {at_once} clients",
        ratio(speed(tree), speed(chain)),
        least=0.92 * gained.value,
    )
    rows: JsonObject = {
        "acceptance_ratio": str(gained),
        "step_ratio": str(ratio(step_s(tree), step_s(chain))),
    }
    for name, loops in (("tree", tree), ("chain", chain)):
        rows[name] = {
            "tok_per_s": pooled(speed(loops)),
            "acceptance_length": pooled(accepted(loops)),
            "step_ms": 1e3 * pooled(step_s(loops)),
        }
    for place, name in enumerate(CLASSES[: len(tree) // 2]):
        some, others = tree[2 * place : 2 * place + 2], chain[2 * place : 2 * place + 2]
        rows[name] = {
            "tok_per_s_ratio": pooled(speed(some)) / pooled(speed(others)),
            "acceptance_ratio": pooled(accepted(some)) / pooled(accepted(others)),
        }
    return rows


def context(run: Run) -> JsonObject:
    """One client behind long prompts: attention reads the prefix once for all nodes."""
    servers = run.servers(CHAIN, TREE)
    result: JsonObject = {}
    for length in CONTEXTS:
        questions = long_questions(run.target, length, CONTEXT_PROMPTS)
        for server in servers:
            for question in questions:
                server.ask_whole(question.ids, 8)
        found = in_turn(servers, questions, _ask_on, run.deadline_s)
        if not found[TREE]:
            break
        result[str(length)] = {name: figures(pairs) for name, pairs in found.items()}
        run.target_of(
            f"step time, tree 15/8 ÷ chain 16, {length} tokens of context",
            ratio(step_times(found[TREE]), step_times(found[CHAIN])),
            most=1.08,
        )
    return result


def _ask(server: Server, question: Question) -> Answer:
    return server.ask(question.ids, TOKENS)


def _ask_on(server: Server, question: Question) -> Answer:
    """Goes on after the end of the text, so that every answer has many steps."""
    return server.ask(question.ids, TOKENS, ignore_eos=True)


def _warm(servers: Sequence[Server], questions: Sequence[Question], clients: int) -> None:
    for server in servers:
        server.warm(questions, clients)


def _raw(pair: Sequence[Answer]) -> list[list[float]]:
    """Steps, produced tokens, tokens, seconds to the first event, seconds after it."""
    return [
        [
            a.steps,
            a.produced,
            len(a.ids),
            round(a.first_s - a.sent_s, 6),
            round(a.end_s - a.first_s, 6),
        ]
        for a in pair
    ]
