"""Plain, chain and tree decoding of one request.

A chain is the tree that one candidate a depth gives, so both share every line below.
Shape letters: L depths, N nodes with the root, V vocabulary, F features, b block size.
"""

import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, Literal

import torch
from torch import Tensor

from ddtree.drafter import Drafter, DrafterCache
from ddtree.sampling import Picker, Sampling, top_log_probs
from ddtree.target import Scored, Target, commit
from ddtree.tree import ROOT, DraftTree, build_tree, spine_nodes

FinishReason = Literal["stop", "length"]


@dataclass(frozen=True, slots=True)
class StepTree:
    """The shape of one verify step's tree and how far it was followed; the root never counts.

    Attributes:
        nodes_by_depth: drafted nodes at depth 1, 2, …; no entry for depths without nodes.
        accepted_ranks: rank of the accepted node at depth 1, 2, …, before any cut.
        accepted_nodes: its place in the order in which the tree grew, from 1. The tree of a
            smaller budget is this one's beginning, so that these tell what it would have accepted.
        spine_nodes: drafted nodes whose rank path is all 0.
    """

    nodes_by_depth: tuple[int, ...]
    accepted_ranks: tuple[int, ...]
    accepted_nodes: tuple[int, ...]
    spine_nodes: int


@dataclass(frozen=True, slots=True)
class StepTrace:
    """One verify step in full, for drawing a real tree; node 0 is the root.

    Attributes:
        tokens: token id of each node.
        parents: index of each node's parent, −1 for the root.
        log_probs: nats, the drafter's log-probability of each node's prefix, 0 for the root.
        path: accepted nodes from the root down, before any cut.
    """

    tokens: tuple[int, ...]
    parents: tuple[int, ...]
    log_probs: tuple[float, ...]
    path: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class TokenLogProbs:
    """What the target thought of one generated token, in nats at temperature 1.

    Attributes:
        log_prob: of the token itself.
        top: most probable ids with their log-probabilities, best first.
    """

    log_prob: float
    top: tuple[tuple[int, float], ...]


@dataclass(frozen=True, slots=True)
class Step:
    """Tokens that one forward of the target produced, the bonus token included, after cuts.

    Attributes:
        tokens: ids in order, at least one.
        accepted_drafts: drafts accepted before any cut; None for the prefill's step and for
            plain decoding.
        tree: None where `accepted_drafts` is.
        finish_reason: set on the last step.
        matched_stop: the id that ended the text, if one did.
        trace: only when asked for.
        log_probs: an entry a token, only when asked for.
        drafting_s: seconds from the bonus token to the grown tree; 0 where nothing is drafted.
            No part of equality: the same step takes another time.
    """

    tokens: tuple[int, ...]
    accepted_drafts: int | None
    tree: StepTree | None
    finish_reason: FinishReason | None
    matched_stop: int | None
    trace: StepTrace | None = None
    log_probs: tuple[TokenLogProbs, ...] | None = None
    drafting_s: float = field(default=0.0, compare=False)


@dataclass(frozen=True, slots=True)
class Drafting:
    """How draft trees are made: block size b, nodes besides the root, candidates a depth."""

    block_size: int
    budget: int
    topk: int


@dataclass(frozen=True, slots=True)
class Reporting:
    """What steps carry besides tokens: this many top log-probabilities (0: none), the tree."""

    top_logprobs: int = 0
    trace: bool = False


class Ending:
    """Cuts each step's tokens where the text ends."""

    def __init__(self, sampling: Sampling, eos: frozenset[int]) -> None:
        stops = eos.union(sampling.stop_token_ids)
        self._stops: Final = frozenset[int]() if sampling.ignore_eos else stops
        self._left = sampling.max_new_tokens

    def cut(self, tokens: Sequence[int]) -> tuple[tuple[int, ...], FinishReason | None, int | None]:
        """Return what is kept of `tokens`, why the text ends here, and the stop id found.

        A stop id is kept as the last token. Of a stop id and the length limit the first counts;
        where both fall on one token the text ends by the stop id.
        """
        kept = tuple(tokens[: self._left])
        self._left -= len(kept)
        for index, token in enumerate(kept):
            if token in self._stops:
                return kept[: index + 1], "stop", token
        return kept, "length" if self._left == 0 else None, None


def decode_plain(
    target: Target, prompt: Sequence[int], pick: Picker, ending: Ending, report: Reporting
) -> Iterator[Step]:
    """Yield a step a token."""
    cache = target.new_cache()
    tokens: Sequence[int] = prompt
    finish: FinishReason | None = None
    while finish is None:
        scored = target.extend(tokens, cache)
        step = _single_token_step(scored, pick, ending, report)
        yield step
        tokens, finish = step.tokens, step.finish_reason


def decode_drafted(
    target: Target,
    drafter: Drafter,
    drafting: Drafting,
    prompt: Sequence[int],
    pick: Picker,
    ending: Ending,
    report: Reporting,
    context_length: int,
) -> Iterator[Step]:
    """Yield the prefill's step, then a step a verify pass."""
    cache, draft_cache = target.new_cache(), DrafterCache()
    scored = target.extend(prompt, cache)
    step = _single_token_step(scored, pick, ending, report)
    yield step
    features = scored.features  # [T, F], of the tokens that the drafter has not seen
    while step.finish_reason is None:
        bonus = step.tokens[-1]
        started_s = time.perf_counter()
        log_probs = draft(target, drafter, drafting.block_size, bonus, features, draft_cache)
        # No node may lie beyond the last position that the target has.
        room = context_length - 1 - cache.get_seq_length()
        tree = build_tree(log_probs[:room], bonus, drafting.budget, drafting.topk)
        drafting_s = time.perf_counter() - started_s
        scored = target.verify(tree, cache)
        path, token = walk(tree, scored.logits, pick)
        commit(cache, path, len(tree))
        features = scored.features[path]
        step = _verify_step(tree, path, token, scored.logits, ending, report)
        step = replace(step, drafting_s=drafting_s)
        yield step


@torch.inference_mode()
def draft(
    target: Target,
    drafter: Drafter,
    block_size: int,
    bonus: int,
    features: Tensor,
    cache: DrafterCache,
) -> Tensor:
    """Return `[L, V]` float32 log-probabilities for the L = b − 1 tokens after the bonus token.

    `features`: `[T, F]`, of the tokens since the last call, up to the one before the bonus.
    """
    masked = [drafter.config.dflash_config.mask_token_id] * (block_size - 1)
    block = target.embed(torch.tensor([bonus, *masked]))  # [b, H]
    hidden = drafter(block, features, cache)
    logits: Tensor = target.head(hidden[1:])  # [L, V]
    return logits.float().log_softmax(-1)


def walk(tree: DraftTree, logits: Tensor, pick: Picker) -> tuple[list[int], int]:
    """Return the accepted path, the root first, and the token after it.

    `logits`: `[N, V]`, the target's after each node. Each token is the target's own pick, so the
    text has the target's distribution whatever was drafted; drafts only save forwards.
    """
    children = {
        (parent, token): node
        for node, (parent, token) in enumerate(
            zip(tree.parents.tolist(), tree.tokens.tolist(), strict=True)
        )
    }
    path = [ROOT]
    token = pick(logits[ROOT])
    while (path[-1], token) in children:
        path.append(children[path[-1], token])
        token = pick(logits[path[-1]])
    return path, token


def _single_token_step(scored: Scored, pick: Picker, ending: Ending, report: Reporting) -> Step:
    """Return the step of a forward that scored one token."""
    kept, finish, stop = ending.cut([pick(scored.logits[0])])
    log_probs = _log_probs(scored.logits, kept, report.top_logprobs)
    return Step(kept, None, None, finish, stop, log_probs=log_probs)


def _verify_step(
    tree: DraftTree,
    path: list[int],
    token: int,
    logits: Tensor,
    ending: Ending,
    report: Reporting,
) -> Step:
    """Return the step of a verified tree, its text cut where it ends."""
    kept, finish, stop = ending.cut([*tree.tokens[path[1:]].tolist(), token])
    return Step(
        tokens=kept,
        accepted_drafts=len(path) - 1,
        tree=_step_tree(tree, path),
        finish_reason=finish,
        matched_stop=stop,
        trace=_step_trace(tree, path) if report.trace else None,
        log_probs=_log_probs(logits[path], kept, report.top_logprobs),
    )


def _step_tree(tree: DraftTree, path: list[int]) -> StepTree:
    by_depth = Counter(tree.depths[1:].tolist())
    return StepTree(
        nodes_by_depth=tuple(by_depth[depth + 1] for depth in range(len(by_depth))),
        accepted_ranks=tuple(tree.ranks[path[1:]].tolist()),
        accepted_nodes=tuple(path[1:]),
        spine_nodes=spine_nodes(tree),
    )


def _step_trace(tree: DraftTree, path: list[int]) -> StepTrace:
    return StepTrace(
        tokens=tuple(tree.tokens.tolist()),
        parents=tuple(tree.parents.tolist()),
        log_probs=tuple(tree.scores.tolist()),
        path=tuple(path),
    )


def _log_probs(
    logits: Tensor, tokens: Sequence[int], count: int
) -> tuple[TokenLogProbs, ...] | None:
    """Return an entry for each token; `logits` `[≥ tokens, V]` are those that picked it."""
    if count == 0:
        return None
    rows = logits[: len(tokens)].float().log_softmax(-1)
    return tuple(
        TokenLogProbs(float(row[token]), top_log_probs(row, count))
        for row, token in zip(rows, tokens, strict=True)
    )
