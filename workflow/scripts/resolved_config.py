"""Write the configuration with its defaults filled in."""

from pathlib import Path

Path(snakemake.output.config).write_text(snakemake.params.text, encoding="utf-8")
