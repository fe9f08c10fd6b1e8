# Everything a person does here: `make up`, `make test`; `make help` lists the rest.
PYTHON ?= python3
VENV   ?= .venv
BUILD  ?= build
STATE  ?= $(BUILD)/node
BIN    := $(VENV)/bin
UNITS  := vision llm asr

export PYTHONSAFEPATH := 1
export ORT_DISABLE_TELEMETRY := 1
export HAILMESH_STATE := $(abspath $(STATE))

GUEST_SOURCES := $(shell find sandboxes/guests sandboxes/sdk -name '*.[ch]' -o -name '*.toml' -o -name 'build.py' -o -name 'sources.py')
UNIT_SOURCES  := $(shell find oci/convert oci/units -type f -not -name '*.pyc')
IMAGE_SOURCES := $(wildcard oci/*.py)
BENCHES       := $(patsubst tests/bench/%.py,%,$(filter-out tests/bench/all.py tests/bench/harness.py,$(wildcard tests/bench/*.py)))

.PHONY: help up check setup images test test-fast test-versions lint format bench clean
.DEFAULT_GOAL := help

help:            ## this list
	@sed -n 's/^\([a-z-]*\): .*## /  make \1 /p' Makefile | sed 's/  *## */: /' ; echo "  make bench-NAME  one benchmark: $(subst _,-,$(BENCHES))"

up: images       ## set up if needed, start the node, answer a picture, a prompt and a voice, stay up
	@$(BIN)/hailmesh up --demo

check: images    ## start the node, run the three reference requests over HTTP, print them, exit
	@$(BIN)/hailmesh up --check

setup: $(BUILD)/.setup  ## the virtual environment with what the node and the image builder need

images:          ## guests, reference units and their modality images in the local store
	@$(MAKE) --no-print-directory -j2 $(BUILD)/.images

test: $(BUILD)/.dev images  ## all tests
	$(BIN)/python -m pytest

test-fast: $(BUILD)/.dev images  ## all tests but the slow ones
	$(BIN)/python -m pytest -m "not slow"

test-versions: images  ## the unit tests on the oldest and newest Python, where installed
	tests/versions.sh $(BUILD) 3.10 3.13

lint: $(BUILD)/.dev  ## ruff, mypy, import-linter
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

format: $(BUILD)/.dev  ## let ruff put the code in order
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: $(BUILD)/.dev images  ## all benchmarks, ours and the peers in one run; writes docs/benchmarks.md
	$(BIN)/python tests/bench/all.py

bench-%: $(BUILD)/.dev images
	@$(BIN)/python tests/bench/$(subst -,_,$*).py

clean:           ## remove what was built; downloads and the environment stay
	rm -rf $(BUILD)/units $(BUILD)/node $(BUILD)/.images $(BUILD)/.guests sandboxes/guests/modules

$(BIN)/python:
	$(PYTHON) -m venv $(VENV)

$(BUILD)/.setup: $(BIN)/python pyproject.toml
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[cpu,build]'
	@mkdir -p $(BUILD) && touch $@

$(BUILD)/.dev: $(BUILD)/.setup
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[cpu,build,dev]'
	@touch $@

$(BUILD)/.guests: $(BUILD)/.setup $(GUEST_SOURCES)
	$(BIN)/python -m hailmesh.sandboxes.guests.build
	@touch $@

$(BUILD)/.units: $(BUILD)/.setup $(UNIT_SOURCES)
	$(BIN)/python -m hailmesh.oci.units.build -o $(BUILD)/units
	@touch $@

$(BUILD)/.images: $(BUILD)/.guests $(BUILD)/.units $(IMAGE_SOURCES)
	@for unit in $(UNITS); do $(BIN)/hailmesh oci build $(BUILD)/units/$$unit || exit 1; done
	@touch $@
