# Two commands for a fresh machine: `make demo` and `make test`.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed

.PHONY: demo test quick lint fuzz results docs clean help

help: ## list the targets
	@grep -hE '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*## /\t/'

$(STAMP): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	# torch by itself first: the pinned build must be in place before anything asks for "torch>=..."
	$(BIN)/pip install --quiet -c constraints.txt torch
	$(BIN)/pip install --quiet -c constraints.txt -e '.[dev]'
	touch $@

demo: $(STAMP) ## simulate, reconstruct and show a synthetic scene in demo/
	$(BIN)/prismask demo --out demo --overwrite

# Two workers on two cores: a second torch thread in each would only wait for the others.
test: $(STAMP) lint ## everything that must hold
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n 2 --durations=10

quick: $(STAMP) ## the tests that take seconds
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n 2 -m "not slow"

fuzz: $(STAMP) ## 20,000 damaged files of every format: none may do harm
	OMP_NUM_THREADS=1 $(BIN)/python tests/unit/scenes/fuzzing.py --count 20000 --keep build/fuzz

lint: $(STAMP) ## style, types, import directions
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

results: $(STAMP) ## the headline and the report page of results/ from their raw tables
	$(BIN)/python results/headline.py
	$(BIN)/prismask report results --no-truth-pictures --title "Prismask: what was measured" --overwrite

# Not `python -m sphinx`: the usage lines of the command reference would show that -m.
docs: $(STAMP) ## the documentation as a site in docs/_build/html
	$(BIN)/sphinx-build -W --keep-going -q -b html docs docs/_build/html

clean: ## remove what was made here
	rm -rf $(VENV) demo build docs/_build .mypy_cache .ruff_cache .pytest_cache .hypothesis
