# Each target does its own set-up; a second run skips what is already there.
PYTHON ?= python3
VENV   ?= .venv
BIN    := $(VENV)/bin

VERSION = $(shell sed -n 's/^__version__ = "\(.*\)"/\1/p' src/labelnoise/__init__.py)
# What needs no extra.
CORE_TESTS := tests/solvers $(addprefix tests/,$(addsuffix .py,test_card test_cli test_consensus \
	test_forward test_hoc test_one_answer test_package test_suspects clean_class/test_linear \
	io/test_atomic io/test_tables neighbors/test_exact neighbors/test_given))

.PHONY: help venv demo test test-browser test-slow fuzz dist test-wheel test-lowest release lint \
	format bench-speed docs notebooks clean

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

test-browser: venv  ## Run the tests of report and review in Debian's chromium
	$(BIN)/python -m pytest -n auto -q tests/browser

test-slow: venv  ## Run the long statistical tests, and those of the large extras
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[text]'
	$(BIN)/python -m pytest -q -s tests/statistical tests/extras
	LABELNOISE_TRIALS=20 $(BIN)/python -m pytest -q tests/fuzz tests/faults

fuzz: venv  ## Fuzz the readers of files with atheris, a minute for each format
	$(BIN)/python -m pip install --quiet --disable-pip-version-check atheris
	$(BIN)/python tests/fuzz/coverage_guided.py 60

dist: venv  ## Build the sdist, and from it the wheel, in build/dist
	rm -rf build/dist
	$(BIN)/python -m pip install --quiet --disable-pip-version-check build
	$(BIN)/python -m build --outdir build/dist .

# The package is from the wheel, and the tests of the core from the sdist, in an empty environment.
define test_core
	rm -rf build/$(1) && mkdir -p build/$(1)
	tar -xzf build/dist/*.tar.gz -C build/$(1) --strip-components 1 && rm -r build/$(1)/src
	$(PYTHON) -m venv build/$(1)/venv
	build/$(1)/venv/bin/python -m pip install --quiet --disable-pip-version-check $(2) \
		build/dist/*.whl pytest hypothesis pandas pillow polars
	cd build/$(1) && venv/bin/python -m pytest -q -p no:cacheprovider $(CORE_TESTS)
endef

test-wheel: dist  ## Test sdist and wheel with the newest versions: PYTHON=python3.13 says with which
	$(call test_core,wheel,-c constraints.txt)

test-lowest: dist  ## Test them with the oldest versions that pyproject.toml allows, on Python 3.11
	$(BIN)/python -m pip install --quiet --disable-pip-version-check uv
	$(BIN)/uv pip compile --quiet --resolution lowest-direct --python-version 3.11 \
		--output-file build/lowest.txt pyproject.toml
	$(call test_core,lowest,-r build/lowest.txt)

release: venv  ## Check all that a release needs, up to the upload
	@test -z "$$(git status --porcelain)" || { echo "Commit everything first" >&2; exit 1; }
	@case $(VERSION) in *dev*) \
		echo "Set __version__ in src/labelnoise/__init__.py: it is $(VERSION)" >&2; exit 1;; esac
	@grep -q "^## $(VERSION)" CHANGELOG.md || \
		{ echo "Head the section of CHANGELOG.md with: ## $(VERSION)" >&2; exit 1; }
	$(MAKE) lint test test-browser docs test-wheel test-lowest
	$(BIN)/python -m pip install --quiet --disable-pip-version-check twine
	$(BIN)/python -m twine check --strict build/dist/*
	@echo "Ready. Now: git tag v$(VERSION), and $(BIN)/python -m twine upload build/dist/*"

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

notebooks: venv  ## Run the notebooks in examples/, and keep what they show in them
	$(BIN)/python -m pip install --quiet --disable-pip-version-check ipykernel nbclient
	$(BIN)/jupyter execute --inplace --kernel_name=python3 examples/notebooks/*.ipynb

clean:  ## Remove what the other targets made
	rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache build demo-output
