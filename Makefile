# Everything runs in .venv; the first use of a target sets up what it needs.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt
# the oldest supported transformers, beside the pinned one, for the test that compares the two
OLD := $(VENV)/oldest
# torchvision without its compiled operators is enough to build the official processors, in tests only
VISION := $(VENV)/torchvision

.PHONY: demo test lint quick clean
demo: $(VENV)/.ready
	$(BIN)/ercr demo

test: $(VENV)/.ready-test lint
	$(BIN)/python -m pytest -n 2 --durations=5

lint: $(VENV)/.ready-test
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

quick: $(VENV)/.ready-test
	$(BIN)/python -m pytest -n 2 -m "not slow"

$(VENV)/.ready: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(PIP) torch
	$(PIP) -e ".[scenes,compat]"
	touch $@

$(VENV)/.ready-test: $(VENV)/.ready
	$(PIP) -e ".[scenes,compat,test]"
	$(PIP) --no-deps --upgrade --target $(VISION) torchvision==0.28.0
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --upgrade --target $(OLD) \
		transformers==5.17.0 "huggingface_hub<2" httpx httpcore certifi
	touch $@

clean:
	rm -rf $(VENV) build dist .pytest_cache .mypy_cache .ruff_cache
