"""Which answers of a cell are what their prompts asked for; looked at when all have arrived.

Not while a cell is measured: parsing and running code would take CPU time from client and server.
"""

from __future__ import annotations

from collections.abc import Sequence

from ddtree_bench.prompts import Prompt, PythonTestsCheck
from ddtree_bench.records import RequestRecord
from ddtree_bench.workloads.ask import CellTask
from ddtree_bench.workloads.checks import check_answer
from ddtree_bench.workloads.run_code import require_isolation


def require_judges(task: CellTask) -> None:
    """Raise MachineError if code is to be run and cannot be kept off the network here."""
    if any(isinstance(prompt.check, PythonTestsCheck) for prompt in task.prompts):
        require_isolation(task.workload.run_code)


def judged(task: CellTask, records: Sequence[RequestRecord]) -> tuple[RequestRecord, ...]:
    """The records, the answer that ends a conversation with the verdict of its prompt's check.

    An answer that was kept from ending where it wanted to (`ignore_eos`) is not judged.
    """
    prompts = {prompt.id: prompt for prompt in task.prompts}
    last_turn = {record.prompt_id: record.turn for record in records}
    return tuple(
        _judged(task, prompts[record.prompt_id], record)
        if record.turn == last_turn[record.prompt_id] and not task.workload.ignore_eos
        else record
        for record in records
    )


def _judged(task: CellTask, prompt: Prompt, record: RequestRecord) -> RequestRecord:
    """The last record of a conversation, judged if it answers the last turn."""
    if prompt.check is None or record.turn < len(prompt.turns) - 1 or not record.status.ok:
        return record
    run_code = task.workload.run_code
    verdict = check_answer(prompt.check, record.text, record.finish_reason, run_code)
    return record.model_copy(update={"check": verdict})
