"""From launching each server to the paper that says which one to run."""

from snakemake.utils import min_version

min_version("9.27")


include: "workflow/rules/common.smk"
include: "workflow/rules/models.smk"
include: "workflow/rules/measure.smk"
include: "workflow/rules/aggregate.smk"
include: "workflow/rules/charts.smk"
include: "workflow/rules/report.smk"


rule all:
    default_target: True
    input:
        PDF,
    localrule: True
