# Every target works alone on a machine with Python 3.11 or newer and make: it creates .venv and installs what it needs.

PYTHON ?= python3
VENV ?= .venv
# Results are compared with it, on the processor.
TORCH ?= torch==2.13.0
# The oldest PyTorch that polyhal.torch takes, and the newest; the tests that both run.
TORCHES ?= torch==2.10.0 torch
TORCH_TESTS ?= tests/torch
# Processes that run tests at once.
JOBS ?= 2
ARGS ?=

BIN := $(VENV)/bin
# Python compiles the modules that are imported, a small part of what is installed.
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check --no-compile
RUNTIME := $(VENV)/.installed-runtime
TESTING := $(VENV)/.installed-testing
DEVELOPMENT := $(VENV)/.installed-development
# What pip builds from. Python run in this folder reads its entry points instead of those installed, however old it is.
LEFT_OVER := polyhal.egg-info

.DEFAULT_GOAL := help
.PHONY: help train test test-all conformance torches torches-installed vendors generate site lint typecheck user-types dist bench clean

help:
	@echo "make train        train a small model on the best device of this machine (ARGS=--help for options)"
	@echo "make test         unit tests and the conformance kit in 8 minutes; POLYHAL_TEST_DEVICES, POLYHAL_REQUIRE choose devices"
	@echo "make test-all     the slow tests, too, and the tests that need optional packages"
	@echo "make conformance  the conformance kit alone on DEVICE=opencl:1; ARGS='--polyhal-sample=4 --polyhal-seed=1' runs a quarter"
	@echo "make torches      the tests of polyhal.torch (TORCH_TESTS=... some) with PyTorch's oldest and newest version, each of 1 to 2 GB"
	@echo "make vendors      every program of described devices through strict compilers, validators and those of vendors, which must be installed"
	@echo "make generate     generated files, after a change of an op, a quirk, a kernel or a result"
	@echo "make site         the documentation as HTML in build/site; warnings such as broken links are errors"
	@echo "make lint         ruff, and that it would change no layout"
	@echo "make typecheck    mypy --strict"
	@echo "make user-types   mypy --strict and pyright on a user's program, with an installed wheel and an editable install"
	@echo "make dist         wheel and source distribution in dist/, checked"
	@echo "make bench        all benchmarks (ARGS=--list describes them, ARGS='kernels --size gpu' runs one)"
	@echo "make clean        remove what these targets made"

$(BIN)/python:
	$(PYTHON) -m venv $(VENV)

$(RUNTIME): $(BIN)/python pyproject.toml
	$(PIP) -e ".[cpu,wgpu,plot]"
	@rm -rf $(LEFT_OVER)
	@touch $@

$(TESTING): $(BIN)/python pyproject.toml
	@echo "installing the packages of the tests"
	$(PIP) -e ".[test,cpu]"
	@rm -rf $(LEFT_OVER)
	@echo "installing PyTorch, without CUDA"
	@$(BIN)/python tests/torch/without_cuda.py "$(TORCH)"
	@$(BIN)/python tests/hard_links.py $(VENV)/lib
	@touch $@ $(RUNTIME)

$(DEVELOPMENT): $(TESTING)
	$(PIP) -e ".[dev]"
	@rm -rf $(LEFT_OVER)
	@touch $@

train: $(RUNTIME)
	$(BIN)/polyhal train $(ARGS)

# There is a process for each core: threads of NumPy's and PyTorch's products would only compete with them.
PYTEST := OPENBLAS_NUM_THREADS=1 OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n $(JOBS) --dist worksteal

test: $(TESTING)
	$(PYTEST) $(ARGS)

test-all: $(DEVELOPMENT)
	$(PYTEST) --slow=yes $(ARGS)

conformance: $(TESTING)
	$(PYTEST) --pyargs polyhal.hal.testing --polyhal-device=$(or $(DEVICE),$(error name a device: make conformance DEVICE=opencl:1)) $(ARGS)

# PyTorch alone, in folders that come before the environment's.
torches-installed: $(TESTING)
	@for torch in $(TORCHES); do \
		folder=$(VENV)-$$torch; \
		[ -e $$folder/.installed ] || { rm -rf $$folder && \
		$(BIN)/python tests/torch/without_cuda.py "$$torch" --target $$folder && \
		touch $$folder/.installed; } || exit 1; \
	done

torches: torches-installed
	@for torch in $(TORCHES); do \
		export PYTHONPATH=$(CURDIR)/$(VENV)-$$torch; \
		$(BIN)/python -c "import torch; print('PyTorch', torch.__version__)" && \
		$(PYTEST) $(TORCH_TESTS) $(ARGS) || exit 1; \
	done

vendors: $(DEVELOPMENT)
	POLYHAL_TEST_ALL=1 $(BIN)/python -m pytest -n $(JOBS) $(addprefix tests/,opencl/test_described_lint.py opencl/test_opencl_occupancy.py opencl/test_matrix_units.py wgpu/test_described_translations.py) $(ARGS)

generate: $(RUNTIME)
	$(BIN)/python -m tools.generate $(ARGS)

# Pages are built on NumPy: the reference imports Polyhal, and needs no device.
site: $(DEVELOPMENT)
	POLYHAL_DEVICE=numpy $(BIN)/python -m tools.site $(ARGS)

lint: $(DEVELOPMENT)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check --quiet .

# mypy finds a package by its folder, and the folders here are mapped to packages by setup.py: link them into place.
typecheck: $(DEVELOPMENT)
	rm -rf .typecheck
	mkdir -p .typecheck/polyhal
	ln -s $(addprefix ../../,$(wildcard frontend/* apps/*)) .typecheck/polyhal/
	ln -s ../../hal ../../backends ../../shaders .typecheck/polyhal/
	ln -s ../polyhal_autoload ../tools .typecheck/
	cd .typecheck && MYPYPATH=../examples/plugins/cupy/src ../$(BIN)/mypy --config-file ../pyproject.toml --cache-dir ../.mypy_cache \
		-p polyhal -p polyhal_autoload -p polyhal_cupy -p tools

# Pyright gets an environment of its own: it brings or downloads Node.
$(VENV)-pyright/bin/pyright:
	$(PYTHON) -m venv $(VENV)-pyright
	$(VENV)-pyright/bin/python -m pip install --quiet --disable-pip-version-check "pyright>=1.1.390"

user-types: $(DEVELOPMENT) $(VENV)-pyright/bin/pyright
	$(BIN)/python -m tools.user_types --pyright $(VENV)-pyright/bin/pyright $(ARGS)

dist: $(DEVELOPMENT)
	$(BIN)/python -m tools.distribution $(ARGS)

bench: $(DEVELOPMENT)
	$(BIN)/python -m benchmarks $(ARGS)

clean:
	rm -rf $(VENV) $(VENV)-torch* $(VENV)-pyright .typecheck .mypy_cache .pytest_cache .ruff_cache .hypothesis build dist $(LEFT_OVER)
