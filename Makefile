# Each target does its own set-up; a second run skips what is already there.
PYTHON ?= python3
VENV   ?= .venv
BIN    := $(VENV)/bin

.PHONY: help venv demo test test-browser test-slow fuzz test-wheel lint format bench-speed docs clean

help:  ## Show this list
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | expand -t 14

venv: $(VENV)/.installed  ## Create .venv with what the demo and the tests need

$(VENV)/.installed: pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "labelnoise needs Python 3.11 or later; say which with: make PYTHON=python3.12" >&2; exit 1; }
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	@touch $@

demo: venv  ## Estimate the noise of a bundled data set, and show it
	$(BIN)/labelnoise demo

test: venv  ## Run the tests
	$(BIN)/python -m pytest -n auto -q

test-browser: venv  ## Run the tests of the report in Debian's chromium
	$(BIN)/python -m pytest -n auto -q tests/browser

test-slow: venv  ## Run the long statistical tests, and those of the large extras
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[text]'
	$(BIN)/python -m pytest -q -s tests/statistical tests/extras
	LABELNOISE_TRIALS=20 $(BIN)/python -m pytest -q tests/fuzz tests/faults

fuzz: venv  ## Fuzz the readers of files with atheris, a minute for each format
	$(BIN)/python -m pip install --quiet --disable-pip-version-check atheris
	$(BIN)/python tests/fuzz/coverage_guided.py 60

test-wheel: venv  ## Build the wheel, and run the tests of the core on it in an empty environment
	rm -rf build/wheel && $(BIN)/python -m pip wheel --quiet --no-deps -w build/wheel .
	$(PYTHON) -m venv --clear build/wheel/venv
	build/wheel/venv/bin/python -m pip install --quiet --disable-pip-version-check -c constraints.txt \
		build/wheel/*.whl pytest hypothesis pandas polars
	cp -r tests pyproject.toml build/wheel
	cd build/wheel && venv/bin/python -m pytest -q -p no:cacheprovider $(addprefix tests/test_, \
		$(addsuffix .py, hoc suspects one_answer neighbors consensus forward cli)) \
		tests/solvers tests/clean_class/test_linear.py tests/io/test_atomic.py tests/io/test_tables.py

lint: venv  ## Check style, types and which module imports which
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/mypy --strict tests/typed_usage.py
	$(BIN)/lint-imports

format: venv  ## Rewrite the code in the project's style
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

$(VENV)/.installed-bench: $(VENV)/.installed
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[bench]'
	@touch $@

bench-speed: $(VENV)/.installed-bench  ## Measure the speed against other implementations
	$(BIN)/python benchmarks/speed.py

$(VENV)/.installed-docs: $(VENV)/.installed
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[docs]'
	@touch $@

docs: $(VENV)/.installed-docs  ## Build the documentation, to build/docs/index.html
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet --strict

clean:  ## Remove what the other targets made
	rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache build demo-output
