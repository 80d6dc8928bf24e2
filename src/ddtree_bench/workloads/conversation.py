"""Questions in a row with replies in between; one question is the shortest case."""

from __future__ import annotations

from ddtree_bench.workloads.ask import Asker
from ddtree_bench.workloads.checks import check_answer


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


def judge(asker: Asker) -> None:
    """Let the prompt's check judge the answer to the last turn, if there is one.

    Not while requests are in flight: running code would slow them.
    """
    check, records = asker.prompt.check, asker.records
    if asker.task.workload.ignore_eos:
        return  # it was kept from ending where it wanted to
    if check is None or len(records) < len(asker.prompt.turns) or not records[-1].status.ok:
        return
    record = records[-1]
    run_code = asker.task.workload.run_code
    verdict = check_answer(check, record.text, record.finish_reason, run_code)
    asker.replace_last(record.model_copy(update={"check": verdict}))
