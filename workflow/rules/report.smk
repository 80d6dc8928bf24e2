"""From tables and figures to the PDF."""


rule report:
    """Fill the template and compile it."""
    input:
        config=rules.resolved_config.output.config,
        tables=rules.aggregate.output.tables,
        figures=rules.charts.output.figures,
        template=files("report/template"),
        texmf=files("report/texmf"),
        power="benchmarks/power.json",
        source=sources(
            "columns.py",
            "charts/d*.py",
            "config/*.py",
            "stats/verdict.py",
            "report/*.py",
            "vocabulary.py",
        ),
    output:
        pdf=PDF,
        tex=f"report/build/{CONFIG.run}/{CONFIG.run}.tex",
    log:
        f"{LOGS}/report.log",
    conda:
        "../../envs/workflow.yaml"
    params:
        fingerprint=FINGERPRINT,
    script:
        "../scripts/report.py"
