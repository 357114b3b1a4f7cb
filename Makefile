# The two commands: make demo, make test. Everything is installed into .venv by the files of this folder.
PYTHON ?= python3
BIN := .venv/bin
INSTALLED := .venv/.installed
DEMO := .venv/.installed-demo
BIOME := npx --yes @biomejs/biome@2.6.7
# Bytecode is kept, whatever the machine is told: many tests start processes, which would all compile the same modules.
export PYTHONDONTWRITEBYTECODE :=

.PHONY: demo test test-plain test-scale test-pages test-browser lint lint-js format-js bench docs wheel-check test-open-clip clean

demo: $(DEMO)
	$(BIN)/ccr demo

# Two files at a time: most tests keep one core busy. In the order of the folders: files of few tests, which would come
# last, can take long, and one core would wait for the other.
test: $(INSTALLED)
	$(BIN)/python -m pytest -n 2 --dist loadfile --no-loadscope-reorder

# The kernels of numba alone, which take over where the faster ones cannot work; and how kernels are chosen and kept.
test-plain: $(INSTALLED)
	CCR_KERNELS=plain $(BIN)/python -m pytest tests/kernels/test_kernels.py tests/kernels/test_screening.py \
		tests/refine/test_sparse_engine.py tests/io/test_saved_models.py tests/coding/test_thresholds.py
	$(BIN)/python -m pytest -m tiers tests/kernels

# Every command and program that the README, the site and the tutorials show, from top to bottom.
test-pages: $(INSTALLED)
	$(BIN)/python -m pytest -n 2 -m pages tests/docs

# The studio, and the page of questions, as Chromium shows them; without Chromium nothing is tested, and that is said.
test-browser: $(INSTALLED)
	$(BIN)/python -m pytest -n 2 --dist loadfile -m browser tests/studio tests/show

# Real Ray clusters of two nodes, whose workers, nodes and drivers are killed (docs/scale.md).
test-scale: $(INSTALLED)
	$(BIN)/python -m pytest -m scale tests/scale

lint: $(INSTALLED) lint-js
	$(BIN)/ruff check src tests benchmarks tools
	$(BIN)/ruff format --check src tests benchmarks tools
	$(BIN)/mypy

# The studio's scripts and styles: format and lint (biome.json), by a program that npx fetches; `make format-js` writes.
lint-js:
	@if command -v npx > /dev/null; then $(BIOME) check; \
	else echo "npm is not installed: the studio's scripts are not checked"; fi

format-js:
	$(BIOME) check --write

bench: $(INSTALLED)
	$(BIN)/python -m benchmarks

# The site, whole or not at all: a broken link or reference is an error. Open site/index.html, also without a network.
docs: $(INSTALLED)
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict

# Build the package, install its wheel into a fresh environment and run the README's lines there (minutes).
wheel-check: $(INSTALLED)
	$(BIN)/python -m tools.wheel_check

# open_clip needs torchvision, whose only wheels are CUDA builds that do not import beside a CPU torch: it gets an
# environment of its own, with an unpinned torch (several gigabytes).
test-open-clip:
	$(PYTHON) -m venv .venv-open-clip
	.venv-open-clip/bin/python -m pip install --quiet --disable-pip-version-check -e ".[dev,demo,open-clip]"
	CCR_REQUIRE_OPEN_CLIP=1 .venv-open-clip/bin/python -m pytest tests/encoders/test_openclip.py

# -c constraints.txt: the tested versions; an unpinned torch would pull gigabytes of CUDA libraries. The demo needs half
# of what tests and lint need, which is installed when they are asked for. A new pip, and modules compiled by all cores
# instead of one, take two minutes less. Files that do not compile are templates, or for other versions of Python.
$(DEMO): EXTRAS := demo
$(INSTALLED): EXTRAS := dev,demo,docs
$(DEMO) $(INSTALLED): pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/python -m pip install -qq --upgrade pip
	$(BIN)/python -m pip install -qq --no-compile -c constraints.txt -e ".[$(EXTRAS)]"
	$(BIN)/python -m compileall -qq -j 0 -x '/tests?/' .venv || true
	touch $@ $(DEMO)

clean:
	rm -rf site dist build .venv .venv-open-clip .mypy_cache .ruff_cache .pytest_cache .hypothesis
	rm -rf src/ccr/kernels/__pycache__/ccr-kernels-*
