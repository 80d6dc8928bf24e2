"""Derive all tables from the sessions' request lines."""

from pathlib import Path

from ddtree_bench.config import Config
from ddtree_bench.logs import log_to
from ddtree_bench.tables.build import build_tables
from ddtree_bench.tables.write import write_tables

with log_to(snakemake.log[0]):
    config = Config.model_validate_json(Path(snakemake.input.config).read_bytes())
    folders = [Path(launch).parent for launch in snakemake.input.launches]
    write_tables(
        build_tables(folders, config),
        Path(snakemake.output.tables),
        Path(snakemake.input.published),
    )
