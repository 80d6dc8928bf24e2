"""A conversation whose calls have recorded results: what they gave when the prompts were made.

Nothing is run. Each step asks for the next call; the right one is answered with its recorded
result. After a wrong reply the conversation goes on as if the right call had been made, so that
what follows, and the results in it, fit together, and every step is judged by itself.
"""

from __future__ import annotations

import json
from typing import Final

from ddtree_bench.prompts import RecordedCall
from ddtree_bench.records import Check
from ddtree_bench.workloads.ask import Asker
from ddtree_bench.workloads.checks import CUT, is_call
from ddtree_bench.workloads.tool_loop import ANSWERED, Call, Solution, parse_reply

CHECK_KIND: Final = "replayed_calls"
_ANSWER: Final = json.dumps({"answer": "Done."})


def replay_calls(asker: Asker) -> None:
    """Ask the turns; in each, for every recorded call and then for an answer.

    A turn ends after `max_steps` requests; calls that are left then are told, not asked.
    """
    messages = asker.opening()
    for turn, calls in zip(asker.prompt.turns, asker.prompt.recorded_calls, strict=True):
        messages.append({"role": "user", "content": turn})
        for step, call in enumerate((*calls, None)):
            said = None
            if step < asker.task.workload.max_steps:
                if asker.task.should_stop():
                    return
                record = asker.ask(messages)
                if not record.status.ok:
                    return
                fault = _fault(record.text, call, record.finish_reason)
                detail = fault or (ANSWERED if call is None else f"call of {call.tool}")
                check = Check(kind=CHECK_KIND, valid=fault is None, detail=detail)
                asker.replace_last(record.model_copy(update={"check": check}))
                said = asker.reply_to_go_on_with(record)
            if said is None or _fault(said, call) is not None:
                said = _right_reply(call)
            messages.append({"role": "assistant", "content": said})
            if call is not None:
                messages.append({"role": "user", "content": f"Result: {call.result}"})


def _fault(
    text: str, expected: RecordedCall | None, finish_reason: str | None = None
) -> str | None:
    """What is wrong with a reply; `expected` None: it should be an answer."""
    match parse_reply(text), expected:
        case Solution(), None:
            return None
        case Call(tool=tool, arguments=arguments), RecordedCall():
            right = is_call(expected, tool, arguments)
            return None if right else f"the call of {tool!r} is not the one expected"
        case Call(tool=tool), None:
            return f"calls {tool!r} where an answer is due"
        case Solution(), RecordedCall():
            return f"answers where {expected.tool!r} is to be called"
    return CUT if finish_reason == "length" else "neither a call nor an answer"


def _right_reply(call: RecordedCall | None) -> str:
    """The reply that was due: the call with what must be in it, or an answer."""
    if call is None:
        return _ANSWER
    needed = (item for item in call.arguments.items() if "" not in item[1])
    arguments = {name: values[0] for name, values in needed}
    return json.dumps({"tool": call.tool, "arguments": arguments})
