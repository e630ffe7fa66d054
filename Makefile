# Nothing has to be set up beforehand: each target makes .venv and installs what it uses (Debian packages too, as
# root; otherwise it says what is missing).

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
.PHONY: help demo test unit property integration faults nightly lint bench constraints clean

python := .venv/bin/python
step = @printf '==> %s\n'

help:                   ## this list
	@grep -E '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## */\t/' | expand -t 14

demo:                   ## a node and pods with real addresses, shown and taken down again
	@tools/prepare demo
	@tools/demo

test:                   ## every test, and the branch coverage of the core
	@tools/prepare dev
	$(step) 'pytest: unit, property, integration; branch coverage of netplug_core'
	@$(python) -m pytest --cov --cov-report=term

unit property integration:  ## one folder of tests, without coverage
	@tools/prepare dev
	$(step) 'pytest: $@'
	@$(python) -m pytest tests/$@

faults:                 ## every mishap at every write of every operation of the allocator
	@tools/prepare dev
	$(step) 'pytest: faults'
	@$(python) -m pytest tests/faults

nightly:                ## property tests and faults, as deep as a night allows
	@tools/prepare dev
	$(step) 'pytest: property and faults, deep'
	@NETPLUG_HYPOTHESIS_PROFILE=nightly $(python) -m pytest tests/property tests/faults

lint:                   ## format, style, types twice, import contracts
	@tools/prepare dev
	$(step) 'ruff format --check'
	@.venv/bin/ruff format --check .
	$(step) 'ruff check'
	@.venv/bin/ruff check .
	$(step) 'mypy --strict'
	@.venv/bin/mypy --strict
	$(step) 'pyright'
	@.venv/bin/pyright --pythonpath $(python) --warnings
	$(step) 'lint-imports'
	@.venv/bin/lint-imports

bench:                  ## blocks beside plain JSON, a cluster of allocators, ADD and DEL beside the well-known plugins
	@tools/prepare dev
	$(step) 'benchmarks'
	@$(python) -m benchmarks

constraints:            ## pin anew what pyproject.toml asks for
	@tools/prepare dev
	@tools/pin

clean:                  ## remove what the targets made in this folder
	$(step) 'remove .venv, caches and builds'
	@rm -rf .venv .nox .hypothesis .mypy_cache .pytest_cache .ruff_cache .import_linter_cache .coverage dist
