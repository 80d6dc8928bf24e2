"""A model that calls tools by its own template, and a server that parses its calls."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from ddtree_bench.client.client import ChatMessage
from ddtree_bench.records import Check, RequestRecord, ToolCall
from ddtree_bench.workloads.ask import Asker
from ddtree_bench.workloads.checks import CUT
from ddtree_bench.workloads.tool_loop import ANSWERED, CHECK_KIND
from ddtree_bench.workloads.tools import TOOLS, Outcome, call_tool


def run_openai_tools(asker: Asker) -> None:
    """Let the model call the prompt's tools until it answers or its steps are used up.

    A reply without a call is the answer and ends the loop; all calls of a reply are run. Every
    reply carries a check: whether all its calls were valid, or it is an answer.
    """
    offered = asker.prompt.tools
    tools = [_described(name) for name in offered]
    messages: list[ChatMessage] = [
        *asker.opening(),
        {"role": "user", "content": asker.prompt.turns[0]},
    ]
    for _ in range(asker.task.workload.max_steps):
        if asker.task.should_stop():
            return
        record = asker.ask(messages, tools)
        if not record.status.ok:
            return
        outcomes = [_outcome(call, offered) for call in record.tool_calls]
        asker.replace_last(record.model_copy(update={"check": _check(record, outcomes)}))
        if not outcomes:
            return
        messages += _exchanged(record, outcomes)


def _described(name: str) -> dict[str, Any]:
    tool = TOOLS[name]
    function = {"name": name, "description": tool.description, "parameters": tool.schema()}
    return {"type": "function", "function": function}


def _outcome(call: ToolCall, offered: Sequence[str]) -> Outcome:
    try:
        arguments = json.loads(call.arguments or "{}")
    except (ValueError, RecursionError):
        arguments = None
    if not isinstance(arguments, dict):
        what = "arguments: a JSON object expected"
        return Outcome(False, what, None, what)
    return call_tool(call.name, arguments, offered)


def _check(record: RequestRecord, outcomes: Sequence[Outcome]) -> Check:
    wrong = next((outcome for outcome in outcomes if not outcome.well_formed), None)
    if wrong is not None:
        return Check(kind=CHECK_KIND, valid=False, detail=wrong.detail)
    if outcomes:
        return Check(kind=CHECK_KIND, valid=True, detail=outcomes[0].detail)
    if record.finish_reason == "length":
        return Check(kind=CHECK_KIND, valid=False, detail=CUT)
    said = bool(record.text.strip())
    return Check(kind=CHECK_KIND, valid=said, detail=ANSWERED if said else "says nothing")


def _exchanged(record: RequestRecord, outcomes: Sequence[Outcome]) -> list[ChatMessage]:
    """The reply with its calls, and what each gave."""
    names = [call.id or f"call-{record.turn}-{n}" for n, call in enumerate(record.tool_calls)]
    calls = [
        {
            "id": name,
            "type": "function",
            "function": {"name": call.name, "arguments": call.arguments or "{}"},
        }
        for name, call in zip(names, record.tool_calls, strict=True)
    ]
    results: list[ChatMessage] = [
        {
            "role": "tool",
            "tool_call_id": name,
            "content": f"Error: {outcome.error}" if outcome.result is None else outcome.result,
        }
        for name, outcome in zip(names, outcomes, strict=True)
    ]
    return [{"role": "assistant", "content": record.text, "tool_calls": calls}, *results]
