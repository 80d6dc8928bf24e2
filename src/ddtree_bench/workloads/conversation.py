"""Questions in a row, the server's own replies in between; one question is the shortest case."""

from __future__ import annotations

from ddtree_bench.workloads.ask import Asker
from ddtree_bench.workloads.checks import check_answer


def converse(asker: Asker) -> None:
    """Ask the turns of a prompt one by one; a failed request is the last.

    The prompt's check judges the answer to the last turn.
    """
    messages = asker.opening()
    for turn in asker.prompt.turns:
        if asker.task.should_stop():
            return
        messages.append({"role": "user", "content": turn})
        record = asker.ask(messages)
        if not record.status.ok:
            return
        messages.append({"role": "assistant", "content": record.text})
    check = asker.prompt.check
    if check is not None:
        verdict = check_answer(check, record.text, record.finish_reason)
        asker.replace_last(record.model_copy(update={"check": verdict}))
