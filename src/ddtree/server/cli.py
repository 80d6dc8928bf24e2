"""Start, serve, and stop: `python -m ddtree.server`."""

import copy
import logging
import secrets
import signal
import socket
import sys
from collections.abc import Sequence
from types import FrameType
from typing import TYPE_CHECKING, Final, NoReturn

from ddtree.server.options import Options, parse_options

# Torch and transformers take seconds to import: a wrong command line is told before that.
if TYPE_CHECKING:
    from ddtree.server.service import Service

log: Final = logging.getLogger("ddtree.server")


def main(argv: Sequence[str] | None = None) -> int:
    """Serve until SIGTERM or SIGINT; exit code 0, 1 (could not start) or 2 (wrong flags)."""
    options = parse_options(argv)
    logging.basicConfig(
        level=options.log_level.upper(), format="[%(asctime)s] %(message)s", stream=sys.stderr
    )
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, _exit_cleanly)
    try:
        listener = _bind(options.host, options.port)
        service = _load(options, listener.getsockname()[1])
    except (OSError, ValueError) as error:
        log.error("could not start: %s", error)
        return 1
    from ddtree.server.running import serve

    return serve(service, listener)


def _exit_cleanly(number: int, frame: FrameType | None) -> NoReturn:
    raise SystemExit(0)


def _bind(host: str, port: int) -> socket.socket:
    """A bound socket, not listening yet: until the model is loaded clients are refused."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, port))
    except OSError as error:
        listener.close()
        raise OSError(
            f"{host}:{port}: {error.strerror}; choose another --port, or stop what listens there"
        ) from error
    return listener


def _load(options: Options, port: int) -> "Service":
    import torch
    from transformers.utils.logging import disable_progress_bar

    from ddtree.engine import Engine, EngineSpec, Sampling
    from ddtree.server.chat import load_tokenizer
    from ddtree.server.identity import identify
    from ddtree.server.service import Service

    disable_progress_bar()  # type: ignore[no-untyped-call]  # transformers has no annotation
    engine = Engine.load(
        EngineSpec(
            target_path=options.model_path,
            drafter_path=options.speculative_draft_model_path,
            algorithm=options.speculative_algorithm or "AR",
            block_size=options.speculative_dflash_block_size,
            budget=options.speculative_ddtree_budget,
            topk_cap=options.speculative_ddtree_topk_cap,
            dtype=options.dtype,
            threads=options.threads,
            context_length=options.context_length,
        )
    )
    tokenizer = load_tokenizer(options.model_path)
    seed = secrets.randbelow(2**31) if options.random_seed is None else options.random_seed
    # First passes are slower: they belong to no request. Three tokens reach a verify step.
    for _ in engine.generate([0], Sampling(max_new_tokens=min(3, engine.context_length - 1))):
        pass
    identity = identify(engine, options, seed, torch.get_num_threads(), port)
    return Service(engine, tokenizer, copy.deepcopy(tokenizer), identity, seed)
