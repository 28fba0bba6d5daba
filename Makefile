# Each target sets itself up: python3, make and a package index are all it needs.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready

.PHONY: demo test coverage test-slow check docs format browser clean help

help: ## list the targets
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:[^#]*## /\t/' | expand -t 14

$(READY): pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --disable-pip-version-check -q -c constraints.txt -e ".[dev]"
	touch $@

demo: $(READY) ## a decision for each of many digits, then the evidence on real CIFAR-10; pages in demo/
	$(BIN)/shiftprism demo

test: $(READY) ## the test suite (under five minutes on two cores)
	$(BIN)/python -m pytest -n auto --dist worksteal

coverage: $(READY) ## the same, and which lines it runs
	$(BIN)/python -m pytest -n auto --dist worksteal --cov --cov-report=term:skip-covered

test-slow: $(READY) ## what needs a browser, killed processes or minutes
	$(BIN)/python -m pytest -m slow

check: $(READY) ## ruff, formatting and strict types
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

$(VENV)/.docs: $(READY)
	$(BIN)/python -m pip install --disable-pip-version-check -q -c constraints.txt -e ".[docs]"
	touch $@

docs: $(VENV)/.docs ## the documentation site, strictly, into site/
	$(BIN)/python tools/build_site.py

format: $(READY) ## let ruff rewrite what it can
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

examples/browser/node_modules: examples/browser/package.json
	npm install --silent --no-audit --no-fund --prefix examples/browser
	touch $@

browser: examples/browser/node_modules ## a page that runs an exported detector, on http://localhost:8000 (needs npm)
	$(PYTHON) -m http.server 8000 --bind 127.0.0.1 --directory examples/browser

clean: ## remove the environment and everything made
	rm -rf $(VENV) build demo dist site examples/browser/node_modules .coverage .mypy_cache .pytest_cache .ruff_cache
