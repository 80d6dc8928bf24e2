"""How each engine is started: pure functions from a configuration to a command."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Mapping
from pathlib import Path

import ddtree_bench
from ddtree_bench.config import Server
from ddtree_bench.errors import MachineError
from ddtree_bench.server.process import Command

HOST = "127.0.0.1"
_MODULES = {"reference": "ddtree.server", "sglang": "sglang.launch_server"}

KEY_FLAGS = {
    "model": "--model-path",
    "algorithm": "--speculative-algorithm",
    "drafter": "--speculative-draft-model-path",
    "block_size": "--speculative-dflash-block-size",
    "budget": "--speculative-ddtree-budget",
    "topk_cap": "--speculative-ddtree-topk-cap",
}
"""Keys of a server and the flags that they become."""
CHOSEN_FLAGS = ("--host", "--port", "--served-model-name")
"""Flags that the session chooses."""

_INHERITED = frozenset(
    {
        "PATH",
        "HOME",
        "USER",
        "LOGNAME",
        "LANG",
        "LC_ALL",
        "TZ",
        "TMPDIR",
        "LD_LIBRARY_PATH",
        "XDG_CACHE_HOME",
        "HF_HOME",
        "HF_HUB_OFFLINE",
        "TRITON_CACHE_DIR",
        "TORCHINDUCTOR_CACHE_DIR",
        "SSL_CERT_FILE",
    }
)
_INHERITED_PREFIXES = ("CUDA_", "NVIDIA_", "NCCL_")
"""A server sees these variables of its surroundings and no others: Snakemake, for one, exports
OMP_NUM_THREADS=1 to its jobs, which would make a server slow without a trace in the configuration.
"""
GPUS = "CUDA_VISIBLE_DEVICES"
_FOR_CONTAINERS = "NVIDIA_REQUIRE_CUDA"
"""Read by what starts a container, not by what runs in it, and a page long."""
_PERSONAL = frozenset({"HOME", "USER", "LOGNAME", "PATH", "PYTHONPATH"})
_SECRET = re.compile(r"TOKEN|KEY|SECRET|PASSWORD|CREDENTIAL", re.IGNORECASE)


def use_gpus(gpus: str) -> None:
    """Let this process and all servers that it starts see these GPUs only (indices or UUIDs)."""
    # CUDA would count the fastest GPU first, nvidia-smi and NVML by PCI address
    os.environ |= {"CUDA_DEVICE_ORDER": "PCI_BUS_ID", GPUS: gpus}


def command(name: str, server: Server, port: int, surroundings: Mapping[str, str]) -> Command:
    """The command that starts a server on a port; raises ValueError for `engine: attach`."""
    if server.engine not in _MODULES:
        raise ValueError(f"engine {server.engine} is not started by us")
    chosen = zip(CHOSEN_FLAGS, (HOST, str(port), name), strict=True)
    given = (part for pair in (*key_values(server).values(), *chosen) for part in pair)
    argv = (server.python, "-m", _MODULES[server.engine], *given, *server.args)
    return Command(argv, _environment(server, surroundings))


def key_values(server: Server) -> dict[str, tuple[str, str]]:
    """Flag and value of each key that is set; plain decoding has no algorithm flag."""
    values = {key: getattr(server, key) for key in KEY_FLAGS}
    values["algorithm"] = None if server.algorithm == "AR" else server.algorithm
    return {key: (KEY_FLAGS[key], str(value)) for key, value in values.items() if value is not None}


def recorded_environment(env: Mapping[str, str]) -> dict[str, str]:
    """The environment as it may be published: no places of a person, no values of secrets."""
    return {
        key: "(set, not recorded)" if _SECRET.search(key) else value
        for key, value in sorted(env.items())
        if key not in _PERSONAL
    }


def check_machine(server: Server) -> None:
    """Raise MachineError if this machine lacks the interpreter or a folder that a server needs."""
    if server.engine == "attach":
        return
    if shutil.which(server.python) is None:
        raise MachineError(
            f"there is no interpreter {server.python}",
            where="`python` of a server",
            remedy="`make` sets the environments up, or name another interpreter",
        )
    for key, folder in (("model", server.model), ("drafter", server.drafter)):
        if folder is not None and not Path(folder).is_dir():
            raise MachineError(
                f"there is no folder {folder}",
                where=f"`{key}` of a server",
                remedy="name a folder that exists; `make report` makes the shipped target model",
            )


def source_folder() -> Path | None:
    """The folder that holds this project's packages; None where they are installed as wheels."""
    folder = Path(ddtree_bench.__file__).absolute().parents[1]
    return None if folder.name in ("site-packages", "dist-packages") else folder


def _environment(server: Server, surroundings: Mapping[str, str]) -> dict[str, str]:
    env = {
        key: value
        for key, value in surroundings.items()
        if key in _INHERITED or (key.startswith(_INHERITED_PREFIXES) and key != _FOR_CONTAINERS)
    }
    env["PYTHONUNBUFFERED"] = "1"  # the last words of a dying server belong into its log
    source = source_folder()
    if server.engine == "reference" and source is not None:
        # the interpreter of the engine needs no installed copy of this project
        env["PYTHONPATH"] = str(source)
    return {**env, **server.env}
