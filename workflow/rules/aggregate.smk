"""From raw request lines to tables."""


rule resolved_config:
    """Keep the configuration beside the results, defaults filled in."""
    output:
        config=RUN.root / "config.json",
    log:
        f"{LOGS}/resolved_config.log",
    localrule: True
    conda:
        "../../envs/workflow.yaml"
    params:
        text=CONFIG.model_dump_json(by_alias=True, indent=1),
    script:
        "../scripts/resolved_config.py"


rule aggregate:
    """Derive all tables from the request lines of all sessions."""
    input:
        config=rules.resolved_config.output.config,
        launches=[session / "launch.json" for session in SESSIONS],
        cells=[session / "cells.jsonl" for session in SESSIONS],
        logprobs=[session / "logprobs.jsonl" for session in SESSIONS],
        published="workflow/resources/published/original_notes.csv",
        source=sources(
            "columns.py",
            "config/*.py",
            "errors.py",
            "findings.py",
            "json_lines.py",
            "session/capacity.py",
            "session/logprobs.py",
            "metrics.py",
            "records.py",
            "stats/*.py",
            "status.py",
            "session/store.py",
            "tables/*.py",
            "vocabulary.py",
        ),
    output:
        tables=directory(RUN.tables),
    log:
        f"{LOGS}/aggregate.log",
    conda:
        "../../envs/workflow.yaml"
    params:
        fingerprint=FINGERPRINT,
    script:
        "../scripts/aggregate.py"
