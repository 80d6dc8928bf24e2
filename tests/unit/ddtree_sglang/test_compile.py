"""The kernels compiled for GPUs that are not here: Triton needs only its own assembler."""

import json
import subprocess
import sys

import pytest

pytest.importorskip("torch", reason="the kernels work on tensors")
pytest.importorskip("triton", reason="the kernels are written in Triton")

SHARED_MEMORY_BYTES = 99 * 1024
"""What a program may take on sm_120; sm_90 has more."""

# A process of its own: this one's Triton interprets kernels instead of compiling them.
PROGRAM = """
import json, sys
import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource
from ddtree_sglang import candidates_kernel, move_kernel, path_kernel, tree_kernel

def compiled(kernel, pointers, constants, warps):
    names = kernel.arg_names
    signature = {n: "constexpr" if n in constants else pointers.get(n, "*i32") for n in names}
    source = ASTSource(kernel, signature, constexprs=constants)
    made = triton.compile(
        source, target=GPUTarget("cuda", int(sys.argv[1]), 32), options={"num_warps": warps}
    )
    return made.metadata.shared

longs = dict.fromkeys(
    ("ids", "bonus", "prefix_lens", "tokens", "children", "siblings", "positions"), "*i64"
)
floats = dict.fromkeys(("log_probs", "scores"), "*fp32")
grow = lambda width, lanes, warps: compiled(
    tree_kernel._grow, longs | floats | {"mask": "*u8"},
    dict(LEVELS=15, TOPK=8, WIDTH=width, LANES=lanes, RANKS=8, LEVEL_LANES=16, FULL_MASK=True,
         BONUS_STRIDE=16, PREFIX_STRIDE=16, REQUEST_LANES=64), warps)
parts = dict(TOPK=8, SLOTS=8, WORDS=18, LAST=2**31 - 1)
merge = lambda count, lanes, final: compiled(
    candidates_kernel._merge_parts,
    dict(parts="*fp32", part="*fp32", log_probs="*fp32", ids="*i64"),
    parts | dict(PARTS=count, PART_LANES=lanes, FINAL=final), 4)
print(json.dumps({
    "tree 16": grow(16, 16, 1),
    "tree 65": grow(65, 128, 1),
    "tree 256": grow(256, 256, 2),
    "path": compiled(path_kernel._accept, longs | dict.fromkeys(
        ("predicted", "slots", "path_rows", "sources", "targets", "report_tokens", "report_bonus",
         "report_new_lens", "report_lens", "report_counts"), "*i64"),
        dict(DEPTH=15, LEVELS=15, TOPK=8, WIDTH=65, LANES=128, RANK_LANES=8, LEVEL_LANES=16), 1),
    "move": compiled(move_kernel._move, dict.fromkeys(
        ("buffers", "strides", "targets", "sources"), "*i64") | {"moves": "i32"},
        dict(LANES=256, BYTES=128), 4),
    "move of large entries": compiled(move_kernel._move, dict.fromkeys(
        ("buffers", "strides", "targets", "sources"), "*i64") | {"moves": "i32"},
        dict(LANES=128, BYTES=512), 8),
    "pieces": compiled(candidates_kernel._reduce_pieces,
        {"logits": "*bf16", "pieces": "*fp32"} | dict.fromkeys(
            ("stride", "VOCABULARY", "FIRST_TOKEN"), "i32"),
        parts | dict(PIECE=4096), 4),
    "merge": merge(38, 64, True),
    "merge to a rank's part": merge(19, 32, False),
    "merge of two ranks": merge(2, 2, True),
}))
"""


@pytest.mark.parametrize("capability", ["90", "120"])
def test_the_kernels_compile_and_fit(capability: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """For Hopper and for consumer Blackwell, with the shared memory that the smaller one has."""
    monkeypatch.delenv("TRITON_INTERPRET", raising=False)
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, capability], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    shared = json.loads(done.stdout)
    assert len(shared) == 10
    assert max(shared.values()) <= SHARED_MEMORY_BYTES, shared
