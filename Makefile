# Everything here sets itself up: a virtual environment in .venv with the pinned versions of constraints.txt.

PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
PIP    := $(BIN)/python -m pip --disable-pip-version-check

.PHONY: demo quick test full lint types examples site release bench growth clean help
.DEFAULT_GOAL := help

help:  ## Show what can be made.
	@grep -hE '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed -E 's/^([a-z]+):.*## */\1\t/' | expand -t 12

$(VENV)/bin/python:
	$(PYTHON) -m venv $(VENV)

# Python itself compiles the modules that it loads, which are a part of all.
$(VENV)/.run: pyproject.toml constraints.txt | $(VENV)/bin/python
	@echo "Installing into $(VENV) (once)"
	@$(PIP) install --no-compile -c constraints.txt -e '.[report]' >$(VENV)/install.log 2>&1 || { cat $(VENV)/install.log; exit 1; }
	@touch $@

# EXTRAS=dev,dras adds PyTorch, which is large, and the tests of what learns with it.
EXTRAS ?= dev

$(VENV)/.dev: pyproject.toml constraints.txt | $(VENV)/bin/python
	@echo "Installing into $(VENV) (once)"
	@$(PIP) install -c constraints.txt -e '.[$(EXTRAS)]' >$(VENV)/install.log 2>&1 || { cat $(VENV)/install.log; exit 1; }
	@touch $@ $(VENV)/.run

# A Big Job as narrow as the paper ran it on that centre; widths are all that the paper ran it with. The first page's figures
# are of SEEDS=100.
SEEDS ?= 40
demo: $(VENV)/.run  ## Compare the ways of asking for Montage's resources on a simulated centre (one to two minutes at first, then less).
	@mkdir -p out
	$(BIN)/asa compare montage --system uppmax --cores 160 --widths 28,56,112,160,320,640 --seeds $(SEEDS) \
		--estimator asa-queue --history 100 --plot out/demo.png --report out/demo.html

# Tests of real daemons mostly wait, so that more workers than cores are of use; each comes to have 1.2 GB of memory.
WORKERS ?= $(shell cores=$$(nproc 2>/dev/null || echo 2); most=$$((cores > 8 ? cores : 8)); \
	free=$$(awk '/^MemAvailable/ { print int($$2 / 1300000) }' /proc/meminfo 2>/dev/null); free=$${free:-8}; \
	echo $$((free >= most ? most : free > 2 ? free : 2)))

# Compiled once before, lest every worker does: kernels, and what pytest makes of the files of tests. Those of one line share
# kernels. If something cannot be made here, the tests say so.
$(VENV)/.warm: $(VENV)/.dev
	@echo "Compiling (once)"
	@mkdir -p build
	@$(BIN)/asa workload generate hpc2n --days 1 --seed 1 --out build/warm.swf.gz >/dev/null 2>&1
	@exec >/dev/null 2>&1; \
		{ for scheduler in easy multifactor bbsched; do $(BIN)/asa simulate build/warm.swf.gz --scheduler $$scheduler; done; } & \
		{ $(BIN)/asa compare blast --system hpc2n --cores 28 --seeds 1 --strategies asa --estimator asa-queue; \
		$(BIN)/asa ccs bench --jobs 100; } & \
		$(BIN)/python -m pytest --collect-only -q -p no:cacheprovider & wait
	@touch $@

quick: $(VENV)/.dev  ## Run what takes less than a minute.
	$(BIN)/python -m pytest -q -n 2 -m quick

test: $(VENV)/.warm  ## Run the tests.
	$(BIN)/python -m pytest -n $(WORKERS) -m "not full"

full: $(VENV)/.warm  ## Run the tests, and those that take long, or a part of the latter: PART=2/4.
	ASA_PART=$(PART) $(BIN)/python -m pytest -n $(WORKERS)

# Layers and types are checked as a user gets the package: on an unpacked wheel, where all folders are in their place.
SOURCES := $(shell find asa backends workflows -name '*.py' -o -name '*.sh')
build/installed/.made: $(VENV)/.dev $(SOURCES)
	@rm -rf build/installed build/wheel build/lib build/bdist.* && mkdir -p build/installed
	@$(PIP) wheel -q --no-deps -w build/wheel .
	@cd build/installed && ../../$(BIN)/python -m zipfile -e ../wheel/asa_client-*.whl .
	@touch $@

lint: build/installed/.made  ## Check style, layers and reach, and what runs inside jobs.
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/python tools/house.py
	@if command -v shellcheck >/dev/null; then shellcheck -s sh asa/job/*.sh backends/local/*.sh; else echo "shellcheck is not installed: asa/job is not checked"; fi
	cd build/installed && PYTHONPATH=. ../../$(BIN)/lint-imports --config ../../pyproject.toml

types: build/installed/.made  ## Check types.
	cd build/installed && ../../$(BIN)/mypy --config-file ../../pyproject.toml -p asa -p snakemake_executor_plugin_asa -p snakemake_executor_plugin_asa_slurm_options -p toil_batch_system_asa
	cd build/installed && ../../$(BIN)/mypy --config-file ../../pyproject.toml ../../examples ../../docs/picture.py ../../tests/own_backend.py ../../tests/typed_api.py

examples: $(VENV)/.dev  ## Run every example.
	@mkdir -p out
	@set -e; for example in examples/*.py; do echo "== $$example"; $(BIN)/python $$example; done
	$(BIN)/python docs/picture.py out/picture.svg 10

$(VENV)/.docs: pyproject.toml constraints.txt | $(VENV)/bin/python
	@echo "Installing what builds the documentation into $(VENV) (once)"
	@$(PIP) install -c constraints.txt -e '.[docs]' >$(VENV)/docs.log 2>&1 || { cat $(VENV)/docs.log; exit 1; }
	@touch $@

site: $(VENV)/.docs  ## Build the documentation as pages that need no network, in build/site.
	$(BIN)/python tools/docs_site.py --out build/site

release: $(VENV)/bin/python  ## Build the packages into dist, and try them in empty environments.
	tools/release.sh

bench: $(VENV)/.dev  ## Time the hot paths, as ratios to a plain reference.
	$(BIN)/python tools/bench.py

growth: $(VENV)/.dev  ## Time runs of ever larger graphs with every strategy, and print the exponent.
	$(BIN)/python tools/growth.py

clean:  ## Remove what was made.
	rm -rf $(VENV) build dist out *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
