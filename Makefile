# `make demo` and `make test` do all the set-up. `make help` lists the others; all about results is a command of
# .venv/bin/teleport.
PYTHON ?= python3
override VENV := .venv/bin
CORES ?= all
# What `make test` runs; how many processes run tests at a time, slow ones too; how many bad inputs of each reader
# `make test-faults` draws.
TESTS ?= not slow and not rest and not gpu and not slurm
WORKERS ?= 2
CASES ?= 250
unexport PYTHON CORES TESTS WORKERS CASES  # make would expand them for the environment of commands

# $(call quoted,NAME): the value of a variable as one word of the shell, whatever is in it. It is not expanded again, and
# a line break, at which make would begin another command, becomes a space.
override define newline


endef
override quoted = '$(subst ','\'',$(subst $(newline), ,$(value $1)))'

.PHONY: demo help test lint test-slow test-gpu test-faults test-mutants test-slurm test-pythons picture lock

demo: .venv/installed  ## run the embedded default and print its table
	$(VENV)/snakemake --cores $(call quoted,CORES)
	@cat results/tables/main.md

help:  ## list these targets
	@sed -n 's/^\([a-z-]*\):.*  ## /\1\t/p' Makefile | expand -t 14

test: .venv/installed lint  ## lint, then unit tests and the real workflow at toy size
	$(VENV)/python -m pytest -n $(call quoted,WORKERS) --dist loadfile --no-loadscope-reorder -m $(call quoted,TESTS)

lint: .venv/installed  ## ruff, snakefmt, Snakemake's own lint, and where Node.js is the syntax of the page's JavaScript
	$(VENV)/ruff check .
	$(VENV)/ruff format --check .
	$(VENV)/snakefmt --check Snakefile rules
	$(VENV)/snakemake --lint
	@for file in workflow_scripts/teleport/report/page/assets/*.js; do \
	if command -v node > /dev/null; then node --check $$file || exit 1; fi; done

test-slow: .venv/installed  ## the tests that take minutes, and the cases that `make test` leaves out
	$(VENV)/python -m pytest -n $(call quoted,WORKERS) --dist loadfile -m "(slow or rest) and not gpu and not slurm"

test-gpu: .venv/installed  ## the tests that need a CUDA device
	$(VENV)/python -m pytest -m gpu

test-faults: .venv/installed  ## faults of every kind, CASES bad inputs of each reader; FAULT_LOG=FILE keeps a log of the cases
	FAULT_CASES=$(call quoted,CASES) $(VENV)/python -m pytest -n 2 -m faults tests/faults

test-mutants: .venv/installed  ## whether the tests notice when a line that keeps a promise is broken, in copies
	$(VENV)/python tests/faults/mutants.py

test-slurm: .venv/installed  ## the workflow on a one-node Slurm cluster; installs Debian's packages, needs root
	$(VENV)/python -m pytest -m slurm tests/slurm

test-pythons:  ## settings and plan on Python 3.12 and 3.13, where they are installed
	.ci/pythons

picture: .venv/installed  ## docs/report.png: the first page of the embedded default as it is now; needs Chromium
	$(VENV)/python tests/report/page/browser.py results/report/_page/index.html docs/report.png

lock:  ## resolve requirements.in again
	rm -rf .venv-lock && $(call quoted,PYTHON) -m venv .venv-lock
	.venv-lock/bin/python -m pip install -r requirements.in
	(head -n 1 requirements.lock; .venv-lock/bin/python -m pip freeze --all | grep -v '^pip==' | sed 's/+cpu$$//') > requirements.lock.part
	mv requirements.lock.part requirements.lock && rm -rf .venv-lock

.venv/installed: requirements.lock pyproject.toml
	@$(call quoted,PYTHON) -c 'import sys; v = "%d.%d" % sys.version_info[:2]; (3, 11) <= sys.version_info < (3, 14) or sys.exit( \
	"error: " + sys.argv[1] + " is Python " + v + ", the workflow needs 3.11 to 3.13. Name one: " \
	"make PYTHON=python3.11 demo")' $(call quoted,PYTHON)
	$(call quoted,PYTHON) -m venv .venv
	$(VENV)/python -m pip install --quiet --disable-pip-version-check --no-compile -r requirements.lock
	$(VENV)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e .
	@# pip would compile on one core, and the models that nobody loads
	$(VENV)/python -m compileall -q -j 0 -x '/(tests|testing|models|pip)/' .venv/lib > .venv/compiled.log || true
	touch $@
