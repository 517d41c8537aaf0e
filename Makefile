# mxfleet: set up, try, test, measure. `make` alone lists the targets.

PYTHON ?= python3
# Which torch: any requirement or options of pip, such as a wheel's path or an index of other builds.
TORCH ?= torch==2.13.0

BIN := .venv/bin
# A stamp for each choice of torch, so that another choice installs again.
STAMP := .venv/.setup-$(shell printf %s '$(TORCH)' | cksum | cut -d' ' -f1)
DEMO := build/demo
FLEET := $(BIN)/python env/loopback/fleet.py

# The fleet tests and the speed tables need root; without it and without sudo they say so and skip.
ifneq ($(shell id -u),0)
AS_ROOT := $(shell sudo -n true 2>/dev/null && echo sudo -n env PYTHONDONTWRITEBYTECODE=1 \
	MXFLEET_REQUIRE_FLEET=$(MXFLEET_REQUIRE_FLEET) MXFLEET_LOOPBACK=$(MXFLEET_LOOPBACK))
endif

.DEFAULT_GOAL := help
.PHONY: help setup demo test lint bench fleet-up fleet-down

help: ## list the targets
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  \1\t\2/p' Makefile | expand -t 14

setup: $(STAMP) ## .venv with mxfleet (editable), its tools, and torch (TORCH=...)

$(STAMP): pyproject.toml
	test -x $(BIN)/pip || $(PYTHON) -m venv .venv
	$(BIN)/pip install $(TORCH)
	$(BIN)/pip install -e '.[dev]'
	touch $(STAMP)

demo: setup ## the main job on this machine: push, run two operators, merge
	rm -rf $(DEMO)
	$(BIN)/mxfleet init $(DEMO)
	cd $(DEMO) && $(CURDIR)/$(BIN)/mxfleet push
	cd $(DEMO) && $(CURDIR)/$(BIN)/mxfleet run --op torch_rms_norm,torch_softmax
	@ls $(DEMO)/benchmark/statistics/*.csv >/dev/null
	@printf 'merged: %s\n' $(DEMO)/benchmark/statistics/*.csv

lint: setup ## style, types, layers
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	MYPYPATH=env/loopback $(BIN)/mypy env/loopback/fleet.py
	MYPYPATH=benchmark $(BIN)/mypy --strict benchmark/harness
	MYPYPATH=benchmark/halops:benchmark $(BIN)/mypy --strict benchmark/halops
	MYPYPATH=tests:tests/unit/author $(BIN)/mypy --strict --exclude "bench/(trivial|plain)" bench
	$(BIN)/lint-imports

# The fleet is brought up here, where its progress shows, and ended when it was not up before;
# pytest's closing line stays the last one. Without root the tests give the reason for skipping.
test: lint ## lint, unit tests, fleet tests
	@kept=$$($(AS_ROOT) $(FLEET) status >/dev/null 2>&1 && echo yes || true); \
	$(AS_ROOT) $(FLEET) up 2 >/dev/null || true; \
	$(AS_ROOT) $(BIN)/python -m pytest tests; code=$$?; \
	test -n "$$kept" || $(AS_ROOT) $(FLEET) down >/dev/null 2>&1 || true; \
	exit $$code

bench: setup ## speed beside scp, rsync and plain ssh, and faults; writes docs/measured/
	@code=0; for table in check gen push run testall overhead device faults; do \
	  $(AS_ROOT) $(BIN)/python bench/$$table.py || code=$$?; test $$code -ne 130 || break; \
	done; exit $$code

fleet-up: setup ## two hosts with sshd and Docker on this machine; prints their inventory
	@$(AS_ROOT) $(FLEET) up 2

fleet-down: ## end them
	@$(AS_ROOT) $(FLEET) down
