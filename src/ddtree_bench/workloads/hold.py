"""Which way a prompt is asked: as questions in a row, as a tool loop, or as a replay of calls."""

from __future__ import annotations

from ddtree_bench.config import Workload
from ddtree_bench.prompts import Prompt
from ddtree_bench.workloads.ask import Asker
from ddtree_bench.workloads.conversation import converse
from ddtree_bench.workloads.openai_tools import run_openai_tools
from ddtree_bench.workloads.replay import replay_calls
from ddtree_bench.workloads.tool_loop import run_tools


def hold(asker: Asker) -> None:
    """Hold the conversation of the asker's prompt to its end."""
    if asker.prompt.tools:
        by_server = asker.task.workload.tool_route == "openai"
        (run_openai_tools if by_server else run_tools)(asker)
    elif asker.prompt.recorded_calls:
        replay_calls(asker)
    else:
        converse(asker)


def most_requests(prompt: Prompt, workload: Workload) -> int:
    """Requests of one pass over a prompt if its loops run to their step limit."""
    if prompt.tools:
        return workload.max_steps
    steps = [len(calls) + 1 for calls in prompt.recorded_calls]
    return sum(min(n, workload.max_steps) for n in steps) if steps else len(prompt.turns)
