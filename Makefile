# Everything a person needs: `make demo`, `make hosted`, `make test`, `make check`, `make bench`, `make quality`.
# All of it works from a virtual environment of its own, filled from requirements.lock.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
UV_VERSION := 0.13.9
READY := $(VENV)/ready
NODE := tests/node
NODE_READY := $(NODE)/node_modules/.installed

.PHONY: demo hosted test check bench quality quality-floors strangers soak tables lock install node clean
install: $(READY)

$(READY): requirements.lock pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit("Kura needs Python 3.11 or newer, this is " + sys.version.split()[0]) if sys.version_info < (3, 11) else None'
	@echo "installing into $(VENV)"
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@test -x $(BIN)/uv || $(BIN)/python -m pip install --quiet --disable-pip-version-check --root-user-action=ignore uv==$(UV_VERSION)
	@$(BIN)/uv pip sync --quiet --python $(BIN)/python --require-hashes requirements.lock
	@$(BIN)/uv pip install --quiet --python $(BIN)/python --no-deps --no-build-isolation --editable .
	@touch $(READY)

# Other people's clients and the protocol's conformance suite, which some tests need. Nothing else needs node.
node: $(NODE_READY)

$(NODE_READY): $(NODE)/package.json $(NODE)/package-lock.json $(NODE)/.npmrc
	@echo "installing into $(NODE)/node_modules"
	@cd $(NODE) && npm ci --prefer-offline >/dev/null
	@touch $@

demo: $(READY)
	@$(BIN)/python examples/demo.py

# The same from a libSQL server on this machine, with `kura serve` that has nothing but its URL; Ctrl-C ends it.
hosted: $(READY)
	@PYTHONPATH=. $(BIN)/python examples/hosted.py

test: $(READY)
	$(BIN)/python -m pytest -n 2 --dist worksteal -m "not slow" --ignore tests/clients --ignore tests/conformance --ignore tests/hosted --ignore tests/soak

# Other people's clients and the protocol's conformance suite, against the same server.
strangers: $(READY) $(NODE_READY)
	KURA_NODE_REQUIRED=1 $(BIN)/python -m pytest -n 2 tests/clients tests/conformance

# What takes long: the tests that are marked slow, processes killed at many moments, the whole hosted path, and ten
# thousand requests to one process, whose memory must not grow.
soak: $(READY)
	$(BIN)/python -m pytest -n 2 --dist worksteal -m slow --ignore tests/clients --ignore tests/conformance
	$(BIN)/python -m pytest -n 2 --dist worksteal tests/soak tests/hosted

check: $(READY)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/pyright
	$(BIN)/lint-imports

quality: $(READY)
	$(BIN)/python -m tests.quality

# The floors that a release must keep; `make quality` prints the figures.
quality-floors: $(READY)
	$(BIN)/python -m pytest -m quality tests/quality tests/embed

bench: $(READY)
	$(BIN)/python -m tests.bench

# docs/clients.md and docs/conformance.md, from what clients and suite find.
tables: $(READY) $(NODE_READY)
	$(BIN)/python -m tests.clients
	$(BIN)/python -m tests.conformance

lock:
	$(BIN)/uv pip compile pyproject.toml --all-extras --group dev --universal --python-version 3.11 \
	  --generate-hashes --no-emit-index-url --no-header --quiet --upgrade -o requirements.lock

clean:
	rm -rf $(VENV) $(NODE)/node_modules build dist .pytest_cache .ruff_cache .kura-demo
