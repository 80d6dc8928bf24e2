import pytest

from ddtree.server.options import parse_options

CHAIN = ["--speculative-algorithm", "DFLASH", "--speculative-draft-model-path", "{}"]


@pytest.fixture
def folder(tmp_path):
    """Folder that looks like a model's."""
    (tmp_path / "config.json").write_text("{}", encoding="utf-8")
    return str(tmp_path)


def test_defaults(folder):
    """Only the model is required; the served name is its path."""
    options = parse_options(["--model-path", folder])
    assert options.served_model_name == folder
    assert (options.host, options.port, options.dtype) == ("127.0.0.1", 30000, "float32")
    assert options.speculative_algorithm is None
    assert options.random_seed is None


def test_a_tree(folder):
    """SGLang's flag names are understood."""
    flags = ["--model-path", folder, "--speculative-algorithm", "DDTREE"]
    flags += ["--speculative-draft-model-path", folder, "--speculative-ddtree-budget", "15"]
    flags += ["--speculative-ddtree-topk-cap", "8", "--speculative-dflash-block-size", "16"]
    options = parse_options(flags)
    assert options.speculative_ddtree_budget == 15
    assert options.speculative_ddtree_topk_cap == 8
    assert options.speculative_dflash_block_size == 16


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--speculative-ddtree-budget", "3"], "needs --speculative-algorithm"),
        (["--speculative-draft-model-path", "{}"], "needs --speculative-algorithm"),
        (["--speculative-algorithm", "DFLASH"], "needs --speculative-draft-model-path"),
        (["--speculative-algorithm", "EAGLE"], "invalid choice"),
        (
            ["--speculative-algorithm", "DDTREE", "--speculative-draft-model-path", "{}"],
            "needs --speculative-ddtree-budget",
        ),
        (
            [*CHAIN, "--speculative-ddtree-topk-cap", "2"],
            "needs --speculative-algorithm DDTREE",
        ),
        (
            ["--speculative-algorithm", "DFLASH", "--speculative-draft-model-path", "/nowhere"],
            "no config.json in /nowhere",
        ),
        (["--port", "65536"], "0 to 65535"),
        (["--port", "http"], "invalid integer value: 'http'"),
        (["--threads", "0"], "must be 1 or more"),
        (["--context-length", "many"], "invalid integer value: 'many'"),
        (["--spec"], "unrecognized arguments"),
    ],
)
def test_contradictions(folder, capsys, flags, message):
    """A command line that does not fit together ends with code 2 and says which flag."""
    argv = ["--model-path", folder, *(flag.format(folder) for flag in flags)]
    with pytest.raises(SystemExit) as ended:
        parse_options(argv)
    assert ended.value.code == 2
    assert message in capsys.readouterr().err
