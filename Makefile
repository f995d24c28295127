# Everything a newcomer needs: `make demo` and `make test`. Both make .venv first; the second time that costs nothing.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
# One numerical thread per process: two busy cores with two threads each spin.
export OMP_NUM_THREADS = 1
export OPENBLAS_NUM_THREADS = 1

.PHONY: setup demo demo-federation test test-slow lint clean
setup: $(READY)

$(READY): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Tutelage needs Python 3.11 or newer; found " + sys.version.split()[0] + ". Try: make PYTHON=python3.12 " + "setup")'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e ".[torch,dev]"
	@touch $(READY)

demo: $(READY)
	$(BIN)/tutelage demo --out runs/demo

# Two hospitals and a coordinator as separate processes on this machine, over TLS, with generated data: about a minute.
demo-federation: $(READY)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e ".[federated]"
	$(BIN)/tutelage federation up runs/federation --hospitals 2
	$(BIN)/tutelage verify runs/federation/study runs/federation/hospital-1 runs/federation/hospital-2

lint: $(READY)
	$(BIN)/ruff check src tests benchmarks examples
	$(BIN)/ruff format --check src tests benchmarks examples
	$(BIN)/mypy
	$(BIN)/lint-imports

test: $(READY) lint
	$(BIN)/python -m pytest -n 2 -m "not slow" --cov=src/tutelage/privacy --cov-branch --cov-report=term-missing:skip-covered --cov-fail-under=98

test-slow: $(READY)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e ".[cluster,federated]"
	$(BIN)/python -m pytest -m slow

clean:
	rm -rf $(VENV) build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache .coverage*
