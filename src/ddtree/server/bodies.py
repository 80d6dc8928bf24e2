"""Answer bodies in SGLang's shapes."""

import json
from collections.abc import Iterator, Sequence
from typing import Final

from ddtree.engine import TokenLogProbs
from ddtree.server.clock import now_s
from ddtree.server.errors import JsonObject
from ddtree.server.generation import Generation, Snapshot
from ddtree.server.schema import StreamOptions
from ddtree.server.text import Decoder
from ddtree.server.worker import EngineLike

WEIGHT_VERSION: Final = "default"
DONE: Final = b"data: [DONE]\n\n"


def sse(body: JsonObject) -> bytes:
    """One server-sent event."""
    return b"data: " + to_json(body) + b"\n\n"


def to_json(body: object) -> bytes:
    """Compact UTF-8 JSON; raises ValueError for NaN or infinity."""
    text = json.dumps(body, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return text.encode()


def generate_body(engine: EngineLike, generation: Generation, answer: Snapshot) -> JsonObject:
    """Body of `/generate`, and of each of its events: all is cumulative."""
    return {
        "text": answer.text,
        "output_ids": list(answer.output_ids),
        "meta_info": meta_info(engine, generation, answer),
    }


def meta_info(engine: EngineLike, generation: Generation, answer: Snapshot) -> JsonObject:
    """Facts about a request; those that need its end come with the last event only."""
    times = generation.times
    tokens = len(answer.output_ids)
    info: JsonObject = {
        "id": generation.rid,
        "finish_reason": answer.finish,
        "prompt_tokens": len(generation.input_ids),
        "weight_version": WEIGHT_VERSION,
        "num_retractions": 0,
        "forward_entry_time": times.started_s,
        "prefill_finished_time": times.first_token_s,
        "queue_time": None if times.started_s is None else times.started_s - times.queued_s,
    }
    if generation.top_logprobs is not None:
        info |= _logprobs(answer.output_ids, generation.log_probs, generation.top_logprobs)
    info |= {
        "reasoning_tokens": 0,
        "completion_tokens": tokens,
        "cached_tokens": 0,
        "cached_tokens_details": {"device": 0, "host": 0},
        "dp_rank": None,
    }
    if answer.finish is not None:
        info |= _final_info(engine, generation, tokens)
    return info


def _final_info(engine: EngineLike, generation: Generation, tokens: int) -> JsonObject:
    times = generation.times
    finished_s = now_s() if times.finished_s is None else times.finished_s
    return {
        "e2e_latency": finished_s - times.received_s,
        **_spec_info(engine, generation, tokens),
        **_tree_info(engine, generation),
        "request_received_ts": times.received_s,
        "api_server_dispatch_finish_ts": times.queued_s,
        "request_finished_ts": finished_s,
        "decode_throughput": _decode_tok_per_s(times.first_token_s, finished_s, tokens),
        "response_sent_to_client_ts": now_s(),
    }


def _decode_tok_per_s(first_token_s: float | None, end_s: float, tokens: int) -> float | None:
    """Tokens a second after the prefill's one; None when there is nothing to divide."""
    if first_token_s is None or tokens < 2 or end_s <= first_token_s:
        return None
    return (tokens - 1) / (end_s - first_token_s)


def _spec_info(engine: EngineLike, generation: Generation, tokens: int) -> JsonObject:
    """SGLang's acceptance fields; none without a verify step, as there."""
    tally = generation.tally
    if tally.verify_steps == 0:
        return {}
    proposed = tally.verify_steps * (engine.verify_width - 1)
    return {
        "spec_accept_rate": None if proposed == 0 else tally.accepted_drafts / proposed,
        "spec_accept_length": tokens / tally.verify_steps,
        "spec_num_correct_drafts": tally.accepted_drafts,
        "spec_num_proposed_drafts": proposed,
        "spec_verify_ct": tally.verify_steps,
        "spec_accepted_drafts": tally.accepted_drafts,
        "spec_proposed_drafts": proposed,
        "spec_correct_drafts_histogram": list(tally.histogram),
        "spec_accept_histogram": list(tally.histogram),
    }


def _tree_info(engine: EngineLike, generation: Generation) -> JsonObject:
    """Sums over verify steps that describe the trees; lists start at depth 1 and rank 0."""
    if engine.spec.algorithm == "AR":
        return {}
    tally = generation.tally
    common: JsonObject = {
        "ddtree_verify_width": engine.verify_width,
        "ddtree_drafting_s": tally.drafting_s,
    }
    if engine.spec.algorithm == "DFLASH":
        return common
    return {
        **common,
        "ddtree_nodes_by_depth": list(tally.nodes_by_depth),
        "ddtree_accepted_by_depth": list(tally.accepted_by_depth),
        "ddtree_accepted_by_rank": list(tally.accepted_by_rank),
        "ddtree_accepted_by_node": list(tally.accepted_by_node),
        "ddtree_spine_nodes": tally.spine_nodes,
    }


def _logprobs(ids: Sequence[int], log_probs: Sequence[TokenLogProbs], tops: int) -> JsonObject:
    """SGLang's log-probability fields: triples of nats, token id, and text (not given)."""
    # `log_probs` may be longer: it grows while the answer so far is written out.
    tokens = log_probs[: len(ids)]
    return {
        "input_token_logprobs": [],
        "output_token_logprobs": [
            [token.log_prob, id_, None] for id_, token in zip(ids, tokens, strict=True)
        ],
        "output_token_logprobs_length": len(tokens),
        "input_top_logprobs": [],
        "output_top_logprobs": [
            [[log_prob, id_, None] for id_, log_prob in token.top[:tops]] for token in tokens
        ],
    }


def usage(generation: Generation, tokens: int) -> JsonObject:
    """Token counts of a chat answer so far."""
    prompt = len(generation.input_ids)
    return {
        "prompt_tokens": prompt,
        "total_tokens": prompt + tokens,
        "completion_tokens": tokens,
        "prompt_tokens_details": None,
        "reasoning_tokens": 0,
    }


def chat_body(
    model: str,
    generation: Generation,
    answer: Snapshot,
    logprobs: JsonObject | None,
    info: JsonObject | None,
) -> JsonObject:
    """Body of a chat answer in one piece; `info` becomes its choice's `meta_info`."""
    message = {"content": answer.text, "reasoning_content": None, "tool_calls": None}
    choice: JsonObject = {
        "index": 0,
        "message": {"role": "assistant", **message},
        "logprobs": logprobs,
        **_chat_finish(answer),
    }
    if info is not None:
        choice["meta_info"] = info
    return {
        "id": generation.rid,
        "object": "chat.completion",
        "created": int(generation.times.received_s),
        "model": model,
        "choices": [choice],
        "usage": usage(generation, len(answer.output_ids)),
        "metadata": {"weight_version": WEIGHT_VERSION},
    }


def chat_logprobs(decoder: Decoder, generation: Generation) -> JsonObject:
    """`choices[0].logprobs` of a chat answer."""

    def entry(id_: int, log_prob: float) -> JsonObject:
        text = decoder.decode([id_])
        return {"token": text, "bytes": list(text.encode()), "logprob": log_prob}

    content = []
    for id_, token in zip(generation.output_ids, generation.log_probs, strict=True):
        tops = [entry(*top) for top in token.top[: generation.top_logprobs]]
        content.append({**entry(id_, token.log_prob), "top_logprobs": tops})
    return {"content": content}


class ChatChunks:
    """Chunks of one streamed chat answer: role, text as it comes, end, usage."""

    def __init__(self, model: str, generation: Generation, options: StreamOptions) -> None:
        self._generation = generation
        self._options = options
        self._sent = 0
        self._head: JsonObject = {
            "id": generation.rid,
            "object": "chat.completion.chunk",
            "created": int(generation.times.received_s),
            "model": model,
        }
        self._began = False

    def of(self, answer: Snapshot) -> Iterator[JsonObject]:
        """Chunks that `answer` adds to those of the snapshots before it."""
        if not self._began:
            self._began = True
            yield self._chunk({"role": "assistant", "content": ""})
        piece = answer.text[self._sent :]
        self._sent = len(answer.text)
        count = usage(self._generation, len(answer.output_ids))
        if self._options.continuous_usage_stats:
            # Also without text: a step that only stops or completes no character has tokens.
            yield {**self._chunk({"content": piece}), "usage": count}
        elif piece:
            yield self._chunk({"content": piece})
        if answer.finish is not None:
            yield self._chunk({}, **_chat_finish(answer))
            if self._options.include_usage:
                yield {**self._head, "choices": [], "usage": count}

    def _chunk(
        self, delta: JsonObject, finish_reason: object = None, matched_stop: object = None
    ) -> JsonObject:
        choice = {
            "index": 0,
            "delta": {"reasoning_content": None, **delta},
            "logprobs": None,
            "finish_reason": finish_reason,
            "matched_stop": matched_stop,
        }
        return {**self._head, "choices": [choice]}


def _chat_finish(answer: Snapshot) -> JsonObject:
    finish = answer.finish or {}
    return {"finish_reason": finish.get("type"), "matched_stop": finish.get("matched")}
