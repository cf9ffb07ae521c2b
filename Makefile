# Every target installs its requirements; a second call starts at once. ARGS is passed to the command of the target.
.DEFAULT_GOAL := help
.PHONY: help setup controlplane tools docs pictures demo unit test test-kubernetes test-integration test-killed test-replay test-deploy \
    test-nightly test-chaos test-all check audit sbom release image bench scale-5000 scenarios chaos compare postgres clean
BIN := .venv/bin
ARGS ?=
IMAGE ?= REGISTRY/tenure
KUBERNETES ?= 1.29 1.37
KILLS ?= 100
CLUSTERS ?= 5000
NODES ?= 5000
export TENURE_PYTHON
# Many processes import the same modules, so their byte code is kept.
unexport PYTHONDONTWRITEBYTECODE

help: ## List the targets
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / { printf "  make %-17s %s\n", $$1, $$2 }' Makefile

setup:
	@.ci/bootstrap

controlplane: setup
	@$(BIN)/python -c 'from tenure.sandbox.controlplane import find_or_build; find_or_build()'

docs: setup ## Build the documentation site in build/site, and check every link
	@$(BIN)/mkdocs build --strict

pictures: controlplane ## Take the screenshots of docs/pictures with headless Chromium; the dashboard needs Prometheus
	@$(BIN)/python -m tools.screenshots $(ARGS)
	@$(BIN)/python -m tools.screenshots.dashboard $(ARGS)

demo: setup ## Watch nodes launch and terminate on this machine (ARGS=--keep leaves everything running)
	@$(BIN)/tenure demo $(ARGS)

tools: setup
	@$(BIN)/python -c 'from tenure.sandbox.controlplane.tools import helm; helm()'
	@-$(BIN)/python -m tools.metrics.promtool

# Tests in parallel: those that share a server form one group, which one xdist worker runs (see tests/conftest.py).
PYTEST := $(BIN)/python -m pytest -q --dist loadgroup --durations=30

unit: setup ## Run the tests that need no real component (ARGS="-k drain" selects)
	@$(PYTEST) -n 6 --junitxml=build/unit.xml tests/unit tests/replay $(ARGS)
	@$(BIN)/python tools/check_test_durations.py

test: controlplane ## Run unit tests, adapter tests and smoke scenarios in one sandbox (ARGS="-k drain" selects)
	@$(PYTEST) -n 5 --junitxml=build/test.xml tests/unit tests/replay tests/adapters tests/smoke $(ARGS)

test-kubernetes: setup ## Run the tests of the Kubernetes API with its oldest and its newest supported version (KUBERNETES=1.29: one)
	@failed=0; \
	for minor in $(KUBERNETES); do \
	    export TENURE_KUBERNETES=$$minor; \
	    $(BIN)/python -c 'from tenure.sandbox.controlplane import find_or_build; find_or_build()' && \
	    $(PYTEST) -n 5 --junitxml=build/kubernetes-$$minor.xml tests/adapters/apis tests/adapters/kube \
	        tests/adapters/activities tests/adapters/cli tests/adapters/controller/test_host.py \
	        tests/integration/evictions tests/integration/sandbox/test_controlplane.py $(ARGS) || failed=1; \
	done; \
	exit $$failed

test-integration: controlplane ## Run all integration tests and scenarios, and compare 200 random clusters with kube-scheduler
	@$(PYTEST) -n 9 --junitxml=build/integration.xml tests/integration tests/scenarios \
	    --ignore=tests/integration/recipes $(ARGS)

test-killed: controlplane ## Run a sample of the scenarios with the worker killed once
	@$(BIN)/python -m tests.scenarios.sample $(ARGS)

test-replay: setup ## Replay stored histories with other hash seeds and releases, and those of all workflow tests
	@for seed in 1 2 3; do PYTHONHASHSEED=$$seed $(PYTEST) -n 2 tests/replay $(ARGS) || exit 1; done
	@$(PYTEST) -n 4 --replay-histories tests/unit/workflows $(ARGS)
	@$(BIN)/python -m tests.replay.other_release $(REF)

test-deploy: controlplane tools ## Check charts, image, CloudFormation, Terraform, alerts and dashboard with the tools that read them
	@$(PYTEST) -n 3 --junitxml=build/deploy.xml tests/nightly/deploy tests/nightly/tools/test_release.py $(ARGS)

test-nightly: controlplane tools ## Run recipe, chart, image, price and month tests, property tests at full depth
	@$(PYTEST) -n 3 tests/nightly tests/integration/recipes $(ARGS)
	@TENURE_DAYS=30 TENURE_FAULTS=1000 TENURE_RESTARTS=0 $(PYTEST) tests/scenarios/empty_nodes/test_000_month.py $(ARGS)
	@$(PYTEST) -n 3 --property-depth=full tests/unit tests/scenarios -m property $(ARGS)

test-chaos: controlplane ## Run the chaos tests, which kill workers, stop services and replace builds
	@$(PYTEST) -n 3 tests/chaos $(ARGS)

test-all: ## Run every tier; if one fails, the others still run
	@failed=0; \
	for tier in test test-kubernetes test-integration test-killed test-replay test-nightly test-chaos; do \
	    $(MAKE) --no-print-directory $$tier || failed=1; \
	done; \
	exit $$failed

check: setup build/audit ## Check style, types, imports, names, generated files, unit test durations and advisories
	@failed=0; \
	for one in 'ruff check --quiet .' 'ruff format --check --quiet .' mypy 'lint-imports --no-cache --no-logo' \
	           'python -m tools.generate --check' 'python tools/check_names.py' 'python tools/check_test_durations.py' 'python -m tools.audit'; do \
	    echo "-- $$one"; $(BIN)/$$one || failed=1; \
	done; \
	exit $$failed

build/audit: requirements/audit.txt | setup
	@$(BIN)/python -m venv --clear $@
	@$@/bin/python -m pip install --quiet --disable-pip-version-check --require-hashes -r $< || { rm -rf $@; exit 1; }

audit: setup build/audit ## List known vulnerabilities of the locked packages, from PyPI's advisories
	@$(BIN)/python -m tools.audit $(ARGS)

sbom: build/audit ## Write the worker's bill of materials (CycloneDX) to build/sbom.json
	@build/audit/bin/cyclonedx-py requirements requirements/worker.txt --output-reproducible -o build/sbom.json
	@echo build/sbom.json

release: setup tools ## Build the wheel, charts, notes and checksums of a release in build/release (TAG=v0.2.0: checked)
	@$(BIN)/python -m tools.release $(TAG)

image: ## Build and push the image for amd64 and arm64 with SBOM and provenance (IMAGE=REGISTRY/tenure:TAG), by docker buildx
	docker buildx build --platform linux/amd64,linux/arm64 --sbom=true --provenance=mode=max \
	    --file deploy/Dockerfile --tag $(IMAGE) --push $(ARGS) .

bench: controlplane ## Measure plans and whole runs: seconds, nodes, AWS calls, CPU, memory (NODES=0: no large cluster)
	@$(BIN)/python -m benchmarks.planner
	@$(BIN)/python -m benchmarks.consolidation
	@$(if $(filter-out 0,$(NODES)),$(BIN)/python -m benchmarks.large_cluster --nodes $(NODES) --pods $(NODES)0)
	@$(BIN)/python -m benchmarks.scale $(ARGS)
	@$(if $(filter-out 0,$(NODES)),$(BIN)/python -m benchmarks.existing_nodes --nodes $(NODES))

scale-5000: controlplane ## Measure 5,000 existing nodes with 50,000 pods: idle cost, decisions, failover, restart (NODES=200: fewer)
	@$(BIN)/python -m benchmarks.existing_nodes --nodes $(NODES) $(ARGS)

scenarios: controlplane ## Run the rows of the promises: kept, broken or without a test (ROW=001-b TIMES=20 repeats one)
	@$(BIN)/python -m tests.scenarios.table $(if $(ROW),--row $(ROW)) $(if $(TIMES),--times $(TIMES)) $(ARGS)

chaos: controlplane ## Run the long chaos tests: 100 kills, outages, 300 nodes with lost AWS responses (KILLS=20: fewer)
	@TENURE_KILLS=$(KILLS) TENURE_CHURN=50 TENURE_APART=400 TENURE_OUTAGE=120 TENURE_LOSSY=300 \
	    TENURE_ZONE_NODES=60 $(BIN)/python -m pytest -s tests/chaos/test_killed_anywhere.py tests/chaos/test_outages.py \
	    tests/chaos/test_lossy_cloud.py tests/chaos/test_zone_loss.py tests/chaos/test_temporal_limit.py \
	    tests/integration/test_faulty_host.py $(ARGS)

compare: controlplane ## Compare the plans of 5,000 random clusters with kube-scheduler (CLUSTERS=1000: fewer)
	@$(BIN)/python -m pytest -s --random-clusters=$(CLUSTERS) -k random_clusters \
	    tests/integration/sandbox/test_planned_nodes.py $(ARGS)

POSTGRES := $(addprefix tests/,chaos/test_on_postgres.py chaos/test_temporal_upgrade.py chaos/test_rebuild.py chaos/test_outages.py \
    chaos/test_killed_during_drain.py scenarios/provisioning/test_001_killed.py scenarios/provisioning/test_001_one_node.py integration/disruption/test_drain.py)

postgres: controlplane ## Run the main scenarios with a Temporal server on PostgreSQL, mTLS and encryption
	@$(BIN)/python -c 'from tenure.sandbox.controlplane.tools import TEMPORALS, temporal_server as build; [build(one) for one in TEMPORALS]'
	@$(BIN)/python -m pytest --temporal=postgres --encrypted $(POSTGRES) $(ARGS)

clean: ## Remove .venv and all built files
	rm -rf .venv build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
