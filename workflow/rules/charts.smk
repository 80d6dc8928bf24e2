"""From tables to figures."""


rule charts:
    """Draw the report's figures from its tables."""
    input:
        config=rules.resolved_config.output.config,
        tables=rules.aggregate.output.tables,
        source=sources("columns.py", "config/*.py", "charts/*.py"),
    output:
        figures=directory(RUN.figures),
    log:
        f"{LOGS}/charts.log",
    conda:
        "../../envs/workflow.yaml"
    params:
        fingerprint=FINGERPRINT,
    script:
        "../scripts/charts.py"
