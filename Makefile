# Everything lives in the working tree: the virtual environment in .venv, caches beside it.
SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DELETE_ON_ERROR:
.DEFAULT_GOAL := help

# The newest interpreter that is at least 3.11; override with `make PYTHON=/path/to/python3 ...`.
PYTHON ?= $(shell for p in python3 python3.14 python3.13 python3.12 python3.11; do \
	$$p -c 'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && { echo $$p; break; }; done)
BIN := .venv/bin
export PIP_DISABLE_PIP_VERSION_CHECK := 1
export PIP_NO_INPUT := 1
export PIP_CACHE_DIR := $(CURDIR)/.cache/pip
export TMPDIR := $(CURDIR)/.cache/tmp
export HYPOTHESIS_STORAGE_DIRECTORY := .cache/hypothesis
export MYPY_CACHE_DIR := .cache/mypy
# The tests start hundreds of processes. Without bytecode each of them would compile every module again.
unexport PYTHONDONTWRITEBYTECODE
export RUFF_CACHE_DIR := .cache/ruff
LOCK := $(BIN)/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes \
	--no-emit-index-url --no-emit-find-links --no-header
# One more than the cores: tests that start processes mostly wait.
WORKERS ?= $(shell expr $$(nproc 2>/dev/null || getconf _NPROCESSORS_ONLN) + 1)
TESTS ?= tests
# What needs no process and no simulated hours; the other folders are for `make test`, and so are the storms.
FAST ?= $(addprefix tests/,catalog cluster controller detection docs loki notify policy quality) $(wildcard tests/test_*.py)
STORMS := $(addprefix --ignore=tests/loki/test_,big_answers.py reader_floods.py reader_under_stress.py tail.py)
PYTEST = $(BIN)/pytest -n $(WORKERS) --dist worksteal -o cache_dir=.cache/pytest
VERSION := $(shell sed -n 's/^__version__ = "\(.*\)"/\1/p' konductor_like/__init__.py)
# Both are values of the owner: pyproject.toml, [tool.konductor-like].
REGISTRY ?= $(shell sed -n 's/^registry = "\([^"]*\)".*/\1/p' pyproject.toml)
PROJECT_URL ?= $(shell sed -n 's/^project-url = "\([^"]*\)".*/\1/p' pyproject.toml)
RELEASE = VERSION='$(VERSION)' REGISTRY='$(REGISTRY)' PROJECT_URL='$(PROJECT_URL)' .ci/release
LINES ?= 10000000
SEED ?= 1
SCHEDULES ?= 300
SIMULATED ?= 20000

$(shell mkdir -p .cache/tmp)

.PHONY: help
help: ## List the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## /{printf "  make %-13s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

.venv/bin/python:
	@test -n "$(PYTHON)" || { echo "konductor-like needs Python 3.11 or newer with the venv module (Debian: apt install python3-venv), or say make PYTHON=/path/to/python3" >&2; exit 2; }
	@$(PYTHON) -m venv .venv

# Without --no-compile pip compiles every module of every package, and few of them are ever imported.
.venv/.run: requirements.lock requirements-build.lock pyproject.toml sandbox/pyproject.toml | .venv/bin/python
	@test -e $@ || echo 'First run: installs ~40 packages.'
	$(BIN)/python -m pip install --quiet --no-compile --require-hashes -r requirements.lock -r requirements-build.lock
	$(BIN)/python -m pip install --quiet --no-compile --no-deps --no-build-isolation --editable . --editable sandbox
	@touch $@

# The demo above needs pip alone. With uv, everything takes a third of the time that pip takes.
.venv/.dev: requirements-dev.lock requirements.lock requirements-build.lock pyproject.toml sandbox/pyproject.toml | .venv/bin/python
	$(BIN)/python -m tools.release.install requirements.lock requirements-build.lock requirements-dev.lock
	$(BIN)/python -m pip install --quiet --no-compile --no-deps --no-build-isolation --editable . --editable sandbox
	@touch .venv/.run $@

.PHONY: setup
setup: .venv/.dev ## Create .venv from the lock files

# Settings on make's command line are the demo's: make demo KONDUCTOR_RETURN=reboot
DEMO_SETTINGS = $(foreach name,$(filter KONDUCTOR_% WATCHED_NAMESPACES,$(.VARIABLES)),$(if \
	$(filter command,$(firstword $(origin $(name)))),--set '$(name)=$(subst ','\'',$($(name)))'))

.PHONY: demo
demo: .venv/.run ## Watch the real controller taint a node for a kernel line: ARGS='--keep', KONDUCTOR_…=VALUE
	@$(BIN)/python -m konductor_like.cli demo $(DEMO_SETTINGS) $(ARGS)

.PHONY: quick
quick: lint types imports ## Fast checks (a minute): lint, types, imports, and the tests without processes
	$(PYTEST) -m "not bench and not processes" $(STORMS) $(FAST)

.PHONY: test
test: lint ## All checks: lint, types, imports, tests
	@$(MAKE) --no-print-directory --jobs=3 types imports unit && echo "CPU time, user and system (this shell, then the checks):" && times

.PHONY: lint
lint: .venv/.dev
	$(BIN)/ruff check --quiet .
	$(BIN)/ruff format --quiet --check .
	$(BIN)/python -m tools.measures.lines --ceilings

.PHONY: types
types: .venv/.dev
	$(BIN)/mypy

.PHONY: imports
imports: .venv/.dev
	$(BIN)/lint-imports --cache-dir .cache/import-linter

.PHONY: unit
unit: .venv/.dev
	$(PYTEST) $(TESTS)

.PHONY: bench
bench: .venv/.dev ## Measure and print the performance of reader, detection and scan
	$(BIN)/pytest -m bench -rN -q -s -o cache_dir=.cache/pytest tests/benchmarks

.PHONY: fuzz
fuzz: .venv/.dev ## Run detection over 10 million mutated lines: LINES=n, SEED=n
	$(BIN)/python -m tests.fuzz.run $(LINES) $(SEED)

.PHONY: chaos
chaos: .venv/.dev ## Chaos tests: SIMULATED=n in memory, SCHEDULES=n with processes, SEED=n
	$(BIN)/python -m tests.chaos --schedules $(SIMULATED) --from $(SEED)
	$(BIN)/python -m tests.chaos.processes --schedules $(SCHEDULES) --seed $(SEED)
	KONDUCTOR_TEST_KILLS=all $(BIN)/pytest -q tests/scenarios/test_validation_kills.py

.PHONY: format
format: .venv/.dev ## Format the code and apply automatic fixes
	$(BIN)/ruff format --quiet .
	$(BIN)/ruff check --fix .

.PHONY: docs
docs: .venv/.dev ## Rewrite the generated pages (docs/reference), the script in the DaemonSet, the packaged policy
	$(BIN)/python -m tools.generate_docs
	$(BIN)/python -m tools.manifests.embed

.PHONY: chart
chart: .venv/.dev ## Rewrite the copies in the Helm chart and its goldens; HELM=/path/to/helm
	$(BIN)/python -m tools.manifests.helm_chart

.PHONY: quality
quality: .venv/.dev ## Rewrite docs/detection-quality.md from the labelled corpus
	$(BIN)/python -m tools.quality.report

.PHONY: count
count: .venv/.dev ## Count code lines against their ceilings, and the functions between a fatal line and its PATCH
	$(BIN)/python -m tools.measures.lines
	$(BIN)/python -m tools.measures.path

.PHONY: version
version: .venv/.dev ## Set the version everywhere, and date the changelog: V=0.2.0
	$(BIN)/python -m tools.release.version "$(V)"

.PHONY: dist
dist: .venv/.dev ## Make wheel, sdist, chart archive, SBOM and checksums of the last commit in dist/
	@$(BIN)/python -m tools.release.dist

.PHONY: image
image: ## Make the image for amd64 and arm64 in dist/, on a base image that is named by its digest
	@$(RELEASE) image

.PHONY: release-check
release-check: .venv/.dev ## List what keeps the last commit from being released
	@$(BIN)/python -m tools.release.check

.PHONY: publish
publish: release-check dist image ## Push image and chart of the version to REGISTRY
	@$(RELEASE) publish

.PHONY: registry-host
registry-host:
	@echo '$(firstword $(subst /, ,$(REGISTRY)))'

.PHONY: release-page
release-page: ## Attach the files of dist/ to a release on GitHub
	@$(RELEASE) page

.PHONY: lock
lock: ## Rewrite the lock files from pyproject.toml
	$(LOCK) pyproject.toml -o requirements.lock
	$(LOCK) -c requirements.lock --extra report --group dev pyproject.toml -o requirements-dev.lock
	$(LOCK) -c requirements-dev.lock --group build -o requirements-build.lock

.PHONY: clean
clean: ## Remove all files that make created
	rm -rf .venv .cache build dist *.egg-info
