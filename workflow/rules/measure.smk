"""One job per server launch: start, identify, warm up, measure, stop."""

# One server at a time on this machine's device, whatever --cores says.
workflow.register_resource("gpu", 1)


rule session_spec:
    """Write what a session measures into the file that the session reads."""
    output:
        spec=RUN.session("{server}", "{launch}") / "spec.json",
    log:
        f"{LOGS}/session_spec/{{server}}-{{launch}}.log",
    localrule: True
    conda:
        "../../envs/workflow.yaml"
    params:
        text=spec_text,
    script:
        "../scripts/session_spec.py"


rule replies:
    """Hold conversations once with the baseline, for all servers to go on with its replies."""
    input:
        config=ancient(RUN.root / "config.json"),
        models=baseline_models,
    output:
        replies=RUN.replies,
    log:
        f"{LOGS}/replies.log",
    retries: CONFIG.protocol.attempts - 1
    conda:
        "../../envs/workflow.yaml"
    resources:
        gpu=1,
        attempt=attempt_number,
    params:
        asked=REPLIES,
    shell:
        "python -m ddtree_bench.rounds.replies {input.config} --results results"
        " --attempt {resources.attempt} 2>&1 | tee -i {log} >&2"


rule session:
    """Measure one launch of one server; a server that fails is a result, not a broken DAG."""
    input:
        spec=rules.session_spec.output.spec,
        models=made_models,
        replies=rules.replies.output.replies if REPLIES else [],
        # all sessions become ready together, so that priority alone decides their order
        together=ancient(SPEC_FILES),
    output:
        launch=RUN.session("{server}", "{launch}") / "launch.json",
        cells=RUN.session("{server}", "{launch}") / "cells.jsonl",
        logprobs=RUN.session("{server}", "{launch}") / "logprobs.jsonl",
    log:
        f"{LOGS}/session/{{server}}-{{launch}}.log",
    priority: turn_priority
    retries: CONFIG.protocol.attempts - 1
    conda:
        "../../envs/workflow.yaml"
    resources:
        gpu=1,
        attempt=attempt_number,
    params:
        protocol=PROTOCOL,
    shell:
        # -i: on Ctrl-C the log is kept until the session has stopped its server
        "python -m ddtree_bench.session --spec {input.spec} --results results"
        " --attempt {resources.attempt} 2>&1 | tee -i {log} >&2"
