"""Write a session's specification."""

from pathlib import Path

Path(snakemake.output.spec).write_text(snakemake.params.text, encoding="utf-8")
