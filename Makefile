# Each target sets up what it needs, once: .venv from requirements.lock, the tool itself in it; for
# tests and checks also requirements-test.lock.

.PHONY: help setup micro fast test test-ci test-all fmt check docs clean
.DEFAULT_GOAL := help

READY := .venv/.ready
TESTS := .venv/.ready-test
DOCS := .venv/.ready-docs

help:
	@echo "make micro     the main job: the whole matrix on a real Ray Serve, quick"
	@echo "make fast      unit tests, on all cores"
	@echo "make test      unit tests, then tests on a real Ray; T=FILE: all tests of a file"
	@echo "make test-ci   what continuous integration runs: also what is timed, more on a real Ray, torch"
	@echo "make test-all  all tests"
	@echo "make fmt       ruff: format, and what it can mend"
	@echo "make check     style, types, layers"
	@echo "make docs      the documentation as a site: build/site"
	@echo "make setup     .venv alone"
	@echo "make clean     remove .venv and caches (results/ stays)"

setup: $(READY)

$(READY): requirements.lock pyproject.toml scripts/setup
	scripts/setup

$(TESTS): $(READY) requirements-test.lock
	scripts/setup --test

$(DOCS): $(READY) requirements-docs.lock
	scripts/setup --docs

micro: $(READY)
	.venv/bin/serve-bench micro --quick

fast: $(TESTS)
	scripts/test --set fast

test: $(TESTS)
ifdef T
	scripts/test $(T)
else
	scripts/apt
	scripts/test
endif

test-ci: $(TESTS)
	scripts/apt --ci
	scripts/setup --torch
	scripts/test --set ci

test-all: $(TESTS)
	scripts/apt --all
	scripts/setup --torch
	scripts/test --set all

fmt: $(TESTS)
	.venv/bin/ruff check --fix .
	.venv/bin/ruff format .

check: $(TESTS)
	scripts/check

docs: $(DOCS)
	scripts/docs

clean:
	rm -rf .venv .mypy_cache .ruff_cache .pytest_cache .hypothesis .benchmarks build dist
	find serve_bench tests -name __pycache__ -type d -prune -exec rm -rf {} +
