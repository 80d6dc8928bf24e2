"""What the GPU check reckons, without a GPU."""

import importlib.util
import json
import sys
from collections import Counter
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

MODULES = (
    *("servers", "asking", "estimates", "findings", "run", "sameness", "soak"),
    *("padding", "grammar", "hybrid"),
)
FOLDER = Path(__file__).parents[3] / "benchmarks" / "ddtree_sglang"


def load(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, FOLDER / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # they import each other by name
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module", autouse=True)
def _modules() -> None:
    for name in MODULES:
        load(name)


def test_a_ratio_of_pooled_figures() -> None:
    """Seconds a step, pooled: (3 + 9) ÷ (2 + 4) = 2 against (4 + 2) ÷ (4 + 2) = 1."""
    estimates = sys.modules["estimates"]
    found = estimates.ratio(estimates.Sums([3, 9], [2, 4]), estimates.Sums([4, 2], [4, 2]))
    assert found.value == pytest.approx(2)
    assert found.low <= 2 <= found.high
    swapped = estimates.ratio(estimates.Sums([4, 2], [4, 2]), estimates.Sums([3, 9], [2, 4]))
    assert swapped.value == pytest.approx(1 / 2)


def test_intervals_of_a_ratio_hold_the_truth() -> None:
    """Of 200 samples of 30 pairs 95 % should; fewer than 88 % by chance once in 1e5."""
    estimates = sys.modules["estimates"]
    rng = np.random.default_rng(0)
    held = 0
    for _ in range(200):
        steps = rng.integers(20, 60, 30)
        slow, fast = (steps * mean * rng.lognormal(0, 0.1, 30) for mean in (1.2, 1.0))
        found = estimates.ratio(estimates.Sums(slow, steps), estimates.Sums(fast, steps))
        held += found.low <= 1.2 <= found.high
    assert held >= 176


def test_equal_distributions_are_told_from_others() -> None:
    """Rare values count as one; a shift of a fifth of the draws is seen."""
    scipy_stats = pytest.importorskip("scipy.stats")
    estimates = sys.modules["estimates"]
    some = Counter({(1,): 500, (2,): 480, **{(n,): 1 for n in range(10, 30)}})
    same = Counter({(1,): 510, (2,): 470, **{(n,): 1 for n in range(40, 60)}})
    other = Counter({(1,): 700, (2,): 280, **{(n,): 1 for n in range(10, 30)}})
    assert estimates.same_distribution(some, same) > 0.5
    assert estimates.same_distribution(some, other) < 1e-9
    table = [[500, 480, 20], [510, 470, 20]]
    assert estimates.same_distribution(some, same) == pytest.approx(
        scipy_stats.chi2_contingency(table).pvalue
    )


def test_trees_are_compared_up_to_where_the_texts_part() -> None:
    """A tree hangs on the text before it; behind the parting, two trees have nothing in common."""
    asking, sameness = sys.modules["asking"], sys.modules["sameness"]

    def answer(ids: tuple[int, ...], third: int) -> object:
        step = {"tokens": [1, 2], "parents": [-1, 0], "path": [0, 1]}
        trace = [None, step, None, step | {"tokens": [1, third]}, step]
        return asking.Answer(ids, 3, 2, 0.0, 0.0, 1.0, {"ddtree_trace": trace})

    whole = answer((5, 6, 7, 8, 9), third=4)
    assert sameness.equal_trees(whole, answer((5, 6, 7, 8, 9), third=4)) == (3, 3)
    assert sameness.equal_trees(whole, answer((5, 6, 7, 8, 9), third=3)) == (2, 3)
    assert sameness.equal_trees(whole, answer((5, 6, 7, 0, 9), third=3)) == (1, 1)


def test_acceptance_is_compared_while_the_texts_are_the_same() -> None:
    """Steps that end before the texts part at the seventh token.

    The second text is the same to its end, where a step may have been cut.
    """
    sameness = sys.modules["sameness"]
    texts = [[7, 1, 2, 3, 4, 5, 6, 8], [9, 1, 2, 3]]
    parted = [7, 1, 2, 3, 4, 5, 0, 0]
    found = sameness._against_reference(
        [(parted, [3, 1, 3]), (texts[1], [2, 1])], texts, [[4, 3], [3]]
    )
    assert found["acceptance_length"] == pytest.approx((3 + 1 + 2) / 3)
    assert found["reference"] == pytest.approx(4)
    assert (found["steps"], found["reference_steps"], found["same_texts"]) == (3, 1, 1)
    assert found["whole_acceptance_length"] == pytest.approx(10 / 5)


def test_constrained_answers_are_held_against_their_schema() -> None:
    """JSON of the schema's keys and types; not what merely parses."""
    grammar = sys.modules["grammar"]
    assert grammar._is_valid('{"name": "Nile", "kind": "river", "size": 6650}')
    for wrong in ('{"name": "Nile", "kind": "sea", "size": 1}', '{"name": "Nile"', "[]", "3"):
        assert not grammar._is_valid(wrong)


def test_a_target_says_whether_it_is_met(tmp_path: Path) -> None:
    """A missed one is written down like the others."""
    report = sys.modules["findings"].Report()
    report.target("step", 1.04, least=None, most=1.05)
    report.target("speed", 1.1, least=1.2, most=None)
    report.target("reported", 0.5, least=None, most=None)
    report.write(tmp_path)
    rows = json.loads((tmp_path / "report.json").read_text())["targets"]
    assert [row["met"] for row in rows] == [True, False, None]


def test_the_soak_mixes_all_kinds() -> None:
    """Both temperatures, short and long answers, some that are left; the same every time."""
    asking, soak = sys.modules["asking"], sys.modules["soak"]
    questions = [asking.Question("q", tuple(range(i, i + 90))) for i in range(10)]
    orders = soak.orders(questions, 500)
    assert orders == soak.orders(questions, 500)
    assert {order.sampling.get("temperature", 0.0) for order in orders} == {0.0, 1.0}
    assert {order.tokens for order in orders} == set(range(1, soak.MOST_TOKENS + 1))
    left = sum(order.leave_after is not None for order in orders)
    assert 5 <= left <= 60  # 25 are expected


@pytest.mark.parametrize(("wrong", "passes"), [(0.01, True), (0.0, True), (0.3, False)])
def test_a_state_that_leaks_is_seen(
    wrong: float, passes: bool, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The share of tokens that the target would not choose is held against plain decoding's."""
    asking, hybrid = sys.modules["asking"], sys.modules["hybrid"]
    report, rng = sys.modules["findings"].Report(), np.random.default_rng(0)
    fields = {"ddtree_accepted_by_rank": [3, 1]}

    class Fake:
        def __init__(self, name: str) -> None:
            self.name = name

        def loop(self, questions: list[object], *_: int, ignore_eos: bool) -> object:
            assert ignore_eos
            ids = (1,) if self.name == hybrid.EAGER else (0,)
            answer = asking.Answer(ids * 90, 30, 4, 0.0, 0.0, 1.0, fields)
            return asking.Loop([answer for _ in questions], 1.0)

        def regrets(self, _: object, answer: tuple[int, ...]) -> list[float]:
            share = wrong if answer[0] == 1 else 0.01
            return list(np.where(rng.random(len(answer)) < share, 4.0, 0.0))

    launch = sys.modules["servers"].Launch("target", "drafter", tmp_path)
    run = sys.modules["run"].Run(launch, {}, report, 8, 1, 0.0)
    monkeypatch.setattr(type(run), "servers", lambda _, *names: [Fake(name) for name in names])
    found = hybrid.compare(run)
    assert found[hybrid.EAGER]["alone"]["tokens"] == 90 * hybrid.PROMPTS
    outcome = report.checks[f"{hybrid.EAGER}: tokens are the target's choice"]
    assert outcome["passed"] is passes
    assert report.checks[f"{hybrid.EAGER}: siblings are accepted"]["found"] == hybrid.PROMPTS


def test_a_hybrid_model_is_a_checkpoint(tmp_path: Path) -> None:
    """Three of four layers are recurrent; the drafter's tensors are named as the shipped one's."""
    hybrid, padding = sys.modules["hybrid"], sys.modules["padding"]
    tokenizer, rng = tmp_path / "tokenizer", np.random.default_rng(0)
    tokenizer.mkdir()
    for name in ("tokenizer.json", "tokenizer_config.json"):
        (tokenizer / name).write_text("{}")
    weights = hybrid.target_weights(rng)
    assert sum("A_log" in name for name in weights) == 6
    assert sum("q_norm" in name for name in weights) == 2
    folder = hybrid.write_model(tmp_path / "m", hybrid.target_config(), weights, tokenizer)
    _, tensors = padding._read(folder / "model.safetensors")
    head = tensors["lm_head.weight"][1].view(np.float32)
    assert head.shape == (hybrid.VOCABULARY, hybrid.HIDDEN)
    assert np.array_equal(head, weights["lm_head.weight"])
    shipped = FOLDER.parents[1] / "models/smollm2-135m-dflash-b16/model.safetensors"
    own = {name for name in hybrid.drafter_weights(rng) if not name.startswith("layers.2.")}
    _, others = padding._read(shipped)
    assert own == {name for name in others if not name.startswith("layers.2.")}


def test_padding_adds_heads_of_zeros(tmp_path: Path) -> None:
    """Two key heads of size 2 and four queries become three and six; other weights stay."""
    padding, source = sys.modules["padding"], tmp_path / "model"
    source.mkdir()
    config = {"num_attention_heads": 4, "num_key_value_heads": 2, "hidden_size": 8}
    (source / "config.json").write_text(json.dumps(config))
    (source / "tokenizer.json").write_text("{}")
    bits = np.arange(1, 65, dtype=np.uint16).reshape(8, 8)
    tensors = {
        "model.layers.0.self_attn.q_proj.weight": ("BF16", bits),
        "model.layers.0.self_attn.k_proj.weight": ("BF16", bits[:4]),
        "model.layers.0.self_attn.o_proj.weight": ("BF16", bits),
        "model.norm.weight": ("BF16", bits[0]),
    }
    padding.write_tensors(source / "model.safetensors", {"format": "pt"}, tensors)
    into = padding.pad_heads(source, tmp_path / "padded", key_heads=3)
    metadata, padded = padding._read(into / "model.safetensors")
    shapes = [list(weight.shape) for _, weight in padded.values()]
    assert shapes == [[12, 8], [6, 8], [8, 12], [8]]
    for name, (_, weight) in padded.items():
        own = tensors[name][1]
        assert np.array_equal(weight[tuple(map(slice, own.shape))], own)
        assert weight.sum() == own.sum()  # the rest is zero
    assert metadata == {"format": "pt"}
    assert json.loads((into / "config.json").read_text()) == config | {
        "num_attention_heads": 6,
        "num_key_value_heads": 3,
        "head_dim": 2,
    }
    assert (into / "tokenizer.json").is_file()
