# Every target makes the environment it needs by itself: .venv, with the versions of constraints.txt.
# `make demo` needs no more than the demo's packages; test and check add the tools, bench adds the peers.

SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.NOTPARALLEL:
.SUFFIXES:
.PHONY: demo test test-all check bench help clean

PYTHON ?= python3
WORKERS ?= $(shell cores=$$(nproc 2>/dev/null || echo 2); echo $$((cores < 8 ? cores : 8)))
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check install -qq -c constraints.txt

demo: $(VENV)/.demo ## train a U-Net on handwritten-digit scenes, on 2 processes or on all GPUs (about a minute)
	@$(BIN)/lockstep train

# First those that may run side by side, then the others; a failure of either is one of both.
define pytest
code=0; \
$(BIN)/python -m pytest -m "not alone$(1)" -n $(WORKERS) || code=$$?; \
$(BIN)/python -m pytest -m "alone$(1)" || code=$$?; \
exit $$code
endef

test: $(VENV)/.dev ## the fast tests (minutes); as many side by side as there are cores, or WORKERS=N
	@$(call pytest, and not slow)

test-all: $(VENV)/.dev ## every test
	@$(call pytest,)

check: $(VENV)/.dev ## lint, format and types: what CI runs before the tests
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy

bench: $(VENV)/.bench ## step time beside hand-written DDP, Accelerate, Fabric, Lightning and Ignite (options: BENCH="--quick")
	@$(BIN)/python bench/run.py $(BENCH)

help: ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## /{printf "make %-10s%s\n", $$1, $$2}' $(MAKEFILE_LIST)

clean: ## remove .venv, caches and build output; runs/ stays
	@rm -rf $(VENV) build dist .mypy_cache .ruff_cache .pytest_cache
	@find src tests bench -name __pycache__ -prune -exec rm -rf {} +

# ---- the environment: a stamp per set of packages, all in one .venv ----

$(VENV)/.demo $(VENV)/.dev $(VENV)/.bench: $(VENV)/.%: $(VENV)/.base
	@echo "Installing what this needs ($*) ..."
	@$(PIP) --no-build-isolation -e '.[$*]'
	@touch $@

# The exact torch comes first: left to the other packages, pip might choose another build of several gigabytes.
$(VENV)/.base: pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || { \
	  echo "Lockstep needs Python 3.11 or later; '$(PYTHON)' is $$($(PYTHON) --version 2>&1 | head -1 || true)." >&2; \
	  echo "  Next: install one and name it, e.g. make $(or $(MAKECMDGOALS),demo) PYTHON=python3.12" >&2; exit 1; }
	@$(PYTHON) -c 'import venv, ensurepip' 2>/dev/null || { \
	  echo "'$(PYTHON)' cannot make a virtual environment: its modules venv and ensurepip are missing." >&2; \
	  echo "  Next: on Debian or Ubuntu, apt-get install python3-venv" >&2; exit 1; }
	@echo "Making the environment in $(VENV) (the first time this takes minutes: torch is large) ..."
	@$(BIN)/python -m pip --version >/dev/null 2>&1 || $(PYTHON) -m venv --clear $(VENV)
	@$(PIP) torch
	@$(PIP) hatchling editables
	@touch $@
