# make demo | test | test-all | flink-test | check | docs | bench | prism | lock | clean
# (PYTHON=python3.12: the interpreter)
# Each target installs what it needs into .venv; stamp files in there keep the second time quick.
PYTHON ?= python3
UV_VERSION := 0.13.8
BIN := .venv/bin
# Compiled bytecode: importing Beam takes a third of the time, whatever PYTHONDONTWRITEBYTECODE says.
INSTALL := $(BIN)/uv pip install --quiet --compile-bytecode --python $(BIN)/python \
	--constraint requirements.lock

# Pytest compiles 370 files in each process, unless it may keep them.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help demo test test-all test-but-flink flink-test check docs bench prism lock clean
.DELETE_ON_ERROR:

help:
	@echo "make demo    text -> tokenizer -> shards -> 300 training steps, in a few minutes"
	@echo "make test    the tests that are not slow"
	@echo "make test-all      all tests, as in continuous integration"
	@echo "make flink-test    tests on a Flink cluster of two hosts (root, Java, Maven)"
	@echo "make check   ruff and pyright"
	@echo "make docs    pages and API reference as a website, in site/"
	@echo "make bench   all benchmarks, into benchmarks/ (40 minutes; text from ../shared/data)"
	@echo "make prism   Beam's runner in Go, for --runner=PrismRunner, into .venv/bin"
	@echo "make lock    update requirements.lock from setup.py"
	@echo "make clean   remove .venv, demo/, benchmarks/ and caches"

demo: .venv/demo.stamp
	$(BIN)/python -m pipelines.demo --output=demo

# worksteal keeps the tests of a file in one process, where they share fixtures.
TESTS := $(BIN)/python -m pytest -q -n auto --maxprocesses=4 --dist=worksteal

# JAX compiles twice as fast without optimizations. Tests on Prism are skipped where there is none.
test: .venv/all.stamp
	JAX_DISABLE_MOST_OPTIMIZATIONS=true $(TESTS) -m "not slow"

# Tests on Prism and Flink are skipped with the reason where these cannot run; in CI they fail. Flink's
# tests share one cluster, hence one process, which waits much of its time: it runs beside the others.
test-all: .venv/all.stamp
	@$(MAKE) --no-print-directory prism || echo "continuing without Prism" >&2
	@$(MAKE) --no-print-directory --keep-going --jobs=2 test-but-flink flink-test

test-but-flink: .venv/all.stamp
	$(TESTS) -m "not flink"

flink-test: .venv/all.stamp
	$(BIN)/python -m pytest -q tests/pipelines/runners/test_flink.py

check: .venv/all.stamp
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/pyright

# Strict: a dead link, or a public name without a docstring's page, fails.
docs: .venv/docs.stamp
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet
	@echo "open site/index.html; for its search, run python3 -m http.server --directory site"

bench: .venv/all.stamp
	@$(BIN)/python -m tests.benchmarks.run_all

prism: .venv/prism.stamp

lock: $(BIN)/uv
	$(BIN)/uv pip compile --quiet --universal --python-version 3.11 --all-extras --upgrade \
		--no-annotate --no-emit-index-url --no-emit-find-links \
		--custom-compile-command "make lock" setup.py --output-file requirements.lock

clean:
	rm -rf .venv demo benchmarks build site textmill.egg-info .pytest_cache .ruff_cache .hypothesis
	find pipelines schemas textmill trainers tests -name __pycache__ -prune -exec rm -rf {} +

$(BIN)/uv:
	@$(PYTHON) -c 'import sys; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 13))' || { \
		echo "Textmill needs Python 3.11, 3.12 or 3.13; $(PYTHON) is another." \
		"Name one: make PYTHON=python3.12 ..." >&2; exit 2; }
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check uv==$(UV_VERSION)

# A full installation includes the demo's.
.venv/demo.stamp: setup.py requirements.lock schemas/version.py | $(BIN)/uv
	@echo "installing what the demo needs ..."
	@test .venv/all.stamp -nt requirements.lock -a .venv/all.stamp -nt setup.py \
		|| $(INSTALL) --editable '.[pipelines,flax]'
	@touch $@

.venv/all.stamp: setup.py requirements.lock schemas/version.py | $(BIN)/uv
	@echo "installing everything (several GB the first time) ..."
	@$(INSTALL) --editable '.[all]'
	@touch $@

# mkdocstrings reads the sources and imports none of them.
.venv/docs.stamp: setup.py requirements.lock schemas/version.py | $(BIN)/uv
	@$(INSTALL) --editable '.[docs]'
	@touch $@

# From the module proxy, in the version of the Beam that is installed (900 MB of Go's caches).
.venv/prism.stamp: .venv/demo.stamp requirements.lock
	@command -v go >/dev/null || { echo "make prism: Go is not installed; install it (https://go.dev)," \
		"or start a Prism that you have" >&2; exit 2; }
	@version=$$($(BIN)/python -c 'import importlib.metadata as m; print(m.version("apache-beam"))') \
		&& echo "building Prism $$version ..." && GOBIN="$(CURDIR)/.venv/bin" go install \
		github.com/apache/beam/sdks/v2/go/cmd/prism@v$$version
	@touch $@
