# `make simulate` and `make test` do all the set-up themselves: a virtual environment in .venv, filled once.
# PYTHON=... chooses the interpreter; pip keeps its own configuration.
SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help

VENV := .venv
BIN := $(VENV)/bin
# Test processes: one for each core.
PYTEST := $(BIN)/python -m pytest -n auto
FIND_PYTHON := for p in python3 python3.13 python3.12 python3.11 python3.10 python3.14 python; do \
  "$$p" -c 'import sys; sys.exit(sys.version_info < (3, 10))' >/dev/null 2>&1 && { echo "$$p"; break; }; done
PYTHON ?= $(shell $(FIND_PYTHON))

.PHONY: help simulate test test-full conformance check fmt bench clean

help: ## Print the targets
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/make \1\t\2/p' Makefile | expand -t 18

simulate: $(VENV)/.installed ## Set up, then run FlashAttention's forward pass on a simulated H200
	$(BIN)/python cli.py simulate flash_forward --N 4096 --Br 64

test: $(VENV)/.installed-test ## Set up, then run the fast tests; no GPU, torch or Triton
	$(PYTEST) -m "not full"

# ONLY=full leaves out what `make test` has run.
test-full: $(VENV)/.installed-full ## Run every test: those with torch, Triton and the long sweeps too
	$(PYTEST) $(if $(ONLY),-m $(ONLY))

conformance: $(VENV)/.installed-conformance ## Run numba-cuda's own tests on this simulator
	$(BIN)/python -m tests.conformance

check: $(VENV)/.installed-dev ## Lint (ruff) and check types (mypy)
	$(BIN)/python -m ruff check .
	$(BIN)/python -m mypy

fmt: $(VENV)/.installed-dev ## Sort imports and apply ruff's safe fixes
	$(BIN)/python -m ruff check --fix .

bench: $(VENV)/.installed-test ## Print each speed figure beside its target
	$(BIN)/python bench/run.py

clean: ## Remove the virtual environment, caches and build products
	rm -rf $(VENV) build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# One stamp for each set of extras; pyproject.toml is newer than a stamp when its dependencies may have changed.
$(VENV)/bin/python:
	@test -n "$(PYTHON)" || { echo "No Python 3.10 or later was found. Install one, or name it: make PYTHON=/path/to/python3"; exit 2; }
	@echo "Making $(VENV) with $(PYTHON) (once)."
	@"$(PYTHON)" -m venv $(VENV) || { rm -rf $(VENV); exit 2; }

$(VENV)/.installed: pyproject.toml | $(VENV)/bin/python
	@echo "Installing into $(VENV) (once; a minute or two)."
	@$(BIN)/python -m pip install --quiet -e .
	@touch $@

$(VENV)/.installed-test: pyproject.toml | $(VENV)/bin/python
	@echo "Installing into $(VENV), with what the tests need (once; a minute or two)."
	@$(BIN)/python -m pip install --quiet -e '.[test]'
	@touch $(VENV)/.installed $@

# torch on Linux brings CUDA with it; with PIP_EXTRA_INDEX_URL set to PyTorch's index of CPU builds it does not.
$(VENV)/.installed-full: pyproject.toml | $(VENV)/bin/python
	@echo "Installing into $(VENV), with torch and, on Linux, Triton (once; some minutes)."
	@$(BIN)/python -m pip install --quiet -e '.[full]'
	@touch $(VENV)/.installed $(VENV)/.installed-test $@

$(VENV)/.installed-conformance: pyproject.toml | $(VENV)/bin/python
	@echo "Installing into $(VENV), with numba-cuda and what its tests need (once; a minute or two)."
	@$(BIN)/python -m pip install --quiet -e '.[conformance]'
	@touch $(VENV)/.installed $@

$(VENV)/.installed-dev: pyproject.toml | $(VENV)/bin/python
	@echo "Installing into $(VENV), with ruff and mypy (once)."
	@$(BIN)/python -m pip install --quiet -e '.[dev]'
	@touch $(VENV)/.installed $(VENV)/.installed-test $@
