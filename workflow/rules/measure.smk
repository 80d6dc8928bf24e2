"""One job per server launch: start, identify, warm up, measure, stop."""

# One server at a time on this machine's device, whatever --cores says.
workflow.register_resource("gpu", 1)


rule session_spec:
    """Write what a session measures into the file that the session reads."""
    output:
        spec=RUN.session("{server}", "{launch}") / "spec.json",
    params:
        text=spec_text,
    localrule: True
    log:
        f"{LOGS}/session_spec/{{server}}-{{launch}}.log",
    conda:
        "../../envs/workflow.yaml"
    script:
        "../scripts/session_spec.py"


rule session:
    """Measure one launch of one server; a server that fails is a result, not a broken DAG."""
    input:
        spec=rules.session_spec.output.spec,
        models=made_models,
    output:
        launch=RUN.session("{server}", "{launch}") / "launch.json",
        cells=RUN.session("{server}", "{launch}") / "cells.jsonl",
    params:
        protocol=PROTOCOL,
    priority: turn_priority
    retries: CONFIG.protocol.attempts - 1
    resources:
        gpu=1,
        attempt=attempt_number,
    log:
        f"{LOGS}/session/{{server}}-{{launch}}.log",
    conda:
        "../../envs/workflow.yaml"
    shell:
        "python -m ddtree_bench.session --spec {input.spec} --results results"
        " --attempt {resources.attempt} --log {log}"
