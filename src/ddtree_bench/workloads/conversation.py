"""Questions in a row with replies in between; one question is the shortest case."""

from __future__ import annotations

from ddtree_bench.workloads.ask import Asker


def converse(asker: Asker) -> None:
    """Ask the turns of a prompt one by one; a failed request is the last."""
    messages = asker.opening()
    for turn in asker.prompt.turns:
        if asker.task.should_stop():
            return
        messages.append({"role": "user", "content": turn})
        record = asker.ask(messages)
        if not record.status.ok:
            return
        messages.append({"role": "assistant", "content": asker.reply_to_go_on_with(record)})
