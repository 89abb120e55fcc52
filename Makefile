# Two commands do all the set-up: `make demo` and `make test`.
PYTHON ?= python3
VENV := .venv/bin
CORES ?= all

.PHONY: demo test test-slow test-gpu test-slurm status lint forecast verify prune schema lock

demo: .venv/installed  ## run the embedded default and print its table
	$(VENV)/snakemake --cores $(CORES)
	@cat results/tables/main.md

test: .venv/installed lint  ## lint, then unit tests and the real workflow at toy size
	$(VENV)/python -m pytest -m "not slow and not gpu and not slurm"

test-slow: .venv/installed  ## the tests that take minutes
	$(VENV)/python -m pytest -m "slow and not gpu and not slurm"

test-gpu: .venv/installed  ## the tests that need a CUDA device
	$(VENV)/python -m pytest -m gpu

test-slurm: .venv/installed  ## the workflow on a one-node Slurm cluster; installs Debian's packages, needs root
	$(VENV)/python -m pytest -m slurm tests/slurm

status: .venv/installed  ## what runs where, and how much of CONFIG (several files in quotes) is finished
	@$(VENV)/python workflow_scripts/status.py $(or $(CONFIG),config/config.yaml)

lint: .venv/installed
	$(VENV)/ruff check .
	$(VENV)/ruff format --check .
	$(VENV)/snakefmt --check Snakefile rules
	$(VENV)/snakemake --lint

forecast: .venv/installed  ## stages, disk, memory and time of CONFIG (several files in quotes) on HARDWARE
	$(VENV)/python workflow_scripts/forecast.py $(if $(HARDWARE),--hardware $(HARDWARE)) $(or $(CONFIG),config/config.yaml)

verify: .venv/installed  ## check every artefact by its full SHA-256
	$(VENV)/python workflow_scripts/verify.py

prune: .venv/installed  ## list stages that neither CONFIG nor a finished result uses; DELETE=--delete removes them
	$(VENV)/python workflow_scripts/prune.py $(DELETE) $(or $(CONFIG),config/config.yaml)

schema: .venv/installed  ## regenerate config/schema.json from the settings
	$(VENV)/python workflow_scripts/write_schema.py

lock:  ## resolve requirements.in anew
	rm -rf .venv-lock && $(PYTHON) -m venv .venv-lock
	.venv-lock/bin/python -m pip install -r requirements.in
	(head -n 1 requirements.lock; .venv-lock/bin/python -m pip freeze | sed 's/+cpu$$//') > requirements.lock.part
	mv requirements.lock.part requirements.lock && rm -rf .venv-lock

.venv/installed: requirements.lock
	$(PYTHON) -m venv .venv
	$(VENV)/python -m pip install --quiet --disable-pip-version-check -r requirements.lock
	touch $@
