"""From tables to figures."""


rule charts:
    """Draw the report's figures from its tables."""
    input:
        config=rules.resolved_config.output.config,
        tables=rules.aggregate.output.tables,
        source=sources("charts/*.py"),
    output:
        figures=directory(RUN.figures),
    params:
        fingerprint=FINGERPRINT,
    log:
        f"{LOGS}/charts.log",
    conda:
        "../../envs/workflow.yaml"
    script:
        "../scripts/charts.py"
