"""What the measurement ran on: processor, memory, GPUs, packages, code and weights."""

from __future__ import annotations

import json
import os
import platform
import shutil
import subprocess
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

import psutil

from ddtree_bench import __file__ as _package_file
from ddtree_bench.config import Server
from ddtree_bench.errors import MachineError
from ddtree_bench.hashing import file_sha256, json_sha256
from ddtree_bench.server.engines import source_folder
from ddtree_bench.server.telemetry import GpuReader, load_nvml, visible_devices

PACKAGES = (
    "torch",
    "transformers",
    "tokenizers",
    "safetensors",
    "sglang",
    "sgl-kernel",
    "sglang-kernel",  # its name in later versions
    "flashinfer-python",
    "triton",
    "numpy",
)
"""Packages of the engine's interpreter whose version can change a number."""

_ASK = (
    "import json, platform, sys\n"
    "from importlib import metadata\n"
    "found = {}\n"
    "for name in sys.argv[1:]:\n"
    "    try: found[name] = metadata.version(name)\n"
    "    except metadata.PackageNotFoundError: pass\n"
    "print(json.dumps({'python': platform.python_version(), 'packages': found}))\n"
)
_WEIGHTS = ("*.safetensors", "*.bin", "*.gguf", "config.json", "generation_config.json")
_TOKENIZER = ("tokenizer*", "chat_template*", "generation_config.json", "special_tokens_map.json")
_GPU_FIELDS = (
    "name",
    "uuid",
    "driver_version",
    "memory.total",
    "power.limit",
    "clocks.max.sm",
    "clocks.sm",
    "persistence_mode",
)


def machine_facts(server: Server) -> dict[str, Any]:
    """Everything known about the machine and the engine, flat: name to value, units in names."""
    memory = psutil.virtual_memory()
    facts: dict[str, Any] = {
        "cpu_model": _cpu_model(),
        "cpu_count": os.cpu_count(),
        "cpu_usable": len(os.sched_getaffinity(0)),
        "memory_bytes": memory.total,
        "kernel": platform.release(),
        "system": platform.system(),
        "client_python": platform.python_version(),
        "load_average_1min": round(os.getloadavg()[0], 2),
        **_git_facts(),
        **_gpu_facts({**os.environ, **server.env}),
        **weights_facts(server),
    }
    if server.engine != "attach":
        facts |= _engine_facts(server.python)
    if server.engine == "reference" and (source := source_folder()) is not None:
        facts["engine_source_sha256"] = _folder_sha256(source / "ddtree", ("**/*.py",))
    if (server.engine, server.algorithm) == ("sglang", "DDTREE") and (source := source_folder()):
        facts["plugin_source_sha256"] = _folder_sha256(source / "ddtree_sglang", ("**/*.py",))
    return facts


def decisive_facts(facts: Mapping[str, Any]) -> dict[str, Any]:
    """Those facts that can change a number: a cell measured under others is measured again."""
    return {
        key: value
        for key, value in facts.items()
        if key in ("cpu_model", "cpu_usable", "engine_python")
        or key.startswith("package.")
        or key.endswith("_sha256")
        or (key.startswith("gpu.") and key.endswith(".name"))
    }


def weights_facts(server: Server) -> dict[str, str | None]:
    """Hashes of what is served: target, drafter, tokenizer; None where the folder is elsewhere."""
    return {
        "model_sha256": _folder_sha256(Path(server.model), _WEIGHTS),
        "drafter_sha256": (
            None if server.drafter is None else _folder_sha256(Path(server.drafter), _WEIGHTS)
        ),
        "tokenizer_sha256": _folder_sha256(Path(server.tokenizer_path), _TOKENIZER),
    }


def gpu_memory_used_mib(environ: Mapping[str, str] = os.environ) -> int | None:
    """Memory in use on all visible GPUs together, by whomever; None if no GPU tells it."""
    rows = _nvidia_smi(("memory.used",), environ)
    if rows:
        return sum(int(row[0]) for row in rows)
    nvml = load_nvml()
    samples = () if nvml is None else GpuReader(nvml, frozenset, visible_devices(environ)).read()
    used = [one.memory_used_bytes for one in samples if one.memory_used_bytes is not None]
    return sum(used) // 2**20 if used else None


def has_nvidia_gpu(environ: Mapping[str, str] = os.environ) -> bool:
    """Whether `nvidia-smi` or NVML shows a GPU that `CUDA_VISIBLE_DEVICES` leaves visible."""
    if _nvidia_smi(("name",), environ):
        return True
    nvml = load_nvml()
    return nvml is not None and bool(GpuReader(nvml, frozenset, visible_devices(environ)).gpus)


def _cpu_model() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        key, _, value = line.partition(":")
        if key.strip() == "model name":
            return value.strip()
    return platform.machine()


def _git_facts() -> dict[str, Any]:
    """Commit of this project's checkout; nothing where it is installed without one."""
    folder = Path(_package_file).parent
    commit = _output_of(["git", "-C", str(folder), "rev-parse", "HEAD"])
    if commit is None:
        return {}
    status = _output_of(["git", "-C", str(folder), "status", "--porcelain"])
    return {"git_commit": commit.strip(), "git_dirty": None if status is None else status != ""}


def _gpu_facts(environ: Mapping[str, str]) -> dict[str, str]:
    rows = _nvidia_smi(_GPU_FIELDS, environ)
    return {
        f"gpu.{index}.{field.replace('.', '_')}": value
        for index, row in enumerate(rows)
        for field, value in zip(_GPU_FIELDS, row, strict=True)
    }


def _nvidia_smi(fields: tuple[str, ...], environ: Mapping[str, str]) -> list[list[str]]:
    """One row a visible GPU; no rows where there is no working driver."""
    argv = ["nvidia-smi", f"--query-gpu={','.join(fields)}", "--format=csv,noheader,nounits"]
    visible = environ.get("CUDA_VISIBLE_DEVICES")
    if visible is not None:
        if visible == "":
            return []
        argv.append(f"--id={visible}")
    text = _output_of(argv) or ""
    rows = [[part.strip() for part in line.split(", ")] for line in text.splitlines()]
    return [row for row in rows if len(row) == len(fields)]


@cache
def _engine_facts(python: str) -> dict[str, str]:
    """Version of an interpreter and of its packages, asked once."""
    text = _output_of([python, "-c", _ASK, *PACKAGES], seconds=60)
    if text is None:
        raise MachineError(
            f"the interpreter {python} does not run",
            where="`python` of a server",
            remedy="`make` sets the environments up, or name another interpreter",
        )
    answer = json.loads(text)
    packages = {f"package.{name}": version for name, version in answer["packages"].items()}
    return {"engine_python": answer["python"], **packages}


def _output_of(argv: list[str], seconds: float = 20) -> str | None:
    """What a program prints; None if it is missing, fails or takes too long."""
    if shutil.which(argv[0]) is None:
        return None
    try:
        done = subprocess.run(argv, capture_output=True, text=True, timeout=seconds, check=False)
    except subprocess.TimeoutExpired:
        return None
    return done.stdout if done.returncode == 0 else None


def _folder_sha256(folder: Path, patterns: tuple[str, ...]) -> str | None:
    """One hash of the files that match, by name and content; None if there are none."""
    files = sorted({path for pattern in patterns for path in folder.glob(pattern)})
    if not files:
        return None
    return json_sha256({str(path.relative_to(folder)): _hash_of(path) for path in files})


def _hash_of(path: Path) -> str:
    stat = path.stat()
    return _hash_of_version(path, stat.st_size, stat.st_mtime_ns)


@cache
def _hash_of_version(path: Path, size: int, mtime_ns: int) -> str:
    """Cached within the process: weights are large and a session asks more than once."""
    return file_sha256(path)
