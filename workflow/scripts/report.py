"""Fill the report's template and compile it."""

from pathlib import Path

from ddtree_bench.config import Config
from ddtree_bench.logs import log_to
from ddtree_bench.report.build import build_report

with log_to(snakemake.log[0]):
    build_report(
        Path(snakemake.input.tables),
        Path(snakemake.input.figures),
        Config.model_validate_json(Path(snakemake.input.config).read_bytes()),
        Path(snakemake.output.tex),
        Path(snakemake.output.pdf),
    )
