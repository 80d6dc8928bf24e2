"""Command line of the server: SGLang's flag names, checked before anything heavy is loaded."""

import argparse
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal, get_args

DraftAlgorithm = Literal["DFLASH", "DDTREE"]
DTYPES: Final = ("float32", "bfloat16", "float16")
_TREE_ONLY: Final = ("--speculative-ddtree-budget", "--speculative-ddtree-topk-cap")
_DRAFT_ONLY: Final = (
    "--speculative-draft-model-path",
    "--speculative-dflash-block-size",
    *_TREE_ONLY,
)
LOG_LEVELS: Final = ("debug", "info", "warning", "error")


@dataclass(frozen=True, slots=True)
class Options:
    """A consistent command line; None = the flag was not given."""

    model_path: Path
    speculative_algorithm: DraftAlgorithm | None
    speculative_draft_model_path: Path | None
    speculative_dflash_block_size: int | None
    speculative_ddtree_budget: int | None
    speculative_ddtree_topk_cap: int | None
    host: str
    port: int
    served_model_name: str
    context_length: int | None
    dtype: str
    random_seed: int | None
    threads: int | None
    log_level: str


def parse_options(argv: Sequence[str] | None) -> Options:
    """Options of `argv`, or of the process if None; exits with code 2 on a contradiction."""
    parser = _parser()
    given = parser.parse_args(argv)
    if (fault := _contradiction(given)) is not None:
        parser.error(fault)
    if given.served_model_name is None:
        given.served_model_name = str(given.model_path)
    return Options(**vars(given))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m ddtree.server",
        description="Serve the reference engine, one request at a time, with SGLang's routes.",
        allow_abbrev=False,
    )
    _add_model_flags(parser)
    _add_draft_flags(parser)
    _add_server_flags(parser)
    return parser


def _add_model_flags(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--model-path", type=Path, required=True, help="folder of the target")
    parser.add_argument(
        "--context-length", type=_integer(2), help="tokens; default: the target's own"
    )
    parser.add_argument("--dtype", choices=DTYPES, default="float32", help="default: float32")
    parser.add_argument(
        "--random-seed",
        type=_integer(0),
        help="seeds requests that bring no seed; default: drawn at start, see /server_info",
    )
    parser.add_argument("--threads", type=_integer(1), help="of PyTorch; default: PyTorch's choice")


def _add_draft_flags(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--speculative-algorithm",
        choices=get_args(DraftAlgorithm),
        help="chain or tree; default: plain decoding",
    )
    parser.add_argument(
        "--speculative-draft-model-path", type=Path, help="folder of the DFlash drafter"
    )
    parser.add_argument(
        "--speculative-dflash-block-size",
        type=_integer(1),
        help="positions a draft fills, the bonus token included; default: the drafter's",
    )
    parser.add_argument(
        "--speculative-ddtree-budget", type=_integer(0), help="tree nodes besides the root"
    )
    parser.add_argument(
        "--speculative-ddtree-topk-cap",
        type=_integer(1),
        help="candidates a depth; default: as many as the budget",
    )


def _add_server_flags(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--host", default="127.0.0.1", help="default: 127.0.0.1")
    parser.add_argument(
        "--port",
        type=_integer(0, 65535),
        default=30000,
        help="default: 30000; 0 lets the system choose",
    )
    parser.add_argument("--served-model-name", help="default: the value of --model-path")
    parser.add_argument("--log-level", choices=LOG_LEVELS, default="info", help="default: info")


def _integer(least: int, most: int | None = None) -> Callable[[str], int]:
    """An argparse type: an integer from `least` to `most`."""
    bounds = f"{least} or more" if most is None else f"{least} to {most}"

    def convert(text: str) -> int:
        value = int(text)
        if value < least or (most is not None and value > most):
            raise argparse.ArgumentTypeError(f"must be {bounds}, got {value}")
        return value

    convert.__name__ = "integer"  # argparse names the type in its message
    return convert


def _value(given: argparse.Namespace, flag: str) -> object:
    value: object = getattr(given, flag.removeprefix("--").replace("-", "_"))
    return value


def _contradiction(given: argparse.Namespace) -> str | None:
    """What does not fit together in `given`, or None."""
    algorithm = given.speculative_algorithm
    if algorithm is None:
        for flag in _DRAFT_ONLY:
            if _value(given, flag) is not None:
                return f"{flag} needs --speculative-algorithm; give one or drop {flag}"
    elif given.speculative_draft_model_path is None:
        return f"--speculative-algorithm {algorithm} needs --speculative-draft-model-path"
    if algorithm == "DFLASH":
        for flag in _TREE_ONLY:
            if _value(given, flag) is not None:
                return f"{flag} needs --speculative-algorithm DDTREE, not DFLASH"
    if algorithm == "DDTREE" and given.speculative_ddtree_budget is None:
        return "--speculative-algorithm DDTREE needs --speculative-ddtree-budget"
    for flag in ("--model-path", "--speculative-draft-model-path"):
        folder = _value(given, flag)
        if isinstance(folder, Path) and not (folder / "config.json").is_file():
            return f"{flag}: no config.json in {folder}; give the folder of a model"
    return None
