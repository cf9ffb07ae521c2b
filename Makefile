# Every target sets up what it needs by itself; a second call starts at once. ARGS goes to the command behind the target.
.DEFAULT_GOAL := help
.PHONY: help setup controlplane demo test check bench scenarios chaos clean
BIN := .venv/bin
ARGS ?=
KILLS ?= 100
export TENURE_PYTHON

help: ## What can be made
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "  make %-12s %s\n", $$1, $$2 }' Makefile

setup:
	@.ci/bootstrap

controlplane: setup
	@$(BIN)/python -c 'from sandbox.controlplane import find_or_build; find_or_build()'

demo: controlplane ## See nodes come and go on this machine (ARGS=--keep leaves all running)
	@$(BIN)/tenure demo $(ARGS)

test: controlplane ## Run all tests, on real parts (ARGS="-k drain" chooses)
	@$(BIN)/python -m pytest $(ARGS)

check: setup ## Style, types, import contracts, and that generated files are fresh
	@failed=0; \
	for one in 'ruff check --quiet .' 'ruff format --check --quiet .' mypy 'lint-imports --no-cache --no-logo' \
	           'python -m deploy.generate --check'; do \
	    echo "-- $$one"; $(BIN)/$$one || failed=1; \
	done; \
	exit $$failed

bench: controlplane ## Measure plans, then end to end: seconds, prices, nodes, AWS calls, events, CPU, memory
	@$(BIN)/python -m benchmarks.plan
	@$(BIN)/python -m benchmarks.disrupt
	@$(BIN)/python -m benchmarks.scale $(ARGS)

scenarios: controlplane ## The five promises, row by row: kept, broken, or no test yet (ROW=001-b TIMES=20: one, again and again)
	@$(BIN)/python -m tests.scenarios.table $(if $(ROW),--row $(ROW)) $(if $(TIMES),--times $(TIMES)) $(ARGS)

chaos: controlplane ## A node's life survives anything: 100 kills, outages, 300 nodes in a lossy cloud (KILLS=20: fewer)
	@TENURE_KILLS=$(KILLS) TENURE_CHURN=50 TENURE_APART=400 TENURE_OUTAGE=120 TENURE_LOSSY=300 $(BIN)/python -m pytest -s \
	    tests/chaos/test_killed_anywhere.py tests/chaos/test_outages.py tests/chaos/test_lossy_cloud.py $(ARGS)

clean: ## Remove .venv and everything else that was made here
	rm -rf .venv build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
