# Two commands for a new machine with Python, make and g++:
#   make demo     installs into .venv, compiles a sample, builds it with nvcc, runs and verifies it
#   make test     the test suite
# `make help` lists the rest.

PYTHON  ?= python3
VENV    ?= .venv
BUILD   ?= build
JOBS    ?= 2
SHELL   := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c

BIN   := $(VENV)/bin
PY    := $(BIN)/python
TILEC := $(BIN)/tilec
PIP   := $(PY) -m pip --disable-pip-version-check

SAMPLES   := $(sort $(wildcard samples/*.tile))
# FILE.tile:KERNEL of each kernel that compiles; the others are checked.
COMPILED  := $(shell awk '/^[a-z]/ { print $$1 ":" $$2 }' samples/compiled.txt)
ARCH_OF    = $(shell awk '$$1 == "$(1).tile" && $$2 == "$(2)" && $$3 { print "--arch", $$3 }' samples/compiled.txt)
GENERATED := $(foreach pair,$(COMPILED),$(BUILD)/$(subst .tile:,.,$(pair)).cu)
COMPILER  := $(shell find tilec grammar templates -name '*.py' -o -name '*.lark' -o -name '*.jinja' \
               -o -name '*.cuh' -o -name '*.h' 2>/dev/null | sort)

# An editable install does not compile what it installs, and where PYTHONDONTWRITEBYTECODE is set nobody would: each start 0.2 s longer.
BYTECODE := $(PY) -m compileall -q tilec

# No nvcc of the system: the pip wheels bring one.
NVCC_EXTRA := $(shell [ -n "$${TILEC_NVCC:-}" ] || command -v nvcc >/dev/null || \
                compgen -G '/usr/local/cuda*/bin/nvcc' >/dev/null || echo ,nvcc)

.PHONY: help demo test test-wheels samples check bench tutorial lint format golden errors dist nvcc-matrix fuzz mutants clean
.DELETE_ON_ERROR:
.DEFAULT_GOAL := help

help:
	@echo 'demo         install, compile a sample, build it with nvcc, run and verify it'
	@echo 'test         the test suite on $(JOBS) processes (JOBS=N)'
	@echo 'samples      every kernel of samples/compiled.txt to $(BUILD)/FILE.KERNEL.cu, incremental; also with -j'
	@echo 'check        parse and check every sample'
	@echo 'bench        time the samples on the GPU'
	@echo 'tutorial     run every block of docs/tutorial.md, on the GPU if there is one'
	@echo 'lint         ruff and mypy;  format: ruff rewrites'
	@echo 'golden       rewrite the golden files and show the difference'
	@echo 'errors       rewrite docs/errors.md from the table of codes'
	@echo 'dist         the wheel and the source archive in dist/'
	@echo 'nvcc-matrix  the samples for every architecture with NVCC="nvcc …" (default: the one found)'
	@echo 'test-wheels  only what concerns the nvcc of the Python packages'
	@echo 'fuzz         N=200 random programs from SEED=0 on the emulator; what is wrong becomes a case'
	@echo 'mutants      every barrier, wait, guard and bound of the samples weakened, one at a time'
	@echo 'clean        remove what was built, .venv too'

# ---- the virtual environment ------------------------------------------------------------------------------------

$(PY):
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 10) and "tilec needs Python 3.10 or newer")'
	$(PYTHON) -m venv $(VENV)

$(VENV)/.user: $(PY) setup.cfg pyproject.toml
	$(PIP) install --quiet -e '.$(if $(NVCC_EXTRA),[$(NVCC_EXTRA:,%=%)])'
	@$(BYTECODE)
	@touch $@

$(VENV)/.dev: $(PY) setup.cfg pyproject.toml
	$(PIP) install --quiet -e '.[dev$(NVCC_EXTRA)]'
	@$(BYTECODE)
	@touch $@ $(VENV)/.user

# ---- what a user runs -------------------------------------------------------------------------------------------

demo: $(VENV)/.user
	@mkdir -p $(BUILD)
	@$(PY) -m tilec.toolchain.pycuda_install
	$(TILEC) doctor
	$(TILEC) compile samples/softmax.tile softmax -o $(BUILD)/softmax.cu
	$(TILEC) run samples/softmax.tile softmax

samples: $(GENERATED)
	@echo "$(words $(GENERATED)) kernels of $(words $(SAMPLES)) files in $(BUILD)/; samples/compiled.txt lists them"

# $(call sample,FILE,KERNEL)
define sample
$(BUILD)/$(1).$(2).cu: samples/$(1).tile $(COMPILER) | $(VENV)/.user
	@mkdir -p $(BUILD)
	$(TILEC) compile $$< $(2) $(call ARCH_OF,$(1),$(2)) -o $$@ -MD -MF $(BUILD)/$(1).$(2).d
endef
$(foreach pair,$(subst .tile:,/,$(COMPILED)),$(eval $(call sample,$(patsubst %/,%,$(dir $(pair))),$(notdir $(pair)))))

-include $(wildcard $(BUILD)/*.d)

# Every sample through the front half, and those that compile through all of it.
check: $(VENV)/.user
	@for file in $(SAMPLES); do echo $(TILEC) compile $$file --emit tile-ir; \
	  $(TILEC) compile $$file --emit tile-ir -o /dev/null; done
	@awk '/^[a-z]/' samples/compiled.txt | while read -r file kernel arch; do \
	  echo $(TILEC) compile --check-only samples/$$file $$kernel $${arch:+--arch $$arch}; \
	  $(TILEC) compile --check-only samples/$$file $$kernel $${arch:+--arch $$arch}; done
	@echo '$(words $(SAMPLES)) files checked, $(words $(COMPILED)) kernels compiled'

bench: $(VENV)/.user
	@$(PY) -m tilec.toolchain.pycuda_install
	$(TILEC) run samples/softmax.tile softmax --device gpu --bench

tutorial: $(VENV)/.user
	@$(PY) -m tilec.toolchain.pycuda_install
	$(PY) -m tests.tutorial docs/tutorial.md

# ---- what a developer runs --------------------------------------------------------------------------------------

# The toolkit of the Python packages, so that it is tested beside the system's (about 300 MB; WHEELS= does without).
WHEELS ?= $(abspath $(BUILD)/wheels)
NVCC_WHEELS = $(shell $(PYTHON) -c "import configparser as c; s = c.ConfigParser(); s.read('setup.cfg'); \
  print(*(repr(l.replace(' ', '')) for l in s['options.extras_require']['nvcc'].split('\n') if l))")

$(BUILD)/wheels/.installed: setup.cfg | $(PY)
	rm -rf $(@D)
	$(PIP) install --quiet --target $(@D) $(NVCC_WHEELS)
	@touch $@

test: $(VENV)/.dev $(if $(WHEELS),$(BUILD)/wheels/.installed)
	TILEC_TEST_WHEELS=$(WHEELS) $(PY) -m pytest -q -n $(JOBS)

test-wheels: $(VENV)/.dev $(BUILD)/wheels/.installed
	TILEC_TEST_WHEELS=$(abspath $(BUILD)/wheels) $(PY) -m pytest -q tests/toolchain/test_wheels.py

lint: $(VENV)/.dev
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy

format: $(VENV)/.dev
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

golden: $(VENV)/.dev
	$(PY) -m pytest -q tests/golden --update
	git --no-pager diff --stat -- tests/golden

errors: $(VENV)/.dev
	$(PY) -m tilec.source.error_index > docs/errors.md

dist: $(VENV)/.dev
	rm -rf dist
	$(PY) -m build --outdir dist .

NVCC ?=
nvcc-matrix: $(VENV)/.user
	$(PY) bench/nvcc_matrix.py $(addprefix --nvcc ,$(NVCC)) --jobs $(JOBS)

N    ?= 200
SEED ?= 0
fuzz: $(VENV)/.dev
	$(PY) -m tests.fuzz -n $(N) --seed $(SEED) --save

mutants: $(VENV)/.dev
	$(PY) -m tests.mutants --jobs $(JOBS)

clean:
	rm -rf $(BUILD) dist $(VENV) *.egg-info tilec.egg-info .mypy_cache .ruff_cache .pytest_cache
	find tilec tests -name __pycache__ -type d -prune -exec rm -rf {} +
