# Every target stands on `setup`, which does nothing when .venv is up to date.
# PYTHON=python3.12 make setup   chooses the interpreter (3.11 or newer).

PYTHON ?= python3
STAMP := .venv/.installed
MODEL := .models/all-MiniLM-L6-v2/config.json

.PHONY: help setup model demo run test check bench clean
.DEFAULT_GOAL := help

help:
	@echo "make demo    download a small model, serve it, change its settings live, stop (about a minute)"
	@echo "make run     serve the same model in the foreground, and keep serving"
	@echo "make test    run every test"
	@echo "make check   formatter, linter, types, import layers, contract tests"
	@echo "make bench   measure start-up, memory and the engine"
	@echo "make setup   build .venv with .venv/bin/omlxd and .venv/bin/omlxctl"
	@echo "make model   download a small chat and a small embedding model into .models"
	@echo "make clean   remove everything the targets above made"

setup: $(STAMP)
	@:

$(STAMP): pyproject.toml constraints.txt scripts/setup
	@PYTHON="$(PYTHON)" scripts/setup
	@touch $@

model: $(MODEL)
	@:

$(MODEL): | setup
	@.venv/bin/python scripts/fetch_model.py

demo: setup model
	@.venv/bin/python scripts/demo.py

run: setup model
	@.venv/bin/python scripts/run.py

test: setup
	@scripts/test

check: setup
	@scripts/check

bench: setup model
	@scripts/bench

clean:
	rm -rf .venv .demo .omlx .models build dist *.egg-info .mypy_cache .ruff_cache .pytest_cache \
	  .hypothesis .import_linter_cache
	find omlxd omlxctl tests scripts benchmarks -name __pycache__ -type d -prune -exec rm -rf {} +
