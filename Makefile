# Targets set up all they need: a virtual environment in .venv, again whenever pyproject.toml changes.
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help

INSTANCE ?= instances/paper-csp/i64.json
BIN := .venv/bin

# The first interpreter that works and is recent enough; override with make PYTHON=...
PYTHON ?= $(shell for p in python3.11 python3.12 python3.13 python3; do \
	"$$p" -c 'import sys, ensurepip, venv; sys.exit(sys.version_info < (3, 11))' 2>/dev/null \
	&& command -v "$$p" && break; done)

.PHONY: help solve test quick campaigns lint checkers clean

help:
	@echo "make solve      set up, solve $(INSTANCE) (INSTANCE=...), verify and draw the result into out/"
	@echo "make test       set up with the development tools, run the tests"
	@echo "make quick      the fast ones among them, under a minute (PYTEST=... passes options)"
	@echo "make campaigns  the tests with all random instances, not a part of them: hours (PYTEST=... as well)"
	@echo "make lint       ruff and mypy"
	@echo "make docs       the documentation as a site in build/docs; a warning or a dead link is an error"
	@echo "make blocks     run the code of README and documentation (PAGES=... for some)"
	@echo "make linkcheck  the links of the documentation that lead elsewhere; needs a network"
	@echo "make checkers   the one-file checkers of scripts/checkers from their parts"
	@echo "make clean      remove .venv and everything built"

.venv/bin/python:
	@test -n "$(PYTHON)" || { echo "Python 3.11 or newer with venv is needed; say make PYTHON=..." >&2; exit 1; }
	$(PYTHON) -m venv .venv

.venv/.installed: pyproject.toml | .venv/bin/python
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable ".[all]"
	@touch $@

.venv/.installed-dev: pyproject.toml | .venv/bin/python
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable ".[dev]"
	@touch .venv/.installed $@

.venv/.installed-docs: pyproject.toml | .venv/bin/python
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable ".[docs]"
	@touch .venv/.installed $@

solve: .venv/.installed
	@mkdir -p out
	$(BIN)/infermax-opt solve $(INSTANCE) -o out/result.json
	@echo
	$(BIN)/infermax-opt verify $(INSTANCE) out/result.json
	@echo
	$(BIN)/infermax-opt plot $(INSTANCE) out/result.json -o out/result.png

# A file runs in one of the three processes: what its tests have made and compiled serves all of them.  Those of
# tests/longest.txt come first, so that no process is left alone with one.  Three, since one often waits for a clock.
# Kernels are compiled before, by two processes: tests in both would compile the same at the same time.
# So are the modules, once, for all processes that tests start, even where Python is told not to keep what it compiled.
# Statements `assert` stay as they are, as each process would rewrite all of them; what fails runs again, with values.
test: .venv/.installed-dev
	$(BIN)/python -m compileall -q infermax_opt models scripts tests
	$(BIN)/infermax-opt warm --jobs 2
	$(BIN)/python -m pytest -n 3 --dist loadfile --no-loadscope-reorder --assert=plain || { \
		$(BIN)/python -m pytest --last-failed --last-failed-no-failures none; false; }

# Named without their folders, so that a test file may move.
quick: .venv/.installed-dev
	$(BIN)/python -m pytest -n 2 $(PYTEST) \
		$$(sed "s,^,tests/," tests/quick.txt)

# What a bound, a search or a checker has to stand before it changes: see tests/campaign.py.
campaigns: .venv/.installed-dev
	$(BIN)/python -m pytest -n 2 --campaign full $(PYTEST)

lint: .venv/.installed-dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

.PHONY: docs blocks linkcheck

docs: .venv/.installed-docs
	$(BIN)/sphinx-build -j 2 -E -q -W --keep-going -b html -d build/doctrees docs build/docs
	$(BIN)/python scripts/check_site.py build/docs docs/notebooks

blocks: .venv/.installed
	$(BIN)/python scripts/run_blocks.py $(PAGES)

linkcheck: .venv/.installed-docs
	$(BIN)/sphinx-build -q -b linkcheck -d build/doctrees docs build/linkcheck

# What stands in scripts/checkers, each file for use alone: a test fails where one is not current.
checkers: .venv/.installed
	$(BIN)/python scripts/assemble_checkers.py

clean:
	rm -rf .venv build dist out *.egg-info .pytest_cache .mypy_cache .ruff_cache
