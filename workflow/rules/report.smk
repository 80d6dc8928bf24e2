"""From tables and figures to the PDF."""


rule report:
    """Fill the template and compile it."""
    input:
        config=rules.resolved_config.output.config,
        tables=rules.aggregate.output.tables,
        figures=rules.charts.output.figures,
        template="report/template/report.tex.j2",
        source=sources("report/*.py", "tex.py", "latex.py"),
    output:
        pdf=PDF,
        tex=f"report/build/{CONFIG.run}/{CONFIG.run}.tex",
    params:
        fingerprint=FINGERPRINT,
    log:
        f"{LOGS}/report.log",
    conda:
        "../../envs/workflow.yaml"
    script:
        "../scripts/report.py"
