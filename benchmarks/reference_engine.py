"""Speed and acceptance of the reference engine on the eval prompts, against its goals.

Usage: PYTHONPATH=src python benchmarks/reference_engine.py TARGET DRAFTER [--threads 2]

All engines run a prompt in turn before the next prompt, in an order that is mirrored from one
prompt to the next, so that slow drift of the machine falls on all alike. Prints a table and
writes benchmarks/reference_engine.json, and to reference_texts.json plain decoding's tokens and how
many each verify step of the others gave. Takes about 8 minutes on 2 cores.
"""

import argparse
import json
import os
import platform
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import torch
import transformers
from torch import nn

from ddtree.engine import Engine, EngineSpec, Sampling

HERE: Final = Path(__file__).parent
PLAIN: Final = "plain"
CHAIN: Final = "chain 16"
TREE: Final = "tree 15/8"
ARMS: Final[dict[str, dict[str, Any]]] = {
    PLAIN: {"algorithm": "AR"},
    CHAIN: {"algorithm": "DFLASH", "block_size": 16},
    "chain 8": {"algorithm": "DFLASH", "block_size": 8},
    TREE: {"algorithm": "DDTREE", "block_size": 16, "budget": 15, "topk_cap": 8},
    "block 8 tree 7/8": {"algorithm": "DDTREE", "block_size": 8, "budget": 7, "topk_cap": 8},
}
ACCEPTANCE_GOALS: Final = {CHAIN: 2.66, TREE: 3.38}
"""Tokens a verify step that this drafter reached on these prompts when it was trained."""


@dataclass
class Tally:
    """Sums of one arm over prompts; seconds and counts."""

    tokens: int = 0
    wall_s: float = 0.0
    steps: int = 0
    step_tokens: int = 0
    step_s: float = 0.0
    target_s: float = 0.0
    drafter_s: float = 0.0
    texts: list[list[int]] = field(default_factory=list)
    step_lens: list[list[int]] = field(default_factory=list)
    """Tokens of each verify step, a list a text."""

    def summary(self) -> dict[str, float | int | None]:
        """Figures derived from the sums; None where an arm has no verify steps."""
        steps = self.steps if self.steps > 0 else None
        other_s = self.step_s - self.target_s - self.drafter_s
        return {
            "tokens": self.tokens,
            "tok_per_s": self.tokens / self.wall_s,
            "verify_steps": self.steps,
            "acceptance_length": None if steps is None else self.step_tokens / steps,
            "step_ms": None if steps is None else 1e3 * self.step_s / steps,
            "target_share": None if steps is None else self.target_s / self.step_s,
            "drafter_share": None if steps is None else self.drafter_s / self.step_s,
            "other_share": None if steps is None else other_s / self.step_s,
        }


class ModuleClock:
    """Seconds spent inside modules, nested calls counted once."""

    def __init__(self, *modules: nn.Module) -> None:
        self.total_s = 0.0
        self._depth = 0
        self._start_s = 0.0
        for module in modules:
            module.register_forward_pre_hook(self._enter)
            module.register_forward_hook(self._leave)

    def _enter(self, *_: object) -> None:
        if self._depth == 0:
            self._start_s = time.perf_counter()
        self._depth += 1

    def _leave(self, *_: object) -> None:
        self._depth -= 1
        if self._depth == 0:
            self.total_s += time.perf_counter() - self._start_s


class Arm:
    """An engine with clocks on its two models."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.tally = Tally()
        self._inside_target = ModuleClock(engine.target.model)
        drafting = [] if engine.drafter is None else [engine.drafter]
        # The drafter uses the target's head: time in either outside the target's own forward
        # is both clocks' difference.
        self._inside_any = ModuleClock(engine.target.model, engine.target.head, *drafting)

    def run(self, prompt: Sequence[int], max_new_tokens: int) -> None:
        """Generate greedily and add to the tally; the prefill counts for speed only."""
        start_s = time.perf_counter()
        steps = self.engine.generate(prompt, Sampling(max_new_tokens))
        text, lens = [*next(steps).tokens], []
        with self._verify_steps():
            for step in steps:
                text += step.tokens
                if step.accepted_drafts is not None:
                    self.tally.steps += 1
                    self.tally.step_tokens += len(step.tokens)
                    lens.append(len(step.tokens))
        self.tally.wall_s += time.perf_counter() - start_s
        self.tally.tokens += len(text)
        self.tally.texts.append(text)
        self.tally.step_lens.append(lens)

    @contextmanager
    def _verify_steps(self) -> Iterator[None]:
        """Add the block's time, and the models' share of it, to the tally."""
        start_s = time.perf_counter()
        target_s, any_s = self._inside_target.total_s, self._inside_any.total_s
        yield
        spent_s = self._inside_target.total_s - target_s
        self.tally.step_s += time.perf_counter() - start_s
        self.tally.target_s += spent_s
        self.tally.drafter_s += self._inside_any.total_s - any_s - spent_s


def read_prompts(target: Path) -> list[list[int]]:
    """Token ids of every eval prompt as a user turn of the model's own chat template."""
    tokenizer: Any = transformers.AutoTokenizer.from_pretrained(target)
    classes = json.loads((HERE / "eval-prompts.json").read_text(encoding="utf-8"))
    return [
        tokenizer.apply_chat_template(
            [{"role": "user", "content": text}], add_generation_prompt=True, return_dict=True
        )["input_ids"]
        for texts in classes.values()
        for text in texts
    ]


def load_arms(target: Path, drafter: Path, threads: int) -> dict[str, Arm]:
    """One engine an arm, each with its own copy of the models."""
    defaults: dict[str, Any] = {"block_size": None, "budget": None, "topk_cap": None}
    arms = {}
    for name, options in ARMS.items():
        path = None if options["algorithm"] == "AR" else drafter
        spec = EngineSpec(
            target_path=target, drafter_path=path, threads=threads, **(defaults | options)
        )
        arms[name] = Arm(Engine.load(spec))
    return arms


def measure(arms: dict[str, Arm], prompts: list[list[int]], max_new_tokens: int) -> None:
    """Run every prompt on every arm, after a short warm-up."""
    for arm in arms.values():
        list(arm.engine.generate(prompts[0], Sampling(16)))
    for index, prompt in enumerate(prompts):
        order = list(arms.values())
        for arm in order if index % 2 == 0 else reversed(order):
            arm.run(prompt, max_new_tokens)
        print(f"prompt {index + 1} of {len(prompts)}", flush=True)


def report(arms: dict[str, Arm]) -> dict[str, Any]:
    """Figures of all arms, and each goal with its outcome."""
    rows = {name: arm.tally.summary() for name, arm in arms.items()}
    wanted = arms[PLAIN].tally.texts
    for name, arm in arms.items():
        pairs = zip(arm.tally.texts, wanted, strict=True)
        rows[name]["different_texts"] = sum(own != plain for own, plain in pairs)
        rows[name]["speed_vs_plain"] = _ratio(rows[name], rows[PLAIN])
        rows[name]["speed_vs_chain"] = _ratio(rows[name], rows[CHAIN])
    goals = {
        "all texts identical to plain": all(row["different_texts"] == 0 for row in rows.values()),
        "tree ≥ 1.20 × chain": _ratio(rows[TREE], rows[CHAIN]) >= 1.20,
        "outside the models ≤ 5 % of a tree step": (rows[TREE]["other_share"] or 0.0) <= 0.05,
    }
    for name, goal in ACCEPTANCE_GOALS.items():
        reached = rows[name]["acceptance_length"] or 0.0
        goals[f"{name}: {goal} tokens a step ± 2 %"] = abs(reached / goal - 1) <= 0.02
    return {"arms": rows, "goals": goals}


def _ratio(row: dict[str, Any], base: dict[str, Any]) -> float:
    return float(row["tok_per_s"] / base["tok_per_s"])


def write_texts(arms: dict[str, Arm]) -> None:
    """Write what other engines' answers can be held against, step by step."""
    drafted = {name: arm.tally.step_lens for name, arm in arms.items() if name != PLAIN}
    found = {"texts": arms[PLAIN].tally.texts, "step_lens": drafted}
    (HERE / "reference_texts.json").write_text(json.dumps(found) + "\n", encoding="utf-8")


def print_table(figures: dict[str, Any]) -> None:
    """Print an arm a line, then the goals."""
    columns = {
        "tok_per_s": "8.2f",
        "acceptance_length": "8.3f",
        "step_ms": "8.1f",
        "target_share": "8.1%",
        "drafter_share": "8.1%",
        "other_share": "8.1%",
        "different_texts": "8d",
        "speed_vs_plain": "8.3f",
        "speed_vs_chain": "8.3f",
    }
    print(f"{'arm':18}" + "".join(f"{name:>19}" for name in columns))
    for arm, row in figures["arms"].items():
        cells = ["–" if row[c] is None else format(row[c], f) for c, f in columns.items()]
        print(f"{arm:18}" + "".join(f"{cell.strip():>19}" for cell in cells))
    for goal, reached in figures["goals"].items():
        print(f"{'reached' if reached else 'MISSED'}: {goal}")


def main() -> None:
    """Measure, print, write."""
    parser = argparse.ArgumentParser(description=__doc__, allow_abbrev=False)
    parser.add_argument("target", type=Path)
    parser.add_argument("drafter", type=Path)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--max-new-tokens", type=int, default=192)
    parser.add_argument("--prompts", type=int, default=None, help="only the first so many")
    options = parser.parse_args()
    transformers.utils.logging.disable_progress_bar()  # type: ignore[no-untyped-call]  # untyped
    prompts = read_prompts(options.target)[: options.prompts]
    arms = load_arms(options.target, options.drafter, options.threads)
    measure(arms, prompts, options.max_new_tokens)
    figures = report(arms) | {
        "conditions": {
            "prompts": len(prompts),
            "max_new_tokens": options.max_new_tokens,
            "threads": options.threads,
            "omp_wait_policy": os.environ.get("OMP_WAIT_POLICY"),
            "dtype": "float32",
            "torch": torch.__version__,
            "transformers": transformers.__version__,
            "python": platform.python_version(),
            "machine": platform.machine(),
        },
    }
    text = json.dumps(figures, indent=2, ensure_ascii=False)
    (HERE / "reference_engine.json").write_text(text + "\n", encoding="utf-8")
    write_texts(arms)
    print_table(figures)


if __name__ == "__main__":
    main()
