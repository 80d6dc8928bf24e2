"""One request on its way through the engine: what came out of it, when, and how it ended."""

from collections.abc import Callable
from dataclasses import dataclass, field

from ddtree.engine import Sampling, Step, TokenLogProbs
from ddtree.server.clock import now_s
from ddtree.server.errors import EngineFailure, JsonObject
from ddtree.server.tally import Tally
from ddtree.server.text import OutputText


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The answer after one step; `finish` is set on the last one."""

    text: str
    output_ids: tuple[int, ...]
    finish: JsonObject | None


Event = Snapshot | EngineFailure


@dataclass(slots=True)
class Times:
    """Unix times of a request's stations; None = not reached."""

    received_s: float
    queued_s: float
    started_s: float | None = None
    first_token_s: float | None = None
    finished_s: float | None = None


@dataclass(slots=True, eq=False)
class Generation:
    """One request. The worker's thread writes it; `deliver` hands each event to its reader.

    Its reader may use `tally` and `times` once it has the last event.
    """

    rid: str
    input_ids: tuple[int, ...]
    sampling: Sampling
    text: OutputText
    streaming: bool
    times: Times
    deliver: Callable[[Event], None]
    top_logprobs: int | None = None
    """Most probable tokens to report beside each token; None = no log-probabilities."""
    tally: Tally = field(default_factory=Tally)
    output_ids: list[int] = field(default_factory=list)
    log_probs: list[TokenLogProbs] = field(default_factory=list)
    """An entry an output id when asked for, else empty."""
    cancelled: str | None = None
    """Why it is to end early; set from any thread, read between steps."""

    def add(self, step: Step) -> Snapshot:
        """Take over what `step` produced; a completed stop string ends the answer."""
        if self.times.first_token_s is None:
            self.times.first_token_s = now_s()
        self.tally.add(step)
        if (stop := self._take_tokens(step)) is not None:
            return self._finished({"type": "stop", "matched": stop})
        if step.finish_reason == "stop":
            return self._finished({"type": "stop", "matched": step.matched_stop})
        if step.finish_reason == "length":
            return self._finished({"type": "length", "length": len(self.output_ids)})
        return Snapshot(self.text.visible(finished=False), tuple(self.output_ids), None)

    def _take_tokens(self, step: Step) -> str | None:
        """Append the tokens of `step`, up to one that completes a stop string; return that."""
        # A matched stop token is in the ids but gives no text, special or not.
        silent = None if step.matched_stop is None else len(step.tokens) - 1
        for index, token in enumerate(step.tokens):
            self.output_ids.append(token)
            if step.log_probs is not None:
                self.log_probs.append(step.log_probs[index])
            stop = None if index == silent else self.text.push(token)
            if stop is not None:
                return stop
        return None

    def abort(self, message: str) -> Snapshot:
        """End the answer where it is."""
        return self._finished({"type": "abort", "message": message})

    def _finished(self, finish: JsonObject) -> Snapshot:
        self.times.finished_s = now_s()
        return Snapshot(self.text.visible(finished=True), tuple(self.output_ids), finish)
