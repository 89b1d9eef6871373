# Each target sets up what it needs in this folder (.venv, frontend/node_modules) and nowhere else.
# A second run finds the stamps and starts at once.

SHELL := bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:

VENV ?= .venv
PORT ?= 6006
LOGDIR ?= demo_logs
FUZZ_SECONDS ?= 30
PYTEST_ARGS ?=
# Tests run in this many processes, one more than small machines have cores, since some wait; WORKERS=0: in one, to debug in.
WORKERS ?= 3
# The first interpreter that runs and is new enough (3.11 is the one that CI runs).
PYTHON ?= $(shell for p in python3.11 python3.12 python3.13 python3.10 python3; do \
	$$p -c 'import sys, venv; sys.exit(sys.version_info < (3, 10))' 2>/dev/null && echo $$p && break; done)

BIN := $(VENV)/bin
STAMPS := $(VENV)/.stamps
PYTEST = $(BIN)/python -m pytest $(if $(filter-out 0,$(WORKERS)),-n $(WORKERS) --dist worksteal)
PACKAGE_INPUTS := setup.py pyproject.toml $(wildcard tb_gpu_doctor/traces/*.[ch])
NPM_STAMP := frontend/node_modules/.installed

# The tests start hundreds of interpreters: each module is compiled once, whatever the user's shell says.
unexport PYTHONDONTWRITEBYTECODE

# The demo opens on a run with something to find, not on the newest one, which is healthy.
DEMO_LINK = $(if $(filter demo_logs,$(LOGDIR)),&p.gpu_doctor.run=slow_gpu&p.gpu_doctor.session=2026_03_03_10_41_37)

.PHONY: help demo demo-logs check test lint types imports frontend-test fuzz pytest quick bench screenshots format bundle rules-table chromium clean

help: ## show this list
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## /\1\t/' | expand -t 16

demo: $(STAMPS)/package ## open the demo runs in TensorBoard (PORT=6006, LOGDIR=demo_logs)
	@echo
	@echo "GPU Doctor: open http://localhost:$(PORT)/#gpu_doctor$(DEMO_LINK) once TensorBoard says that it is ready; Ctrl+C ends it."
	@echo
	@exec $(BIN)/tensorboard --logdir "$(LOGDIR)" --host localhost --port $(PORT)

check: lint types imports frontend-test quick ## for each commit, in a minute and a half: all but the slow tests and fuzzing

test: lint types imports frontend-test fuzz pytest ## everything that CI runs

lint: $(STAMPS)/test ## ruff: rules and format
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(STAMPS)/test ## mypy, strict
	$(BIN)/mypy

imports: $(STAMPS)/test ## the direction of imports
	$(BIN)/lint-imports

frontend-test: $(NPM_STAMP) ## lint, types and tests of the tab; is the committed bundle fresh?
	cd frontend && npm run --silent lint
	cd frontend && npm run --silent typecheck
	cd frontend && npm run --silent test
	cd frontend && npm run --silent check-bundle

fuzz: $(STAMPS)/package ## feed the readers damaged files for FUZZ_SECONDS, the compiled one under sanitizers
	FUZZ_PYTHON="$$(cd "$(BIN)" && pwd)/python" bash fuzz/run.sh $(FUZZ_SECONDS)

pytest: $(STAMPS)/test $(NPM_STAMP) chromium ## the Python and browser tests (PYTEST_ARGS="-k word")
	$(PYTEST) $(PYTEST_ARGS)

quick: $(STAMPS)/test ## the Python tests that are not marked as slow
	$(PYTEST) -m "not slow" --hypothesis-profile=quick --durations=3 $(PYTEST_ARGS)

bench: $(STAMPS)/test ## decoder and diagnosis against the stock Profiler; writes benchmarks/RESULTS.md
	$(BIN)/python -m benchmarks
	$(BIN)/python -m benchmarks.kernels
	$(BIN)/python -m benchmarks.monitor_steps

demo-logs: $(STAMPS)/package ## write the generated runs of demo_logs anew; the same bytes every time
	$(BIN)/python -m simulator.demo

screenshots: $(STAMPS)/test chromium ## docs/images from a real TensorBoard on the demo runs
	$(BIN)/python -m scripts.screenshots

format: $(STAMPS)/test $(NPM_STAMP) ## format Python and the frontend
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .
	cd frontend && npm run --silent format

bundle: $(NPM_STAMP) ## rebuild tb_gpu_doctor/plugin/static from frontend/src
	cd frontend && npm run --silent build

rules-table: $(STAMPS)/package ## rewrite docs/rules.md and the kinds in the JSON schema
	$(BIN)/python -m scripts.rules_table

chromium: ## a Chromium for the browser tests: the one on the PATH, else Debian's where it may be installed
	@bash scripts/ensure_chromium.sh

clean: ## remove what the other targets made
	rm -rf $(VENV) frontend/node_modules build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis

$(STAMPS)/venv:
	@[ -n "$(PYTHON)" ] || { echo "No Python 3.10 or newer with the venv module found; set PYTHON=/path/to/python." >&2; exit 1; }
	@$(PYTHON) -c 'import ensurepip' 2>/dev/null || { echo "$(PYTHON) lacks ensurepip: on Debian and Ubuntu install python3-venv." >&2; exit 1; }
	@echo "Making a virtual environment in $(VENV) ($(PYTHON))"
	@[ -x $(BIN)/python ] || $(PYTHON) -m venv $(VENV)
	@# One that was interrupted, or that another tool made, lacks pip.
	@$(BIN)/python -m pip --version >/dev/null 2>&1 || $(BIN)/python -m ensurepip --upgrade >/dev/null
	@mkdir -p $(STAMPS) && touch $@

$(STAMPS)/package: $(STAMPS)/venv $(PACKAGE_INPUTS)
	@echo "Installing GPU Doctor, TensorBoard and its Profiler into $(VENV): once, a minute or two; what pip fetches is listed below"
	@$(BIN)/python -m pip install --disable-pip-version-check -e '.[profiler]'
	@touch $@

$(STAMPS)/test: $(STAMPS)/venv $(PACKAGE_INPUTS)
	@echo "Installing what the tests need into $(VENV): once, some minutes"
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[test]'
	@touch $@ $(STAMPS)/package

$(NPM_STAMP): frontend/package.json frontend/package-lock.json
	@command -v npm >/dev/null || { echo "npm not found: the tab's tests need Node 20 or newer." >&2; exit 1; }
	cd frontend && npm ci --no-audit --no-fund --loglevel=error
	@touch $@
