# make report    set everything up, measure what is not measured yet, write report/ddtree.pdf
# make test      the quick tests;  make test-all adds those that take minutes, make test-extended
#                the plug-in's cases with a server of their own
# make lint      ruff, snakefmt, mypy, snakemake --lint
# make plan      show sessions, cells and expected minutes; starts nothing
# make retry     try failed measurements again
# make again SERVER=NAME  measure a server once more, with all that share rounds with it;
#                WITH=opponents or WITH=alone measures fewer and names the pairs that lose their verdict
# make report-sglang-cpu  the same pipeline on stock SGLang without a GPU (a check, 9 GB to install)
# make report-example     the report of the H200 run from its raw results; no GPU needed
# make docs      write the pages that are made from the code
# make clean     remove what is made from the measurements: tables, charts, reports, their logs
# make clean-results   remove the MEASUREMENTS of all runs, too; they take hours to make again
# make distclean       remove measurements, environments and the model that is made here
#
# SAMPLE=full (or a number) replaces the samples of the workloads, in all targets that measure.
# CONFIG=config/mine.yaml takes another configuration, PYTHON=… another interpreter.

CONFIG ?= config/config.yaml
CORES  ?= 1
SAMPLE ?=
WORKFLOW := .venv
REFERENCE := .venv-reference
SGLANG_CPU := .venv-sglang-cpu
PATH := $(CURDIR)/$(WORKFLOW)/bin:$(PATH)
export PATH
export PYTHONPATH := $(CURDIR)/src

OF_RUN := $(CONFIG) $(if $(SAMPLE),--sample $(SAMPLE))
SNAKEMAKE = snakemake --cores $(CORES) --configfile $(CONFIG) $(if $(SAMPLE),--config sample=$(SAMPLE))

.PHONY: report report-sglang-cpu report-example plan retry again test test-all test-extended lint docs
.PHONY: env env-workflow env-dev env-sglang-cpu env-sglang-cpu-dev clean clean-results distclean help

report: env
	$(SNAKEMAKE)

report-sglang-cpu: env-workflow env-sglang-cpu
	snakemake --cores $(CORES) --configfile config/sglang-cpu.yaml

report-example: env-workflow
	mkdir -p results/h200-smollm2
	tar -xzf examples/h200-smollm2/sessions.tar.gz -C results/h200-smollm2
	python -m ddtree_bench.report examples/h200-smollm2/config.yaml results/h200-smollm2/sessions

plan: env-workflow
	python -m ddtree_bench.rounds.plan $(OF_RUN)

retry: env
	scripts/retry $(CONFIG) $(CORES) $(SAMPLE)

again: env
	python -m ddtree_bench.rounds.again $(OF_RUN) $(SERVER) $(if $(WITH),--$(WITH))
	$(SNAKEMAKE)

env-workflow:
	@scripts/make-env $(WORKFLOW) envs/workflow.txt $$(scripts/tex-requirements)

env: env-workflow
	@scripts/make-env $(REFERENCE) envs/reference.txt

env-dev:
	@scripts/make-env $(WORKFLOW) envs/workflow.txt envs/dev.txt $$(scripts/tex-requirements)
	@scripts/make-env $(REFERENCE) envs/reference.txt envs/dev.txt

env-sglang-cpu:
	@PINS= scripts/make-env $(SGLANG_CPU) envs/sglang-cpu.txt

env-sglang-cpu-dev:
	@PINS= scripts/make-env $(SGLANG_CPU) envs/sglang-cpu.txt envs/sglang-cpu-dev.txt

test: env-dev
	scripts/test -m "not heavy and not extended"

test-all: env-dev env-sglang-cpu-dev
	scripts/test -m "not extended"

test-extended: env-dev env-sglang-cpu-dev
	python -m pytest -m extended tests/real

lint: env-dev
	scripts/lint

docs: env-workflow
	python -m ddtree_bench.config.document --fix

# .snakemake stays: it knows with which configuration the measurements were made
clean:
	rm -rf results/*/tables results/*/figures report/*.pdf report/build logs/*/*.log

clean-results: clean
	rm -rf results logs .snakemake

distclean: clean-results
	rm -rf $(WORKFLOW) $(REFERENCE) $(SGLANG_CPU) models/SmolLM2-135M-Instruct

help:
	@sed -n '/^#/!q;s/^# \{0,1\}//p' Makefile
