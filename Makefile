# Needs Python 3.11 to 3.13 with pip and venv, git and make; everything else goes into .venv.
PYTHON ?= python3
CHECK_ARGS ?=
TEST_ARGS ?=
SLICE ?=
# What is cut into slices begins nothing more after so many seconds, where a number is given.
SECONDS_MAX ?=
NEWEST = $$(.venv/bin/python -c 'from cacheproof.reference.releases import NEWEST; print(NEWEST)')
PYTEST = .venv/bin/python -m pytest --numprocesses auto --maxprocesses 8 --dist worksteal

.PHONY: check check-full check-slice every-release test test-all setup lint types wheel-check site pages

# A search that fails does not keep the proofs from being tried.
check: setup
	@failed=0; \
	.venv/bin/cacheproof check $(CHECK_ARGS) || failed=$$?; \
	.venv/bin/cacheproof prove --target reference --target "vllm@$(NEWEST)" || failed=$$?; \
	exit $$failed

check-full:
	@$(MAKE) --no-print-directory check CHECK_ARGS="--budget full $(CHECK_ARGS)"

# A seventh of what check-full searches, another each day.
check-slice: setup
	@.venv/bin/cacheproof check --budget full --slice $$(( $$(date +%s) / 86400 % 7 + 1 ))/7 \
	    $(if $(SECONDS_MAX),--seconds $(SECONDS_MAX))

# Two of all releases, others each day, on the seeds of docs/evidence/releases-checked.md.
every-release: setup
	@.venv/bin/python benchmarks/every_release.py --slice $(if $(SECONDS_MAX),--seconds $(SECONDS_MAX))

test: setup
	@$(PYTEST) $(TEST_ARGS)

# Also what `make test` leaves out; SLICE=K/N runs the K-th of N slices.
test-all: setup
	@$(PYTEST) -m '' $(if $(SLICE),--slice '$(SLICE)') $(if $(SECONDS_MAX),--seconds $(SECONDS_MAX)) $(TEST_ARGS)

# .venv is whole once its stamp says what it was made of, while the Python that it links to is there;
# else it is made anew.
STAMP = $$({ cat setup/dev.lock; sed '/^\[tool/,$$d' pyproject.toml; $(PYTHON) -VV; pwd; } | cksum)
PIP = .venv/bin/python -m pip install --disable-pip-version-check --no-deps

setup:
	@command -v $(PYTHON) >/dev/null || { echo "error: no $(PYTHON) on PATH; name one: make PYTHON=python3.12" >&2; exit 2; }
	@$(PYTHON) -c 'import sys; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 13))' || \
	    { echo "error: cacheproof needs Python 3.11 to 3.13, but $(PYTHON) is $$($(PYTHON) -V 2>&1);" \
	    "name another one: make PYTHON=python3.12" >&2; exit 2; }
	@[ -x .venv/bin/python ] && [ "$$(cat .venv/stamp 2>/dev/null)" = "$(STAMP)" ] || { \
	    echo "setting up .venv"; rm -f .venv/stamp; \
	    $(PYTHON) -m venv --clear .venv && \
	    $(PIP) --require-hashes --only-binary=:all: -r setup/dev.lock && \
	    $(PIP) --no-index --no-build-isolation -e . && \
	    echo "$(STAMP)" > .venv/stamp; }

lint: setup
	.venv/bin/ruff check
	.venv/bin/ruff format --check

# A script that nobody runs for a while is at least called as its functions want to be called.
OF_SCRIPTS = arg-type assignment attr-defined dict-item import-not-found list-item method-assign \
    union-attr var-annotated
types: setup
	.venv/bin/mypy --strict -p cacheproof.spec -p cacheproof.reference
	.venv/bin/mypy
	MYPYPATH=benchmarks .venv/bin/mypy --check-untyped-defs --explicit-package-bases \
	    $(foreach code,$(OF_SCRIPTS),--disable-error-code $(code)) benchmarks/*.py

wheel-check: setup
	.venv/bin/python setup/wheel_check.py

# The generated pages, but for those that take hours: benchmarks/pages.py --list
pages: setup
	@.venv/bin/python benchmarks/pages.py

# The pages as a site in site/, with a search; fails where a link leads nowhere.
site: .venv-site
	@NO_MKDOCS_2_WARNING=1 .venv-site/bin/mkdocs build --strict --quiet
	@echo "open site/index.html"

.venv-site: setup/site.lock
	@$(PYTHON) -m venv --clear $@
	@$@/bin/python -m pip install --quiet --disable-pip-version-check -r $<
	@touch $@
