import subprocess
import sys

import pytest

from ddtree_bench.config import Server
from ddtree_bench.errors import MachineError
from ddtree_bench.server.engines import check_machine, command, recorded_environment

TREE = Server(
    algorithm="DDTREE",
    model="m",
    drafter="d",
    block_size=8,
    budget=7,
    topk_cap=4,
    python="/opt/python",
    args=("--threads", "2"),
)


def test_every_key_becomes_its_flag():
    """The whole command of a tree server, further arguments last."""
    assert command("t", TREE, 4000, {}).argv == (
        *("/opt/python", "-m", "ddtree.server", "--model-path", "m"),
        *("--speculative-algorithm", "DDTREE", "--speculative-draft-model-path", "d"),
        *("--speculative-dflash-block-size", "8", "--speculative-ddtree-budget", "7"),
        *("--speculative-ddtree-topk-cap", "4", "--host", "127.0.0.1", "--port", "4000"),
        *("--served-model-name", "t", "--threads", "2"),
    )


def test_plain_decoding_names_no_algorithm():
    """`--speculative-algorithm AR` is nothing that an engine knows."""
    argv = command("ar", Server(model="m", python="p", engine="sglang"), 1, {}).argv
    assert argv[:3] == ("p", "-m", "sglang.launch_server")
    assert not [flag for flag in argv if flag.startswith("--speculative")]


def test_an_attached_server_has_no_command():
    """What somebody else started is not started again."""
    attached = Server(model="m", engine="attach", base_url="http://x")
    with pytest.raises(ValueError, match="attach"):
        command("a", attached, 1, {})


def test_threads_of_the_surroundings_are_not_inherited():
    """Snakemake's OMP_NUM_THREADS=1 stays outside; the server's own setting gets in."""
    around = {"OMP_NUM_THREADS": "1", "PATH": "/bin", "CUDA_VISIBLE_DEVICES": "1", "MY_TOKEN": "x"}
    assert "OMP_NUM_THREADS" not in command("t", TREE, 1, around).env
    env = command("t", TREE.model_copy(update={"env": {"OMP_NUM_THREADS": "2"}}), 1, around).env
    assert env["OMP_NUM_THREADS"] == "2"
    assert (env["PATH"], env["CUDA_VISIBLE_DEVICES"]) == ("/bin", "1")
    assert "MY_TOKEN" not in env


def test_the_reference_engine_needs_no_installation(tmp_path):
    """With the command's environment a bare interpreter finds `ddtree`, from any folder."""
    env = command("t", TREE, 1, {}).env
    subprocess.run(
        [sys.executable, "-c", "import ddtree"], env=dict(env), cwd=tmp_path, check=True, timeout=60
    )
    assert "PYTHONPATH" not in command("t", TREE.model_copy(update={"engine": "sglang"}), 1, {}).env


def test_secrets_and_people_are_not_recorded():
    """A report may be published."""
    env = {"HF_TOKEN": "s3cret", "HOME": "/home/me", "OMP_NUM_THREADS": "2"}
    assert recorded_environment(env) == {
        "HF_TOKEN": "(set, not recorded)",
        "OMP_NUM_THREADS": "2",
    }


@pytest.mark.parametrize("lacking", ["python", "model", "drafter"])
def test_what_a_machine_lacks_is_named_before_anything_starts(tmp_path, lacking):
    """Interpreter, model and drafter each have their message and remedy."""
    there = {"python": sys.executable, "model": str(tmp_path), "drafter": str(tmp_path)}
    check_machine(TREE.model_copy(update=there))
    with pytest.raises(MachineError) as caught:
        check_machine(TREE.model_copy(update={**there, lacking: "/not/here"}))
    assert "/not/here" in caught.value.what
    assert caught.value.remedy is not None


def test_an_attached_server_may_have_its_model_elsewhere():
    """Nothing of it has to be on this machine."""
    check_machine(Server(model="/not/here", engine="attach", base_url="http://x"))
