from pathlib import Path
from textwrap import dedent

import pytest

from ddtree_bench.config import Config, load_config
from ddtree_bench.errors import ConfigError, Fault

VALID = """\
run: demo
servers:
  ar:
    model: m
  tree:
    algorithm: DDTREE
    model: m
    drafter: d
    block_size: 16
    budget: 15
    topk_cap: 8
workloads:
  short:
    class: short
    prompts: p.jsonl
"""


def load(tmp_path: Path, text: str) -> Config:
    path = tmp_path / "config.yaml"
    path.write_text(dedent(text), encoding="utf-8")
    return load_config(path)


def faults(tmp_path: Path, text: str) -> tuple[Fault, ...]:
    with pytest.raises(ConfigError) as caught:
        load(tmp_path, text)
    return caught.value.faults


def test_a_valid_file_is_read_with_its_defaults(tmp_path):
    """Keys that are left out take their documented defaults."""
    config = load(tmp_path, VALID)
    assert config.servers["tree"].verify_width == 16  # budget 15 and the root
    assert config.protocol.launches == 2
    assert config.analysis.baseline == "ar"


def test_an_unknown_key_names_file_line_and_the_nearest_key(tmp_path):
    """A typing error is told where it stands and what was probably meant."""
    (fault,) = faults(tmp_path, VALID.replace("topk_cap", "topk_cpa"))
    assert fault.line == 11
    assert fault.key == "servers.tree.topk_cpa"
    assert 'did you mean "topk_cap"' in fault.what


def test_all_faults_are_told_at_once(tmp_path):
    """Two faults in two sections come in one error."""
    text = VALID.replace("block_size: 16", "block_size: wide") + "protocol:\n  launchs: 3\n"
    assert {fault.key for fault in faults(tmp_path, text)} == {
        "servers.tree.block_size",
        "protocol.launchs",
    }


def test_two_servers_of_one_name_are_an_error(tmp_path):
    """YAML would keep the second silently; the first one's line is named."""
    text = VALID.replace("workloads:", "  ar:\n    model: other\nworkloads:")
    (fault,) = faults(tmp_path, text)
    assert fault.key == "servers.ar"
    assert "line 3" in fault.what


@pytest.mark.parametrize(
    ("against", "what"),
    [
        ("tree: [ra]", 'there is no server `ra`; did you mean "ar"'),
        ("tre: [ar]", 'there is no server `tre`; did you mean "tree"'),
        ("tree: [tree]", "`tree` cannot be compared with itself"),
        ("tree: [ar, ar]", "`tree` and `ar` are planned twice"),
    ],
)
def test_a_planned_comparison_is_of_two_servers(tmp_path, against, what):
    """A fault is told with its line, and the nearest name where there is none of that name."""
    text = f"{VALID}analysis:\n  against:\n    {against}\n"
    (fault,) = faults(tmp_path, text)
    assert what in fault.what
    assert fault.line == text.count("\n")
    assert fault.key.startswith("analysis.against.tre")
    assert load(tmp_path, text.replace(against, "tree: [ar]")).analysis.against == {"tree": ("ar",)}


def test_a_baseline_that_does_not_exist_names_the_nearest_server(tmp_path):
    """References between sections are checked."""
    (fault,) = faults(tmp_path, VALID + "analysis:\n  baseline: arr\n")
    assert fault.line == len(VALID.splitlines()) + 2
    assert 'did you mean "ar"' in fault.what


@pytest.mark.parametrize(
    ("line", "replacement", "words"),
    [
        ("    drafter: d\n", "", "needs `drafter`"),
        ("    budget: 15\n", "", "needs `budget`"),
        ("algorithm: DDTREE", "algorithm: DFLASH", "needs `algorithm: DDTREE`"),
        ("    model: m\n  tree", "    model: m\n    drafter: d\n  tree", "not used"),
        ("    model: m\n  tree", "    model: m\n    engine: attach\n  tree", "needs `base_url`"),
    ],
)
def test_contradictions_are_errors(tmp_path, line, replacement, words):
    """Keys that exclude or need each other are refused with the reason."""
    assert line in VALID
    (fault,) = faults(tmp_path, VALID.replace(line, replacement))
    assert words in fault.what


def test_a_value_that_no_type_fits_is_one_fault(tmp_path):
    """A union's alternatives are told as one fault, not one for each alternative."""
    (fault,) = faults(tmp_path, VALID + "    sample: many\n")
    assert fault.key == "workloads.short.sample"
    assert "all" in fault.what
    assert "integer" in fault.what


def test_a_round_that_never_comes_is_an_error(tmp_path):
    """A workload cannot be bound to more rounds than there are."""
    (fault,) = faults(tmp_path, VALID + "    rounds: [1, 3]\n")
    assert "round 3 does not happen" in fault.what


@pytest.mark.parametrize("text", ["", "- a\n- b\n", "run: [\n"])
def test_what_is_no_mapping_is_an_error(tmp_path, text):
    """An empty file, a list and broken YAML are told as such."""
    (fault,) = faults(tmp_path, text)
    assert fault.file.endswith("config.yaml")


def test_a_missing_file_is_an_error(tmp_path):
    """The path that was looked for is named."""
    with pytest.raises(ConfigError, match="there is no such file"):
        load_config(tmp_path / "absent.yaml")


def test_overrides_replace_top_level_keys(tmp_path):
    """What is given on the command line wins over the file."""
    path = tmp_path / "config.yaml"
    path.write_text(VALID, encoding="utf-8")
    assert load_config(path, {"run": "other"}).run == "other"


@pytest.mark.parametrize(("given", "drawn"), [("full", "all"), (7, 7)])
def test_sample_replaces_that_of_every_workload(tmp_path, given, drawn):
    """From the file or the command line; the three original prompts are always all asked."""
    text = VALID + "    sample: 4\n  notes: {class: original, prompts: o.jsonl, sample: 3}\n"
    path = tmp_path / "config.yaml"
    path.write_text(text, encoding="utf-8")
    config = load_config(path, {"sample": given})
    assert config.workloads["short"].sample == drawn
    assert config.workloads["notes"].sample == 3
    assert load(tmp_path, text + f"sample: {given}\n").workloads == config.workloads


@pytest.mark.parametrize("wrong", ["ful", "0", "true", "2.5"])
def test_a_wrong_sample_is_told_at_its_own_key(tmp_path, wrong):
    """And at no workload's; one of the command line stands in no line of the file."""
    (fault,) = faults(tmp_path, VALID + f"sample: {wrong}\n")
    assert (fault.key, fault.line) == ("sample", 16)
    with pytest.raises(ConfigError) as caught:
        load_config(tmp_path / "config.yaml", {"sample": "ful"})
    (fault,) = caught.value.faults
    assert (fault.key, fault.line) == ("sample", None)


def test_constraining_needs_servers_that_can(tmp_path):
    """The reference engine has no grammar; a run that would compare unlike things is refused."""
    (fault,) = faults(tmp_path, VALID + "    constrained: true\n")
    assert fault.key == "workloads.short.constrained"
    assert fault.line == 16
    assert "`ar` (engine reference)" in fault.what


def test_tools_of_the_server_need_one_that_parses(tmp_path):
    """And the route that offers them."""
    chosen = VALID + "    tool_route: openai\n"
    (fault,) = faults(tmp_path, chosen)
    assert "`route: chat`" in fault.what
    (fault,) = faults(tmp_path, chosen + "    route: chat\n")
    assert fault.key == "workloads.short.tool_route"
    assert "`ar` (engine reference)" in fault.what


def test_a_wrong_format_names_the_known_ones(tmp_path):
    """The key is the one that the user wrote."""
    (fault,) = faults(tmp_path, VALID + "    format: sharegtp\n")
    assert fault.key == "workloads.short.format"
    assert "sharegpt" in fault.what


def test_adaptive_rounds_must_add_some(tmp_path):
    """A cap that the fixed rounds reach already is a fault of its key; above it, rounds count."""
    text = VALID + "protocol:\n  launches: 3\n  adaptive: {max_launches: MOST, width: 0.05}\n"
    (fault,) = faults(tmp_path, text.replace("MOST", "3"))
    assert fault.key == "protocol.adaptive.max_launches"
    assert load(tmp_path, text.replace("MOST", "6")).protocol.rounds == 6


def test_the_original_prompts_end_by_themselves(tmp_path):
    """Their formula is that of the notes, which ignored no end."""
    text = VALID.replace("class: short", "class: original\n    ignore_eos: true")
    (fault,) = faults(tmp_path, text)
    assert "no `ignore_eos`" in fault.what


def test_an_open_loop_has_no_concurrency(tmp_path):
    """The two modes are two workloads."""
    text = VALID.rstrip() + "\n    arrivals_per_s: [1, 2]\n"
    loads = load(tmp_path, text).workloads["short"].loads
    assert loads == ((1, 1.0), (1, 2.0))
    (fault,) = faults(tmp_path, text + "    concurrency: [4]\n")
    assert "use two workloads" in fault.what


@pytest.mark.parametrize(
    ("keys", "words"),
    [
        ("", "set a `temperature`"),
        ("    temperature: 1\n    route: chat\n", "by token ids"),
        ("    temperature: 1\n    arrivals_per_s: [1]\n", "closed loop"),
    ],
)
def test_draws_must_be_comparable(tmp_path, keys, words):
    """Greedy answers, answers without ids and open loops make no samples of a distribution."""
    (fault,) = faults(tmp_path, VALID.rstrip() + "\n    draws: 200\n" + keys)
    assert words in fault.what


ROUNDS = """
run: rounds
servers: {{ar: {{model: m}}}}
workloads:
  plain: {{class: longform, prompts: p.jsonl}}
  thinking: {{{thinking}, prompts: p.jsonl, rounds: [1, 2]}}
protocol: {{launches: {launches}}}
"""


def test_a_class_has_the_same_rounds_throughout(tmp_path: Path) -> None:
    """Two rounds beside three: no prompt of `thinking` is in all of them."""
    path = tmp_path / "config.yaml"
    path.write_text(ROUNDS.format(thinking="class: longform", launches=3), encoding="utf-8")
    with pytest.raises(ConfigError) as error:
        load_config(path)
    (fault,) = error.value.faults
    assert (fault.key, fault.line) == ("workloads.thinking.rounds", 6)
    assert "measured in other rounds (1, 2, 3, not 1, 2)" in fault.what


@pytest.mark.parametrize(
    ("thinking", "launches"),
    [
        ("class: longform", 2),  # all rounds that there are
        ("class: short", 3),  # a class of its own
        ("class: longform, ignore_eos: true", 3),  # enters no comparison
        ("class: longform, arrivals_per_s: [1]", 3),  # so do open loops
    ],
)
def test_rounds_are_free_where_nothing_drops_out(
    tmp_path: Path, thinking: str, launches: int
) -> None:
    """Equal rounds by another name, another class, cells that are counted apart."""
    path = tmp_path / "config.yaml"
    path.write_text(ROUNDS.format(thinking=thinking, launches=launches), encoding="utf-8")
    assert load_config(path).workloads["thinking"].rounds == (1, 2)
