# The two commands: make demo, make test. Everything is installed into .venv by the files of this folder.
PYTHON ?= python3
BIN := .venv/bin
INSTALLED := .venv/.installed

.PHONY: demo test lint bench clean

demo: $(INSTALLED)
	$(BIN)/ccr demo

test: $(INSTALLED)
	$(BIN)/python -m pytest

lint: $(INSTALLED)
	$(BIN)/ruff check src tests benchmarks tools
	$(BIN)/ruff format --check src tests benchmarks tools
	$(BIN)/mypy

bench: $(INSTALLED)
	$(BIN)/python -m benchmarks

# -c constraints.txt: the tested versions; an unpinned torch would pull gigabytes of CUDA libraries.
$(INSTALLED): pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e ".[dev,demo]"
	touch $(INSTALLED)

clean:
	rm -rf .venv .mypy_cache .ruff_cache .pytest_cache .hypothesis
