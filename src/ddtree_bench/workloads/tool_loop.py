"""A model that calls tools in plain text until it answers.

The calls are JSON in the text, so that every engine and chat template can take part; a server's own
tool parser would have to know each model. A worked call of each tool opens the conversation: small
models copy its form, which is what makes them go through several steps.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from ddtree_bench.client.client import ChatMessage
from ddtree_bench.records import Check
from ddtree_bench.workloads.ask import Asker
from ddtree_bench.workloads.checks import CUT, after_thinking, fenced
from ddtree_bench.workloads.tools import TOOLS, call_tool

CHECK_KIND: Final = "tool_call"
ANSWERED: Final = "answer"
"""Detail of the check of a reply that ends a loop as it should."""

CORRECTION: Final = (
    "That is no call. Reply with one JSON object and nothing else: "
    '{"tool": "NAME", "arguments": {...}} or {"answer": "TEXT"}.'
)

_INSTRUCTIONS: Final = (
    "You solve tasks with tools. Every reply is one JSON object and nothing else.\n"
    'To use a tool, reply {"tool": "NAME", "arguments": {...}}. '
    "The user then sends its result.\n"
    'When you know the answer, reply {"answer": "TEXT"}.\n'
    "Tools:"
)


@dataclass(frozen=True, slots=True)
class Call:
    """The model wants a tool's result."""

    tool: str
    arguments: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Solution:
    """The model has answered; the loop is over."""

    text: str


@dataclass(frozen=True, slots=True)
class _Step:
    """What a reply comes to: its check, and what the user says next (None ends the loop)."""

    valid: bool
    detail: str
    next_message: str | None
    readable: bool = True


def run_tools(asker: Asker) -> None:
    """Let the model call the prompt's tools until it answers or its steps are used up.

    The first reply that is no call is corrected once, the second ends the loop; a call of an
    unknown tool or with wrong arguments is answered with the error. Every reply carries a check:
    whether it was a valid call or answer.
    """
    messages = _opening(asker)
    corrected = False
    for _ in range(asker.task.workload.max_steps):
        if asker.task.should_stop():
            return
        record = asker.ask(messages)
        if not record.status.ok:
            return
        step = _step(record.text, record.finish_reason, asker.prompt.tools)
        check = Check(kind=CHECK_KIND, valid=step.valid, detail=step.detail)
        asker.replace_last(record.model_copy(update={"check": check}))
        said = asker.reply_to_go_on_with(record)
        if said != record.text:
            step = _step(said, None, asker.prompt.tools)
        if step.next_message is None or (corrected and not step.readable):
            return
        corrected = corrected or not step.readable
        messages.append({"role": "assistant", "content": said})
        messages.append({"role": "user", "content": step.next_message})


def parse_reply(text: str) -> Call | Solution | None:
    """The call or answer that a reply opens with; None if it is neither.

    >>> parse_reply('{"answer": "42"} Glad to help!')
    Solution(text='42')
    """
    body = fenced(after_thinking(text))
    try:
        data, _ = json.JSONDecoder().raw_decode(body)
    except (ValueError, RecursionError):
        return None
    match data:
        case {"tool": str(tool), "arguments": dict(arguments)}:
            return Call(tool, arguments)
        case {"answer": str() | int() | float() as answer}:
            return Solution(str(answer))
    return None


def _step(text: str, finish_reason: str | None, tools: Sequence[str]) -> _Step:
    match parse_reply(text):
        case Solution():
            return _Step(True, ANSWERED, None)
        case Call(tool=tool, arguments=arguments):
            return _called(tool, arguments, tools)
    detail = CUT if finish_reason == "length" else "neither a call nor an answer"
    return _Step(False, detail, CORRECTION, readable=False)


def _called(tool: str, arguments: Mapping[str, Any], tools: Sequence[str]) -> _Step:
    outcome = call_tool(tool, arguments, tools)
    said = f"Result: {outcome.result}"
    if outcome.error is not None:
        said = f"Error: {outcome.error}. Reply with a corrected call."
    return _Step(outcome.well_formed, outcome.detail, said)


def _opening(asker: Asker) -> list[ChatMessage]:
    names = asker.prompt.tools
    lines = [f"- {name}: {TOOLS[name].description}" for name in names]
    system = "\n".join([*filter(None, [asker.prompt.system]), _INSTRUCTIONS, *lines])
    messages: list[ChatMessage] = [{"role": "system", "content": system}]
    for name in names:
        messages += _example(name)
    messages.append({"role": "user", "content": f"Task: {asker.prompt.turns[0]}"})
    return messages


def _example(name: str) -> list[ChatMessage]:
    """A task, the call that solves it, its result and the answer."""
    tool = TOOLS[name]
    result = tool.function(tool.check(tool.example_arguments))
    return [
        {"role": "user", "content": f"Task: {tool.example_task}"},
        {
            "role": "assistant",
            "content": json.dumps({"tool": name, "arguments": tool.example_arguments}),
        },
        {"role": "user", "content": f"Result: {result}"},
        {"role": "assistant", "content": json.dumps({"answer": result})},
    ]
