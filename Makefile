# Needs Python >= 3.11 with pip and venv; everything else goes into .venv.

# Which Python to use; empty means the first of these that works.
PYTHON ?=
PYTHONS = $(or $(PYTHON),python3.13 python3.12 python3.11 python3)
SUITABLE := import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check --quiet --quiet
SERVE := $(VENV)/.serve
DEV := $(VENV)/.dev
SCHEMA := deploy/record.schema.json
UV_COMPILE := $(BIN)/uv pip compile pyproject.toml --quiet --universal --python-version 3.11 \
	--generate-hashes --no-emit-index-url --no-header --no-annotate --group build

.DEFAULT_GOAL := help
.PHONY: help demo serve test lint format real bench lab schema lock clean

help: ## show this
	@echo "make TARGET, where TARGET is one of"
	@sed -n 's/^\([a-z]*\):.*## \(.*\)/  \1\t\2/p' $(MAKEFILE_LIST) | expand -t 12

demo: $(SERVE) ## see a dozen requests and where their time went, offline
	@$(BIN)/ttft demo

serve: $(SERVE) ## run the proxy: make serve UPSTREAM=https://api.openai.com
	@test -n "$(UPSTREAM)" || { echo "make serve: name the model API, for example" \
		"make serve UPSTREAM=https://api.openai.com" >&2; exit 2; }
	@exec $(BIN)/ttft serve --upstream "$(UPSTREAM)" $(ARGS)

test: $(DEV) ## run the tests, or some: make test ARGS="tests/serve -k log"
	$(BIN)/python -m pytest $(ARGS)

lint: $(DEV) ## check style and types
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: $(DEV) ## format the code
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

real: $(DEV) ## prove it on a real model server and clients (takes a while)
	$(BIN)/python -m tests.real $(ARGS)

bench: $(DEV) ## measure the proxy beside its peers; ARGS="--quick" for a short pass
	$(BIN)/python -m tests.bench $(ARGS)

lab: $(DEV) ## measure the error of the instrument; ARGS="--quick" for a short pass
	$(BIN)/python -m tests.lab $(ARGS)

schema: $(SERVE) ## write the JSON Schema of the record
	$(BIN)/python -c 'import json; from proxy.record import json_schema; \
		print(json.dumps(json_schema(), indent=2))' > $(SCHEMA)

lock: $(DEV) ## choose the versions of all dependencies anew
	$(PIP) install uv
	$(UV_COMPILE) --upgrade -o requirements/serve.txt
	$(UV_COMPILE) --upgrade --group test --group lint -c requirements/serve.txt \
		-o requirements/dev.txt

clean: ## remove everything that was made here
	rm -rf $(VENV) build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

$(BIN)/python:
	@for python in $(PYTHONS); do \
		if "$$python" -c '$(SUITABLE)' >/dev/null 2>&1; then \
			echo "making $(VENV) with $$python"; exec "$$python" -m venv $(VENV); \
		fi; \
	done; \
	echo "No Python >= 3.11 with venv and pip was found (tried: $(PYTHONS))." \
		"Install one (Debian, Ubuntu: apt install python3 python3-venv)" \
		"or name it: make PYTHON=/path/to/python3" >&2; exit 1

# The stamps make a second run instant.
$(SERVE): requirements/serve.txt pyproject.toml | $(BIN)/python
	@echo "installing the proxy into $(VENV) (once)"
	@$(PIP) install --require-hashes -r requirements/serve.txt
	@$(PIP) install --no-deps --no-build-isolation --editable .
	@touch $@

$(DEV): requirements/dev.txt $(SERVE)
	@echo "installing the tools for tests and checks into $(VENV) (once)"
	@$(PIP) install --require-hashes -r requirements/dev.txt
	@touch $@
