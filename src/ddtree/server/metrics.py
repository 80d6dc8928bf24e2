"""Counters over all requests, and the Prometheus page made from them."""

from dataclasses import dataclass, field

from ddtree.server.generation import Generation


@dataclass(slots=True)
class Counters:
    """Sums over finished requests, whichever way they ended; `[streaming]` where split."""

    requests: dict[bool, int] = field(default_factory=lambda: {False: 0, True: 0})
    prompt_tokens: dict[bool, int] = field(default_factory=lambda: {False: 0, True: 0})
    generated_tokens: dict[bool, int] = field(default_factory=lambda: {False: 0, True: 0})
    aborted: int = 0
    verify_steps: int = 0
    flushed_steps: int = 0
    """Verify steps since the last flush; with `flushed_accepted` the mean below."""
    flushed_accepted: int = 0

    def add(self, generation: Generation, aborted: bool) -> None:
        """Count `generation`, which has ended."""
        self.requests[generation.streaming] += 1
        self.prompt_tokens[generation.streaming] += len(generation.input_ids)
        self.generated_tokens[generation.streaming] += len(generation.output_ids)
        self.aborted += int(aborted)
        self.verify_steps += generation.tally.verify_steps
        self.flushed_steps += generation.tally.verify_steps
        self.flushed_accepted += generation.tally.accepted_drafts

    def flush(self) -> None:
        """Start the mean acceptance length anew; the counters go on."""
        self.flushed_steps = 0
        self.flushed_accepted = 0

    def mean_accept_length(self) -> float | None:
        """Tokens a verify step, bonus included, since the last flush; None before any step."""
        if self.flushed_steps == 0:
            return None
        return (self.flushed_accepted + self.flushed_steps) / self.flushed_steps


@dataclass(frozen=True, slots=True)
class Family:
    """One metric: its name after `sglang:`, kind, help, and a value for each set of labels."""

    name: str
    kind: str
    help: str
    values: tuple[tuple[dict[str, str], float], ...]


def prometheus_page(
    counters: Counters, running: int, queued: int, verify_width: int, model: str
) -> str:
    """Counters and gauges in Prometheus' text format, under SGLang's names."""
    plain = {"model_name": model}

    def split(by_streaming: dict[bool, int]) -> tuple[tuple[dict[str, str], float], ...]:
        return tuple(
            ({"is_streaming": str(streaming).lower(), **plain}, value)
            for streaming, value in by_streaming.items()
        )

    def one(value: float) -> tuple[tuple[dict[str, str], float], ...]:
        return ((plain, value),)

    families = [
        Family("num_running_reqs", "gauge", "Requests in the engine.", one(running)),
        Family("num_queue_reqs", "gauge", "Requests waiting.", one(queued)),
        Family("spec_num_draft_tokens", "gauge", "Width of a verify step.", one(verify_width)),
        Family("num_requests_total", "counter", "Ended requests.", split(counters.requests)),
        Family("num_aborted_requests_total", "counter", "Aborted ones.", one(counters.aborted)),
        Family("prompt_tokens_total", "counter", "Prompt tokens.", split(counters.prompt_tokens)),
        Family(
            "generation_tokens_total",
            "counter",
            "Generated tokens of ended requests.",
            split(counters.generated_tokens),
        ),
        Family(
            "spec_verify_calls_total",
            "counter",
            "Verify steps of ended requests.",
            one(counters.verify_steps),
        ),
    ]
    return "".join(map(_family_text, families))


def _family_text(family: Family) -> str:
    name = f"sglang:{family.name}"
    lines = [f"# HELP {name} {family.help}", f"# TYPE {name} {family.kind}"]
    for labels, value in family.values:
        inside = ",".join(f'{key}="{_escaped(text)}"' for key, text in sorted(labels.items()))
        lines.append(f"{name}{{{inside}}} {float(value)}")
    return "\n".join(lines) + "\n"


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
