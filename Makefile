# engram_lab. `make demo` and `make test` need nothing beforehand but Python 3.11 or newer, bash and make.
.DEFAULT_GOAL := help
SHELL := /bin/bash
PY := .venv/bin/python
STAMP := .venv/.engram_lab_installed
JOBS ?= 2
ARGS ?=
# notebooks with figures whose runs lie in data/results; the others train before they show anything
STORED ?= $(addprefix notebooks/paper/engram_,$(addsuffix .ipynb,ablation allocation cka collisions compression \
	entity gate_credit gates head_to_head hot_tier lens long_context)) notebooks/explore/lens_foreign.ipynb \
	$(addprefix notebooks/paper/dspark_,$(addsuffix .ipynb,depth drafters length memory modes positions \
	rank reliability schedule serving threshold training)) notebooks/workshop/lossless.ipynb
# one thread for each of the parallel tests; everything else keeps torch's own choice
TEST_ENV := OMP_NUM_THREADS=1 MKL_NUM_THREADS=1
PYTEST := $(TEST_ENV) $(PY) -m pytest -n $(JOBS)

.PHONY: help env demo test check lint format lab notebooks figures bench test-slow test-browser lock clean

help:  ## list the targets
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## /\1\t/' | expand -t 12

$(STAMP): pyproject.toml requirements.lock scripts/setup_env.sh
	@./scripts/setup_env.sh
	@touch $@

env: $(STAMP)  ## make .venv and install everything into it (once)

demo: $(STAMP)  ## run the quickstart notebook with its real training runs; prints verdicts, writes build/demo
	ENGRAM_LAB_HOME="$(CURDIR)/build/demo" \
	$(PY) scripts/run_notebook.py --output build/demo notebooks/00_quickstart.ipynb

test: $(STAMP)  ## every test but the slow ones, two at a time; those in a browser afterwards
	$(PYTEST) -m "not slow and not browser" $(ARGS)
	$(MAKE) test-browser

test-browser: $(STAMP)  ## the widgets in a real browser (skipped without chromium)
	$(TEST_ENV) $(PY) -m pytest tests/browser -m browser $(if $(filter test-browser,$(MAKECMDGOALS)),$(ARGS))

test-slow: $(STAMP)  ## the slow tests alone
	$(TEST_ENV) $(PY) -m pytest -m slow $(ARGS)

lint: $(STAMP)  ## formatting, lint, stripped notebooks
	$(PY) -m ruff format --check .
	$(PY) -m ruff check .
	find notebooks -name '*.ipynb' -not -path '*/.*' -print0 | xargs -0 -r $(PY) -m nbstripout --verify

format: $(STAMP)  ## format, sort imports, strip notebooks
	$(PY) -m ruff check --fix-only --quiet .
	$(PY) -m ruff format .
	find notebooks -name '*.ipynb' -not -path '*/.*' -print0 | xargs -0 -r $(PY) -m nbstripout

check: lint test  ## what runs before a merge: format, lint, tests

lab: $(STAMP)  ## open JupyterLab on the quickstart
	$(PY) -m jupyterlab $(if $(filter 0,$(shell id -u)),--allow-root) $(ARGS) notebooks/00_quickstart.ipynb

notebooks: $(STAMP)  ## execute every notebook at scale tiny
	$(PYTEST) -m notebook $(ARGS)

figures: $(STAMP)  ## execute the notebooks whose runs are stored and write figures/
	$(PY) scripts/run_notebook.py --output build/notebooks $(STORED)

bench: $(STAMP)  ## run the benchmarks; appends to benchmarks/results
	for bench in benchmarks/bench_*.py; do $(PY) $$bench || exit 1; done

lock:  ## pin the newest versions that pyproject.toml allows (needs uv)
	./scripts/make_lock.sh

clean:  ## remove what can be made again (not .venv, not results, not checkpoints)
	rm -rf build dist *.egg-info .pytest_cache .ruff_cache .hypothesis
	find engram_lab tests scripts benchmarks -name __pycache__ -type d -prune -exec rm -rf {} +
