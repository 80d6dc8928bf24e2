# make report    set everything up, measure what is not measured yet, write report/ddtree.pdf
# make test      the quick tests;  make test-all adds those that take minutes
# make lint      ruff, snakefmt, mypy, snakemake --lint
# make plan      show sessions, cells and expected minutes; starts nothing
# make retry     try failed measurements again
# make docs      write the pages that are made from the code
# make clean     remove results and reports;  make distclean also removes environments and models
#
# CONFIG=config/mine.yaml takes another configuration, PYTHON=… another interpreter.

CONFIG ?= config/config.yaml
CORES  ?= 1
WORKFLOW := .venv
REFERENCE := .venv-reference
PATH := $(CURDIR)/$(WORKFLOW)/bin:$(PATH)
export PATH
export PYTHONPATH := $(CURDIR)/src

.PHONY: report plan retry env env-dev test test-all lint docs clean distclean help

report: env
	snakemake --cores $(CORES) --configfile $(CONFIG)

plan: env
	python -m ddtree_bench.plan $(CONFIG)

retry: env
	scripts/retry $(CONFIG) $(CORES)

env:
	@scripts/make-env $(WORKFLOW) envs/workflow.txt $$(scripts/tex-requirements)
	@scripts/make-env $(REFERENCE) envs/reference.txt

env-dev:
	@scripts/make-env $(WORKFLOW) envs/workflow.txt envs/dev.txt $$(scripts/tex-requirements)
	@scripts/make-env $(REFERENCE) envs/reference.txt envs/dev.txt

test: env-dev
	scripts/test -m "not heavy"

test-all: env-dev
	scripts/test

lint: env-dev
	scripts/lint

docs: env
	python -m ddtree_bench.config.document --fix

clean:
	rm -rf results logs report/*.pdf report/build .snakemake

distclean: clean
	rm -rf $(WORKFLOW) $(REFERENCE) models/SmolLM2-135M-Instruct

help:
	@sed -n '/^#/!q;s/^# \{0,1\}//p' Makefile
