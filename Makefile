# Two commands do all the set-up: `make demo` and `make test`. `make help` lists the others.
PYTHON ?= python3
VENV := .venv/bin
MANAGE := $(VENV)/python workflow_scripts/manage.py
CONFIG ?= config/config.yaml
CORES ?= all
# What `make test` runs, and by how many processes at a time.
TESTS ?= not slow and not gpu and not slurm
WORKERS ?= 2

# A value as one word for the shell, whatever is in it.
quoted = '$(subst ','\'',$(1))'

PAPER ?= marco
SCALE ?= 0.001
QUESTIONS ?= 1

.PHONY: demo help new check-released rehearse test test-slow test-gpu test-faults test-mutants test-slurm test-pythons status lint forecast joint doctor kit report \
	figures picture verify prune schema lock

demo: .venv/installed  ## run the embedded default and print its table
	$(VENV)/snakemake --cores $(CORES)
	@cat results/tables/main.md

help:  ## list these targets
	@sed -n 's/^\([a-z-]*\):.*  ## /\1\t/p' Makefile | expand -t 14

check-released: .venv/installed  ## what published checkpoints of CONFIG (several files in quotes) score, beside what is published
	$(VENV)/snakemake published_checkpoints --cores $(CORES) --configfile $(CONFIG)

test: .venv/installed lint  ## lint, then unit tests and the real workflow at toy size
	$(VENV)/python -m pytest -n $(WORKERS) --dist loadfile --no-loadscope-reorder -m "$(TESTS)"

test-slow: .venv/installed  ## the tests that take minutes
	$(VENV)/python -m pytest -m "slow and not gpu and not slurm"

test-gpu: .venv/installed  ## the tests that need a CUDA device
	$(VENV)/python -m pytest -m gpu

test-faults: .venv/installed  ## faults of every kind, CASES bad inputs of each reader; FAULT_LOG=FILE keeps a log of the cases
	FAULT_CASES=$(or $(CASES),250) $(VENV)/python -m pytest -n 2 -m faults tests/faults

test-mutants: .venv/installed  ## whether the tests notice when a line that keeps a promise is broken, in copies
	$(VENV)/python tests/faults/mutants.py

test-slurm: .venv/installed  ## the workflow on a one-node Slurm cluster; installs Debian's packages, needs root
	$(VENV)/python -m pytest -m slurm tests/slurm

test-pythons:  ## settings and plan on Python 3.12 and 3.13, where they are installed
	.ci/pythons

new: .venv/installed  ## config/NAME.yaml for your own collection in the folder FROM; TEST, DEV: splits whose names do not say it
	@[ $(call quoted,$(NAME)) ] && [ $(call quoted,$(FROM)) ] || { \
	echo "error: make new needs NAME and FROM: make new NAME=mine FROM=folder" >&2; exit 1; }
	@$(MANAGE) new $(if $(TEST),--test $(call quoted,$(TEST))) $(if $(DEV),--dev $(call quoted,$(DEV))) -- \
		$(call quoted,$(NAME)) $(call quoted,$(FROM))

status: .venv/installed  ## what runs where, and how much of CONFIG (several files in quotes) is finished
	@$(MANAGE) status $(CONFIG)

lint: .venv/installed  ## ruff, snakefmt, Snakemake's own lint, and where Node.js is the syntax of the page's JavaScript
	$(VENV)/ruff check .
	$(VENV)/ruff format --check .
	$(VENV)/snakefmt --check Snakefile rules
	$(VENV)/snakemake --lint
	@for file in workflow_scripts/teleport/report/page/assets/*.js; do \
	if command -v node > /dev/null; then node --check $$file || exit 1; fi; done

forecast: .venv/installed  ## stages, disk, memory, time and critical path of CONFIG on HARDWARE; CORES, GPUS, MEMORY (GB), SHARDS, RESOURCES (train:gpu=8)
	@$(MANAGE) forecast $(if $(HARDWARE),--hardware $(HARDWARE)) $(if $(GPUS),--gpus $(GPUS)) \
		$(if $(filter-out all,$(CORES)),--cores $(CORES)) $(if $(MEMORY),--memory $(MEMORY)) \
		$(if $(SHARDS),--set-scatter encode=$(SHARDS)) $(CONFIG) $(if $(RESOURCES),--set-resources $(RESOURCES))

doctor: .venv/installed  ## try what CONFIG needs of this machine, a verdict a line: GPU, driver, locks, memory, disk, a step, a search
	@$(MANAGE) doctor $(CONFIG)

kit: .venv/installed  ## what a GPU machine without a network needs, in one file: KIT (default: results/kit.tar.xz)
	$(VENV)/python bench/kit.py $(KIT)
joint: .venv/installed  ## TABLE of config/published from the finished stages of several configurations, their files in CONFIG
	@$(MANAGE) joint $(or $(TABLE),ance-tele-table-1) $(CONFIG)

rehearse: .venv/installed  ## PAPER (all: every row of every paper configuration) at SCALE of its counts, with drawn texts and miniature encoders; QUESTIONS: of the training ones; CONFIGS: after the paper's
	$(VENV)/python bench/rehearse.py $(PAPER) --scale $(SCALE) --questions $(QUESTIONS) $(if $(CONFIGS),--configs $(CONFIGS))

report: .venv/installed  ## the report page of CONFIG (several files in quotes) from what is finished; QUERIES; SHARE=FILE: as one file
	$(MANAGE) report $(if $(QUERIES),--queries $(QUERIES)) $(if $(SHARE),--share '$(SHARE)') $(CONFIG)

figures: .venv/installed  ## charts of CONFIG (several files in quotes) as PDF and PNG for a paper
	$(MANAGE) figures $(CONFIG)

picture: .venv/installed  ## docs/report.png: the first page of the embedded default as it is now; needs Chromium
	$(VENV)/python tests/report/page/browser.py results/report/_page/index.html docs/report.png

verify: .venv/installed  ## check every artefact by its full SHA-256
	$(MANAGE) verify

prune: .venv/installed  ## list stages that neither CONFIG nor a finished result uses; DELETE=--delete removes them
	$(MANAGE) prune $(DELETE) $(CONFIG)

schema: .venv/installed  ## regenerate config/schema.json and the tables of config/README.md from the settings
	$(MANAGE) schema

lock:  ## resolve requirements.in anew
	rm -rf .venv-lock && $(PYTHON) -m venv .venv-lock
	.venv-lock/bin/python -m pip install -r requirements.in
	(head -n 1 requirements.lock; .venv-lock/bin/python -m pip freeze | sed 's/+cpu$$//') > requirements.lock.part
	mv requirements.lock.part requirements.lock && rm -rf .venv-lock

.venv/installed: requirements.lock
	@$(PYTHON) -c 'import sys; v = "%d.%d" % sys.version_info[:2]; sys.version_info >= (3, 11) or sys.exit( \
	"error: $(PYTHON) is Python " + v + ", the workflow needs 3.11 or later. Name one: make PYTHON=python3.11 demo")'
	$(PYTHON) -m venv .venv
	$(VENV)/python -m pip install --quiet --disable-pip-version-check --no-compile -r requirements.lock
	$(VENV)/python -m compileall -q -j 0 -x '/tests/' .venv/lib > .venv/compiled.log || true  # pip would do it on one core
	touch $@
