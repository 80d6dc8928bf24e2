"""What must hold before an SGLang server is started: flags, version, GPU, disk.

A wrong flag would cost minutes of loading, or be taken for another one without a word.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Final

from ddtree_bench.config import Server
from ddtree_bench.errors import ConfigError, Fault, MachineError
from ddtree_bench.server.engines import CHOSEN_FLAGS, KEY_FLAGS, key_values
from ddtree_bench.server.flags import KnownFlags, probe_flags, split_args, unknown_flags
from ddtree_bench.server.kept_flags import keep, place_of, read_kept
from ddtree_bench.server.machine import has_nvidia_gpu

OLDEST: Final = (0, 5, 12)
"""The first SGLang whose routes and counters are those that the client reads."""
FREE_BYTES: Final = 2**30
"""Room for the server's log and the records of a session."""
_WHERE: Final = "configuration"


def check_sglang(name: str, server: Server, env: Mapping[str, str], results: Path) -> None:
    """Return if an SGLang server may be started.

    Args:
        name: key of the server.
        server: with `engine: sglang`.
        env: the server's whole environment; plug-ins and visible GPUs depend on it.
        results: where its log will be written.

    Raises:
        ConfigError: this SGLang does not know a flag or value; all of them at once.
        MachineError: no SGLang, one that is too old, no GPU, or no room on the disk.
    """
    check_disk(results)
    check_gpu(name, server, env)
    python = Path(shutil.which(server.python) or server.python)
    place = place_of(results, python, env)
    known = read_kept(place) or probe_flags(python, env=env)
    check_version(known.version, where=server.python)
    faults = (*taken_flags(name, server), *flag_faults(name, server, known))
    if faults:
        raise ConfigError(faults)
    keep(place, known)


def check_disk(folder: Path) -> None:
    """Raise MachineError if less than FREE_BYTES are left where the folder is or will be."""
    there = next(place for place in (folder, *folder.absolute().parents) if place.exists())
    free = shutil.disk_usage(there).free
    if free < FREE_BYTES:
        raise MachineError(
            f"{free / 2**20:.0f} MiB are free on the disk, {FREE_BYTES / 2**20:.0f} are needed",
            where=str(there),
            remedy="make room, or write results elsewhere",
        )


def check_gpu(name: str, server: Server, env: Mapping[str, str]) -> None:
    """Raise MachineError if the server would look for a CUDA device that is not there."""
    flags, _ = split_args(server.args)
    device = next((flag.values for flag in reversed(flags) if flag.name == "--device"), ("cuda",))
    if device == ("cuda",) and not has_nvidia_gpu(env):
        visible = env.get("CUDA_VISIBLE_DEVICES")
        seen = "" if visible is None else f" among CUDA_VISIBLE_DEVICES={visible!r}"
        raise MachineError(
            f"there is no NVIDIA GPU{seen}: neither nvidia-smi nor NVML shows one",
            where=f"servers.{name}",
            remedy="run on a machine with a GPU, or name another device: args: [--device, cpu]",
        )


def check_version(version: str, *, where: str) -> None:
    """Raise MachineError for an SGLang before OLDEST; builds without a number are let through."""
    match = re.match(r"(\d+)\.(\d+)\.(\d+)", version)
    parts = (0, 0, 0) if match is None else tuple(int(part) for part in match.groups())
    if (0, 0, 0) < parts < OLDEST:
        raise MachineError(
            f"SGLang {version} is older than {'.'.join(map(str, OLDEST))}",
            where=where,
            remedy="install envs/sglang.txt for this interpreter",
        )


def taken_flags(name: str, server: Server) -> Iterator[Fault]:
    """Flags in `args` that a key of the configuration or the session sets."""
    keys = {flag: f"the key `{key}` sets it" for key, flag in KEY_FLAGS.items()}
    keys |= dict.fromkeys(CHOSEN_FLAGS, "it is chosen for each launch")
    flags, _ = split_args(server.args)
    for flag in flags:
        if flag.name in keys:
            place = f"servers.{name}.args[{flag.index}]"
            yield Fault(_WHERE, None, place, f"leave `{flag.name}` out: {keys[flag.name]}")


def flag_faults(name: str, server: Server, known: KnownFlags) -> Iterator[Fault]:
    """Flags and values that this SGLang does not take, at the keys that they come from."""
    for key, (flag, value) in key_values(server).items():
        place = f"servers.{name}.{key}"
        for fault in unknown_flags((flag, value), known, file=_WHERE, key=place):
            yield replace(fault, key=place)
    yield from unknown_flags(server.args, known, file=_WHERE, key=f"servers.{name}.args")
