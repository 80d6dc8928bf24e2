import os
import sys
from types import SimpleNamespace

import pytest
from fakes import bench

from ddtree_bench.errors import MachineError
from ddtree_bench.server import machine
from ddtree_bench.server.machine import decisive_facts, machine_facts, weights_facts


@pytest.fixture
def server(tmp_path):
    return bench(tmp_path).server


def test_facts_are_flat_and_complete(server):
    """One name, one plain value; what every report shows is there."""
    facts = machine_facts(server.model_copy(update={"python": sys.executable}))
    assert all(isinstance(value, str | int | float | None) for value in facts.values())
    assert {"cpu_model", "cpu_count", "memory_bytes", "kernel", "engine_python"} <= set(facts)
    assert "package.tokenizers" in facts
    assert len(facts["engine_source_sha256"]) == 64


def test_changed_weights_change_their_hash_only(server):
    """Model, drafter and tokenizer are told apart; no drafter has no hash."""
    before = weights_facts(server)
    path = f"{server.model}/model.safetensors"
    with open(path, "ab") as file:  # noqa: PTH123 - appending
        file.write(b"more")
    after = weights_facts(server)
    assert before["model_sha256"] != after["model_sha256"]
    assert before["tokenizer_sha256"] == after["tokenizer_sha256"]
    assert before["drafter_sha256"] is None


def test_a_copied_folder_has_the_same_hash(server, tmp_path):
    """Names and contents count, the place and the times do not."""
    copied = bench(tmp_path / "copy").server
    os.utime(f"{copied.model}/model.safetensors", (1, 1))
    assert weights_facts(copied) == weights_facts(server)


def test_weights_are_read_once(server, monkeypatch):
    """An unchanged file is not hashed again within the process."""
    weights_facts(server)
    monkeypatch.setattr(machine, "file_sha256", lambda path: pytest.fail(f"hashed {path} again"))
    weights_facts(server)


def test_a_folder_that_is_not_here_has_no_hash(server):
    """None, not the hash of nothing."""
    away = server.model_copy(update={"model": "/not/here", "tokenizer": "/not/here"})
    assert set(weights_facts(away).values()) == {None}


def test_load_and_clocks_decide_nothing():
    """A key must not change from one minute to the next."""
    facts = {
        "cpu_model": "x",
        "load_average_1min": 3.0,
        "git_commit": "abc",
        "kernel": "6",
        "gpu.0.name": "H200",
        "gpu.0.clocks_sm": "345",
        "package.torch": "2",
        "model_sha256": "1",
    }
    assert set(decisive_facts(facts)) == {
        "cpu_model",
        "gpu.0.name",
        "package.torch",
        "model_sha256",
    }


def test_an_interpreter_that_does_not_run_is_told(server):
    """A broken environment is the machine's fault, with a remedy."""
    with pytest.raises(MachineError, match="does not run"):
        machine_facts(server.model_copy(update={"python": "/bin/false"}))


def test_gpus_become_facts(server, tmp_path, monkeypatch):
    """One name a GPU and field, as `nvidia-smi` tells them."""
    script = tmp_path / "nvidia-smi"
    script.write_text(
        "#!/bin/sh\n"
        'case "$1" in *memory.used*) printf "100\\n23\\n" ;;\n'
        '--query-gpu=name) printf "NVIDIA H200\\n" ;;\n'
        '*) printf "NVIDIA H200, GPU-1, 580.1, 143771, 700.00, 1980, 345, Enabled\\n" ;; esac\n'
    )
    script.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    facts = machine_facts(server.model_copy(update={"python": sys.executable}))
    assert facts["gpu.0.name"] == "NVIDIA H200"
    assert facts["gpu.0.memory_total"] == "143771"
    assert machine.gpu_memory_used_mib() == 123  # 100 + 23
    assert machine.has_nvidia_gpu()
    # a server that may see none of them holds no memory on one
    assert machine.gpu_memory_used_mib({"CUDA_VISIBLE_DEVICES": ""}) is None


class BareNvml:
    """NVML of one GPU that tells its memory and nothing else."""

    NVMLError = OSError

    def __getattr__(self, name):
        """A call that fails, or one of the three that do not."""
        known = {
            "nvmlDeviceGetCount": 1,
            "nvmlDeviceGetHandleByIndex": "handle",
            "nvmlDeviceGetMemoryInfo": SimpleNamespace(used=5 * 2**20),
        }

        def call(*_):
            if name not in known:
                raise OSError(name)
            return known[name]

        return 0 if name.startswith("NVML_") else call


def test_memory_is_told_where_there_is_no_nvidia_smi(tmp_path, monkeypatch):
    """By NVML, which a container may have alone; a job that sees no GPU has none."""
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(machine, "load_nvml", BareNvml)
    assert machine.gpu_memory_used_mib({}) == 5
    assert machine.gpu_memory_used_mib({"CUDA_VISIBLE_DEVICES": ""}) is None


def test_no_gpu_is_none_and_not_zero(tmp_path, monkeypatch):
    """Without `nvidia-smi` and NVML nothing was measured."""
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(machine, "load_nvml", lambda: None)
    assert machine.gpu_memory_used_mib() is None
    assert not machine.has_nvidia_gpu()
