# Needs Python 3.11 to 3.13 with pip and venv, git and make; everything else goes into .venv.
PYTHON ?= python3
CHECK_ARGS ?=
TEST_ARGS ?=

.PHONY: check test setup lint types wheel-check

check: setup
	@.venv/bin/cacheproof check $(CHECK_ARGS)
	@.venv/bin/cacheproof prove --target reference --target vllm@0.33.0

test: setup
	@.venv/bin/python -m pytest --numprocesses auto --maxprocesses 8 --dist worksteal $(TEST_ARGS)

setup:
	@command -v $(PYTHON) >/dev/null || { echo "error: no $(PYTHON) on PATH; name one: make PYTHON=python3.12" >&2; exit 2; }
	@$(PYTHON) setup/venv.py

lint: setup
	.venv/bin/ruff check
	.venv/bin/ruff format --check

types: setup
	.venv/bin/mypy --strict -p cacheproof.spec -p cacheproof.reference
	.venv/bin/mypy

wheel-check: setup
	.venv/bin/python setup/wheel_check.py
