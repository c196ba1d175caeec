# Every target sets up .venv first, when pyproject.toml or constraints.txt say something new.
#   PYTHON=python3.12      the interpreter of .venv (default: the first on the path that is 3.11 or later)
#   TORCH_INDEX=URL        a further package index, e.g. PyTorch's of CPU wheels; see docs/dependencies.md
#   ARGS="..."             passed on to `cairn demo` or pytest

VENV := .venv
INSTALLED := $(VENV)/.installed
SUPPORTED := import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))

.DEFAULT_GOAL := help
.PHONY: help install demo test test-slow check

help: ## this list
	@awk -F ' ## ' '/^[a-z-]+:.* ## / { sub(/:.*/, "", $$1); printf "make %-10s %s\n", $$1, $$2 }' Makefile

install: $(INSTALLED) ## create .venv and install Cairn and its tools into it

demo: $(INSTALLED) ## train a tiny model with the whole stack on this machine
	@$(VENV)/bin/cairn demo $(ARGS)

test: $(INSTALLED) ## the fast tests, under 6 minutes on 2 cores
	$(VENV)/bin/python -m pytest -m "not slow" $(ARGS)

test-slow: $(INSTALLED) ## the slow tests: kills, recovery, runs to the bar
	$(VENV)/bin/python -m pytest -m slow $(ARGS)

check: $(INSTALLED) ## lint, format and types
	$(VENV)/bin/ruff check .
	$(VENV)/bin/ruff format --check .
	$(VENV)/bin/mypy
	$(VENV)/bin/mypy --strict examples/variety.py examples/watch.py examples/sums.py

$(INSTALLED): pyproject.toml constraints.txt
	@test -x $(VENV)/bin/pip || { \
	    for python in $(PYTHON) $(if $(PYTHON),,python3 python3.14 python3.13 python3.12 python3.11); do \
	        $$python -c '$(SUPPORTED)' 2>/dev/null && exec $$python -m venv $(VENV); \
	    done; \
	    echo "Cairn needs Python 3.11 or later with venv; install it, or name it: make $(MAKECMDGOALS) PYTHON=/path/to/python" >&2; \
	    exit 1; }
	@echo "Installing Cairn into $(VENV); the first time takes a few minutes."
	@PYTHONWARNINGS=ignore $(VENV)/bin/pip install --quiet $(if $(TORCH_INDEX),--extra-index-url $(TORCH_INDEX)) -c constraints.txt -e '.[dev]'
	@touch $@
