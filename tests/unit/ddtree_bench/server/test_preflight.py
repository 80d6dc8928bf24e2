"""What stops an SGLang server before it is started."""

import json
import shutil
from collections import namedtuple
from pathlib import Path

import pytest
from fakes import FAKE_ENGINE

from ddtree_bench.config import Server, load_config
from ddtree_bench.errors import ConfigError, MachineError
from ddtree_bench.server import preflight
from ddtree_bench.server.flags import KnownFlags
from ddtree_bench.server.preflight import (
    check_disk,
    check_gpu,
    check_sglang,
    check_version,
    flag_faults,
    taken_flags,
)

REPOSITORY = Path(__file__).parents[4]
CONFIGS = sorted((REPOSITORY / "config").glob("*.yaml"))
OPTIONS = Path(__file__).parents[3] / "fixtures/sglang-0.5.17-options.json"
KNOWN = KnownFlags.model_validate(json.loads(OPTIONS.read_text(encoding="utf-8")))
"""Recorded from SGLang 0.5.17 without plug-ins: it knows no DDTREE."""


def sglang(*args: str, **keys) -> Server:
    """A server that SGLang runs on the CPU."""
    fields = {"engine": "sglang", "model": "m", "python": FAKE_ENGINE, "args": ("--device", "cpu")}
    return Server(**{**fields, "args": (*fields["args"], *args), **keys})


def test_a_right_configuration_passes(tmp_path):
    """Asked of an interpreter that lists the flags of 0.5.17."""
    chain = sglang(algorithm="DFLASH", drafter="d", block_size=16)
    check_sglang("chain", chain, {"PATH": "/usr/bin:/bin"}, tmp_path)


def test_all_faults_are_told_at_once_and_where_they_stand(tmp_path):
    """A renamed flag, a misspelt one, a wrong choice: one message, a line for each key."""
    wrong = sglang("--stream-outptu", "--disable-cuda-graf", "--load-format", "zip")
    with pytest.raises(ConfigError) as caught:
        check_sglang("one", wrong, {"PATH": "/usr/bin:/bin"}, tmp_path)
    keys = [fault.key for fault in caught.value.faults]
    assert keys == ["servers.one.args[2]", "servers.one.args[3]", "servers.one.args[4]"]
    assert "did you mean `--disable-cuda-graph`?" in str(caught.value)


@pytest.mark.parametrize("path", CONFIGS, ids=lambda path: path.stem)
def test_the_shipped_configurations_name_flags_of_this_release(path, monkeypatch):
    """Also those for machines that nobody had here; the plug-in's own flags are left out."""
    monkeypatch.chdir(REPOSITORY)
    stock = KNOWN.model_copy(update={"algorithms": (*KNOWN.algorithms, "DDTREE")})
    for name, server in load_config(path).servers.items():
        if server.engine == "sglang":
            bare = server.model_copy(update={"budget": None, "topk_cap": None})
            assert [*taken_flags(name, bare), *flag_faults(name, bare, stock)] == []


def test_a_key_whose_flag_this_sglang_lacks():
    """Stock SGLang drafts no trees: the key is named, not a place among arguments we made."""
    tree = sglang(algorithm="DDTREE", drafter="d", block_size=16, budget=15)
    faults = {fault.key: fault.what for fault in flag_faults("tree", tree, KNOWN)}
    assert "no algorithm `DDTREE`" in faults["servers.tree.algorithm"]
    assert "no flag `--speculative-ddtree-budget`" in faults["servers.tree.budget"]
    assert set(faults) == {"servers.tree.algorithm", "servers.tree.budget"}


@pytest.mark.parametrize(
    ("flag", "told"),
    [("--model-path", "the key `model` sets it"), ("--port", "it is chosen for each launch")],
)
def test_a_flag_that_a_key_sets_is_not_taken_twice(flag, told):
    """The last one would win, and the configuration would say something else."""
    (fault,) = taken_flags("one", sglang(flag, "x"))
    assert fault.key == "servers.one.args[2]"
    assert told in fault.what


@pytest.mark.parametrize("version", ["0.5.12", "0.5.17", "0.5.23.post1", "1.0.0", "0.0.0.dev1"])
def test_versions_that_are_probed(version):
    """0.5.12 and later, and builds without a number."""
    check_version(version, where="python")


@pytest.mark.parametrize("version", ["0.5.11", "0.4.99", "0.5.2"])
def test_versions_that_are_too_old(version):
    """Numbers are compared as numbers: 0.5.2 is older than 0.5.12."""
    with pytest.raises(MachineError, match=r"older than 0\.5\.12"):
        check_version(version, where="python")


def test_an_old_sglang_is_asked_for_its_version(tmp_path):
    """The version is the interpreter's own answer."""
    env = {"PATH": "/usr/bin:/bin", "FAKE_SGLANG_VERSION": "0.5.9"}
    with pytest.raises(MachineError, match=r"SGLang 0\.5\.9 is older"):
        check_sglang("one", sglang(), env, tmp_path)


@pytest.mark.parametrize("args", [(), ("--device", "cuda")])
def test_cuda_needs_a_gpu(args, monkeypatch):
    """Without one the server would die after it had imported everything."""
    monkeypatch.setattr(preflight, "has_nvidia_gpu", lambda env: False)
    with pytest.raises(MachineError, match=r"no NVIDIA GPU among CUDA_VISIBLE_DEVICES='7'"):
        check_gpu("one", sglang(args=args), {"CUDA_VISIBLE_DEVICES": "7"})


@pytest.mark.parametrize(("args", "gpu"), [(("--device", "cpu"), False), ((), True)])
def test_no_gpu_is_asked_of_a_cpu(args, gpu, monkeypatch):
    """A device that is not CUDA, or a GPU that is there."""
    monkeypatch.setattr(preflight, "has_nvidia_gpu", lambda env: gpu)
    check_gpu("one", sglang(args=args), {})


def test_a_full_disk(tmp_path, monkeypatch):
    """The nearest folder that exists is looked at."""
    usage = namedtuple("usage", "total used free")
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage(0, 0, 5 * 2**20))
    with pytest.raises(MachineError, match="5 MiB are free") as caught:
        check_disk(tmp_path / "not" / "yet")
    assert caught.value.where == str(tmp_path)
