"""Tensor parallel 2 against 1, on two GPUs: same answers, same acceptance; models of `padding`."""

from __future__ import annotations

import tempfile
from pathlib import Path

from asking import Answer, eval_questions
from padding import pad_heads
from run import Run
from sameness import acceptance, judge_differences
from servers import JsonObject, Launch, Plan

PLAIN = "ar-tp2"
TOKENS = 192
TOLERANCE = 0.03


def plans(launch: Launch) -> list[Plan]:
    """Plain decoding and the tree on two ranks, and the tree on one; writes the padded models."""
    folder = Path(tempfile.mkdtemp(prefix="ddtree-padded-"))
    target = pad_heads(Path(launch.target), folder / "target")
    drafter = pad_heads(Path(launch.drafter), folder / "drafter")
    padded = Launch(launch.target, str(drafter), launch.out)
    model, two = ("--model-path", str(target)), ("--tp-size", "2")
    return [
        Plan(PLAIN, (*model, *two)),
        Plan("dflash-tp2", padded.chain(16, *model, *two).args),
        Plan("ddtree-tp2", padded.tree(15, 8, 16, *model, *two).args),
        Plan("ddtree-tp1", padded.tree(15, 8, 16, *model).args),
    ]


def compare(run: Run) -> JsonObject:
    """Answers of all, and acceptance of two ranks against one."""
    servers = run.servers(PLAIN, "dflash-tp2", "ddtree-tp2", "ddtree-tp1")
    questions = eval_questions(run.target)
    answers: dict[str, list[Answer]] = {}
    for server in servers:
        server.warm(questions, 8)
        answers[server.name] = server.loop(questions, 1, TOKENS).answers
        server.loop(questions, 8, TOKENS)
    two, one = (acceptance(answers[name]) for name in ("ddtree-tp2", "ddtree-tp1"))
    run.report.check("two ranks accept as one", abs(two / one - 1) <= TOLERANCE, [two, one])
    return {
        "acceptance": {name: acceptance(given) for name, given in answers.items()},
        "losslessness": judge_differences(run, questions, answers, PLAIN),
    }
