"""Draw the report's figures."""

from pathlib import Path

from ddtree_bench.charts.draw import draw_figures
from ddtree_bench.config import Config
from ddtree_bench.logs import log_to

with log_to(snakemake.log[0]):
    config = Config.model_validate_json(Path(snakemake.input.config).read_bytes())
    draw_figures(Path(snakemake.input.tables), Path(snakemake.output.figures), config)
