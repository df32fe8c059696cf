# Commands, each of which first makes what it needs (tools/setup.sh):
#   make demo    the main job on a generated data set
#   make test    the test suite
#   make quick   the tests that are not slow, in two minutes on two cores
#   make faults  whether the tests notice each mistake of tests/faults.toml, in about an hour
#   make lint    the rules of pyproject.toml's [tool.ruff], and spelling, of the files that git tracks
#   make docs    the documentation, as docs/_build/index.html
# STACK=upstream does the same with upstream's mm packages, in .venv-upstream.
# OPS=compiled compiles mmcv's operators, which cvt_dense.ops has in PyTorch otherwise.
STACK ?= onedl
OPS ?= torch
ifeq ($(STACK),onedl)
  REQUIREMENTS := requirements.txt
  VENV ?= .venv
else ifeq ($(STACK),upstream)
  REQUIREMENTS := requirements-upstream.txt
  VENV ?= .venv-upstream
else
  $(error STACK=$(STACK): give STACK=onedl (default) or STACK=upstream)
endif

# test workers (one more than cores, because tests wait for processes), and the threads each may use
CORES := $(shell nproc 2>/dev/null || sysctl -n hw.ncpu 2>/dev/null || echo 2)
WORKERS := $(shell n=$$(($(CORES) + 1)); [ $$n -gt 8 ] && n=8; echo $$n)
THREADS := $(shell n=$$(($(CORES) / $(WORKERS))); [ $$n -lt 1 ] && n=1; echo $$n)

.PHONY: setup demo test quick faults lint docs

setup:
	@VENV='$(VENV)' REQUIREMENTS='$(REQUIREMENTS)' OPS='$(OPS)' bash tools/setup.sh

demo: setup
	$(VENV)/bin/python tools/demo.py

test: setup
	OMP_NUM_THREADS=$(THREADS) $(VENV)/bin/python -m pytest -n $(WORKERS) --dist loadfile --no-loadscope-reorder

quick: setup
	OMP_NUM_THREADS=$(THREADS) $(VENV)/bin/python -m pytest -n $(WORKERS) --dist loadfile --no-loadscope-reorder -m 'not slow'

faults: setup
	$(VENV)/bin/python tests/faults.py

lint: setup
	git grep -lz '' -- '*.py' '*.ipynb' | xargs -0 $(VENV)/bin/python -m ruff check --force-exclude
	git grep -lIz '' | xargs -0 $(VENV)/bin/codespell

docs: setup
	$(VENV)/bin/python -m sphinx -q -W --keep-going -b html docs docs/_build
