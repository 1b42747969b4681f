# Every target sets up what it needs; the second time it is fast.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check --quiet

# Compiled files are kept, also where the environment says no: without them half of `make quick` is compiling.
export PYTHONDONTWRITEBYTECODE :=

.PHONY: demo quick test test-long test-oldest test-peers check bench mutants coverage clean format docs

# pip reads dependency groups from 25.1 on.
$(VENV)/.base: pyproject.toml
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@$(PIP) install --upgrade 'pip>=25.1'
	@$(PIP) install --editable .
	@touch $@

$(VENV)/.test: $(VENV)/.base
	@$(PIP) install torch==2.13.0
	@$(PIP) install --group test --group check --group oracle --group site
	@sh .ci/packages
	@touch $@

demo: $(VENV)/.base
	@$(BIN)/hubbub demo

# While editing: under a minute on two cores; no servers, no sweeps, two cases of each test (tests/conftest.py).
quick: $(VENV)/.test
	$(BIN)/python -m pytest -n auto --dist loadfile --quick --ignore=src/hubbub/training --ignore=src/hubbub/audit --ignore=src/hubbub/server

# Before sending a change: about eleven minutes on two quiet cores.
test: $(VENV)/.test
	$(BIN)/python -m pytest -n auto --dist loadfile

# Sweeps, statistical tests with many draws, most parameters of slow tests.
test-long: $(VENV)/.test
	$(BIN)/python -m pytest -m long -n auto

# The other end of what pyproject.toml allows; `make test` has the newest.
.venv-oldest/.ready: pyproject.toml tests/oldest.py
	@test -x .venv-oldest/bin/python || $(PYTHON) -m venv .venv-oldest
	@.venv-oldest/bin/python -m pip --disable-pip-version-check --quiet install $$($(PYTHON) tests/oldest.py) \
		'pytest>=8' 'pytest-xdist>=3.6' 'hypothesis>=6.100' 'mpmath>=1.3' 'apsw>=3.46'
	@.venv-oldest/bin/python -m pip --disable-pip-version-check --quiet install --no-deps --editable .
	@touch $@

test-oldest: .venv-oldest/.ready
	.venv-oldest/bin/python -m pytest -n auto --dist loadfile tests/sql tests/ledger tests/cli tests/mechanisms

check: $(VENV)/.test
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

format: $(VENV)/.test
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

# The site, in build/site; and the pages and pictures that are made from the code.
docs: $(VENV)/.test
	$(BIN)/python tests/docs/cli_page.py > docs/cli.md.new && mv docs/cli.md.new docs/cli.md
	$(BIN)/python -c "from hubbub.sql.function_list import render_markdown as r; print(r(), end='')" > docs/functions.md
	$(BIN)/python website/formats.py
	$(BIN)/python website/pictures.py
	$(BIN)/python website/build.py

coverage: $(VENV)/.test
	$(BIN)/python -m pytest --cov=hubbub --cov-branch --cov-report=term-missing

# The peers are rivals here and nowhere else, so they get an environment of their own.
.venv-bench/.ready: pyproject.toml
	@test -x .venv-bench/bin/python || $(PYTHON) -m venv .venv-bench
	@.venv-bench/bin/python -m pip --disable-pip-version-check --quiet install --upgrade 'pip>=25.1'
	@.venv-bench/bin/python -m pip --disable-pip-version-check --quiet install torch==2.13.0
	@.venv-bench/bin/python -m pip --disable-pip-version-check --quiet install --group bench --editable .
	@touch $@

# Tumult takes the Spark that we take if its Python is 3.12, an older one otherwise.
.venv-tumult/.ready: PYTHON := $(shell python3.12 -c '' 2>/dev/null && echo python3.12 || echo $(PYTHON))
.venv-tumult/.ready .venv-pipelinedp/.ready: .venv-%/.ready: pyproject.toml
	@test -x .venv-$*/bin/python || $(PYTHON) -m venv .venv-$*
	@.venv-$*/bin/python -m pip --disable-pip-version-check --quiet install --upgrade 'pip>=25.1'
	@.venv-$*/bin/python -m pip --disable-pip-version-check --quiet install --group $*
	@touch $@

bench: .venv-bench/.ready .venv-tumult/.ready .venv-pipelinedp/.ready
	@.venv-bench/bin/python benchmarks/run.py

# The blocks of other libraries in the tutorials "Coming from …".
test-peers: $(VENV)/.test .venv-bench/.ready .venv-tumult/.ready .venv-pipelinedp/.ready
	$(BIN)/python -m pytest -m long tests/docs/test_pages.py -k peers

mutants: $(VENV)/.test
	@$(BIN)/python tests/mutants.py

clean:
	rm -rf $(VENV) .venv-oldest .venv-bench .venv-tumult .venv-pipelinedp .mypy_cache .ruff_cache .pytest_cache .hypothesis .coverage
