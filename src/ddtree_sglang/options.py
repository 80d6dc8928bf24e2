"""The tree's size: budget, candidates a depth, and whether single steps are traced.

Flags are written into the environment, which SGLang's scheduler processes inherit: a registered
algorithm has no fields of its own in SGLang's arguments.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping, MutableMapping
from dataclasses import dataclass
from typing import Final

ALGORITHM: Final = "DDTREE"
BUDGET_ENV: Final = "SGLANG_DDTREE_BUDGET"
TOPK_ENV: Final = "SGLANG_DDTREE_TOPK_CAP"
TRACE_ENV: Final = "SGLANG_DDTREE_TRACE"
BUDGET_FLAG: Final = "--speculative-ddtree-budget"
TOPK_FLAG: Final = "--speculative-ddtree-topk-cap"
TRACE_FLAG: Final = "--speculative-ddtree-trace"
DEFAULT_BUDGET: Final = 15
"""Verifies 16 tokens a request, as a chain of the usual block does."""
DEFAULT_TOPK: Final = 8
MAX_BUDGET: Final = 255
"""The kernel packs a node's number, order, depth and rank into 31 bits."""
MAX_TOPK: Final = 64
"""More candidates a depth than any budget up to `MAX_BUDGET` was seen to use."""


@dataclass(frozen=True, slots=True)
class TreeOptions:
    """Sizes of every tree of a server.

    Attributes:
        budget: nodes besides the root, B.
        topk: candidates a depth, K.
        trace: whether answers carry each step's tree.
    """

    budget: int = DEFAULT_BUDGET
    topk: int = DEFAULT_TOPK
    trace: bool = False

    def __post_init__(self) -> None:
        _check_range(BUDGET_FLAG, BUDGET_ENV, self.budget, MAX_BUDGET)
        _check_range(TOPK_FLAG, TOPK_ENV, self.topk, MAX_TOPK)

    @property
    def width(self) -> int:
        """N, tokens that the target verifies a request: the budget and the root."""
        return self.budget + 1


def _check_range(flag: str, variable: str, value: int, highest: int) -> None:
    if not 1 <= value <= highest:
        raise ValueError(f"{flag} ({variable}) must be 1 to {highest}, got {value}")


def read_options(environ: Mapping[str, str]) -> TreeOptions:
    """The options of an environment; raises ValueError for a value that is none."""
    return TreeOptions(
        budget=_whole_number(environ, BUDGET_ENV, DEFAULT_BUDGET),
        topk=_whole_number(environ, TOPK_ENV, DEFAULT_TOPK),
        trace=_whole_number(environ, TRACE_ENV, 0) != 0,
    )


def _whole_number(environ: Mapping[str, str], name: str, default: int) -> int:
    text = environ.get(name, "")
    if text == "":
        return default
    try:
        return int(text)
    except ValueError:
        raise ValueError(f"{name} must be a whole number, got {text!r}") from None


def add_flags(parser: argparse.ArgumentParser) -> None:
    """Add the flags to SGLang's parser; one that is not given changes nothing."""
    group = parser.add_argument_group("DDTREE")
    group.add_argument(
        BUDGET_FLAG,
        type=int,
        metavar="B",
        help=f"Nodes of the draft tree besides its root (default: {DEFAULT_BUDGET}); "
        "B + 1 tokens are verified a step.",
    )
    group.add_argument(
        TOPK_FLAG,
        type=int,
        metavar="K",
        help=f"The drafter's candidates a depth (default: {DEFAULT_TOPK}); 1 gives a chain.",
    )
    group.add_argument(
        TRACE_FLAG,
        action="store_true",
        default=None,
        help="Put each step's tree into meta_info.ddtree_trace; costs time.",
    )


def publish_flags(given: argparse.Namespace, environ: MutableMapping[str, str]) -> None:
    """Write the flags that were given into the environment; they win over what it held."""
    values = {
        BUDGET_ENV: getattr(given, "speculative_ddtree_budget", None),
        TOPK_ENV: getattr(given, "speculative_ddtree_topk_cap", None),
        TRACE_ENV: getattr(given, "speculative_ddtree_trace", None),
    }
    environ.update({name: str(int(value)) for name, value in values.items() if value is not None})
