# memlab's house-keeping.  `make help` lists the targets.

# Interpreter that makes the virtual environment; Python 3.10 or newer.
PYTHON ?= python3
# Where the virtual environment lives; it may be shared by checkouts, one at a time.
MEMLAB_VENV ?= .venv
# What pip installs as torch.  The tests, and what the pages show, are held to this version.
TORCH ?= torch==2.15.0
# Where `make test-torch` makes its virtual environment: one for each torch.
TORCH_VENV ?= .venv-$(subst =,,$(TORCH))
# What `make test-torches` runs them on, in turn.
TORCHES ?= 2.6.0 2.8.0 2.11.0 2.12.1 2.13.0 2.14.1 2.15.0
# The tests that look closest at torch: its events, allocator, phantom device and autograd.
TORCH_TESTS ?= tests/native tests/lab/test_allocator_model.py tests/phantom tests/record \
    tests/attribution tests/lend tests/objects
# Where `make test-composer` makes its virtual environment.
COMPOSER_VENV ?= .venv-composer
# Where `make test-trainers` makes its virtual environment.
TRAINERS_VENV ?= .venv-trainers
# Where `make test-frontends` puts JupyterLab, Notebook and nbclassic.
FRONTENDS_VENV ?= .venv-frontends
# Where `make docs` makes its virtual environment.
DOCS_VENV ?= .venv-docs
# How many processes run the Python tests, each a file at a time.
JOBS ?= $(shell nproc)
# Fewer wheels, as in `make wheels WHEELS='--pythons 3.11 --torches 2.15.0'`.
WHEELS ?=
# Further words for pytest, as in `make test PYTEST_ARGS='-k ledger -x'`.
PYTEST_ARGS ?=
# Where `make programs` finds checkouts, and further words for tests/public/run.py, as in
# `make programs DIR=.. PROGRAMS_ARGS='--only mnist'`.
DIR ?=
PROGRAMS_ARGS ?=

VENV := $(MEMLAB_VENV)
VENV_PYTHON := $(VENV)/bin/python
# Files by name, and not those of most tests first: those of few take the longest.  A test
# that hangs fails after --timeout seconds; the slowest takes a minute.
# One failure is not memlab's, docs/TORCH_VERSIONS.md: how torch 2.15 may end before CPython
# 3.14.  A test that says so runs again; the summary counts these.
PYTEST_FLAGS := -n $(JOBS) --dist loadfile --no-loadscope-reorder --timeout=900 \
    --reruns 2 --only-rerun "terminate called without an active exception"
PYTEST := $(VENV_PYTHON) -m pytest tests $(PYTEST_FLAGS)

CFLAGS ?=
CTEST_SOURCES := $(sort $(shell find tests/c -name "test_*.c"))
# Which CTEST_FLAGS_ the C tests are built with.
VARIANT ?= release
CTEST_DIR := build/ctest/$(VARIANT)
# With the checks of lengths that distributions' compilers turn on for extensions.
CTEST_FLAGS_release := -O2 -DNDEBUG -U_FORTIFY_SOURCE -D_FORTIFY_SOURCE=3
CTEST_FLAGS_debug := -O0 -g3 -DML_DEBUG=3
# Lines are all that the sanitizers tell.
CTEST_FLAGS_asan := -O1 -g1 -DML_DEBUG=3 -fsanitize=address,undefined \
    -fno-sanitize-recover=all -fno-omit-frame-pointer
CTEST_FLAGS_tsan := -O1 -g1 -DML_DEBUG=1 -fsanitize=thread
CTEST_FLAGS_valgrind := -O1 -g -DML_DEBUG=1
CTEST_FLAGS_cov := -O0 -g --coverage
CTEST_RUNNER_valgrind := valgrind -q --error-exitcode=9 --leak-check=full
# Words for the C compiler alone, as in `make test-c WERROR=-Werror`.
WERROR ?=

C_FLAGS = @tools/warnings.flags @tools/warnings-core.flags -Icsrc -Icsrc/core -Icsrc/py \
    -Itests/c/support -pthread $(CTEST_FLAGS_$(VARIANT)) $(WERROR) $(CFLAGS)
CORE_SOURCES := $(sort $(shell find csrc/core -name "*.c"))
CORE_OBJECTS := $(CORE_SOURCES:csrc/core/%.c=$(CTEST_DIR)/core/%.o)
CTESTS := $(patsubst tests/c/%.c,$(CTEST_DIR)/%,$(CTEST_SOURCES))

C_FILES := $(sort $(shell find csrc tests -name "*.[ch]" -o -name "*.cpp"))
CLANG_FORMAT ?= $(firstword $(foreach f,clang-format-14 clang-format,$(shell command -v $f)))

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.SECONDARY:
.PHONY: help setup demo test test-c test-cpu test-torch test-torches test-composer test-trainers \
    test-frontends programs test-nightly \
    build debug asan tsan valgrind cov format lint docs wasm bench wheel wheels clean

help: ## List the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## /{printf "  make %-14s %s\n", $$1, $$2}' Makefile
	@echo
	@echo "Variables: PYTHON=$(PYTHON)  MEMLAB_VENV=$(VENV)  TORCH=$(TORCH)"

setup: ## Make the virtual environment, with torch, and build memlab into it
	@PYTHON='$(PYTHON)' tools/setup.sh '$(VENV)' '$(TORCH)'

demo: setup ## Train a small GPT and show where its memory went
	$(VENV)/bin/memlab run --phantom=auto --out memlab_demo examples/train_gpt.py

test: setup test-c ## Run all tests
	$(PYTEST) $(PYTEST_ARGS)

test-cpu: setup test-c ## Run the tests that need no CUDA build of torch
	$(PYTEST) -m "not cuda" $(PYTEST_ARGS)

test-torch: ## Run the tests that look closest at torch on another, TORCH=torch==2.11.0
	@PYTHON='$(PYTHON)' tools/setup.sh '$(TORCH_VENV)' '$(TORCH)'
	$(TORCH_VENV)/bin/python -m pytest $(TORCH_TESTS) $(PYTEST_FLAGS) $(PYTEST_ARGS)

test-torches: ## Run test-torch on each of TORCHES, at night: hours, and 5 GB each
	@failed=; for torch in $(TORCHES); do \
	    $(MAKE) --no-print-directory test-torch TORCH=torch==$$torch || \
	        failed="$$failed $$torch"; \
	done; [ -z "$$failed" ] || { echo "memlab: failed on torch$$failed" >&2; exit 1; }

# After the other commands, so that only what is missing is found there.
WITH_FRONTENDS := PATH="$$PATH:$(abspath $(FRONTENDS_VENV))/bin"
# What the nightly tests do instead of the amounts of `make test`; some hours in all.
NIGHTLY ?= MEMLAB_KILLS=1000 MEMLAB_FORKS=10000 MEMLAB_RECORDING_FORKS=1000 \
	MEMLAB_EXITS=100 MEMLAB_THREADS=20000 \
    MEMLAB_SIGNAL_TURNS=500 MEMLAB_EVENTS=10000000 MEMLAB_STEPS=20000 \
    MEMLAB_TRAINING_SECONDS=600 MEMLAB_TRAINING_KILLS=150 MEMLAB_MODEL_EVENTS=1000000 \
    MEMLAB_TOTALS=300 MEMLAB_CONTEXTS=20 MEMLAB_RANK_KINDS=7 MEMLAB_COMPILED_KINDS=7 \
    MEMLAB_FIT=1 MEMLAB_WORLD_KINDS=30 MEMLAB_WORLD_EXPERTS=2 MEMLAB_WORLD_H200S=32 MEMLAB_WORLD_CASES=2 \
    MEMLAB_MODULE_PROGRAMS=58 MEMLAB_GPUS=17 MEMLAB_BAD_VALUES=20000 MEMLAB_PAGE_LOOKS=4

test-composer: ## Run the callbacks in Composer itself; its torch is another, 5.4 GB
	@PYTHON='$(PYTHON)' tools/setup_composer.sh '$(COMPOSER_VENV)'
	$(COMPOSER_VENV)/bin/python -m pytest tests/composer $(PYTEST_ARGS)

test-trainers: ## Run memlab beside DeepSpeed, TRL, PEFT, accelerate, Ray and torchtune
	@PYTHON='$(PYTHON)' tools/setup.sh '$(TRAINERS_VENV)' '$(TORCH)'
	$(TRAINERS_VENV)/bin/python -m pip install -q deepspeed trl peft datasets \
	    'ray[train]' torchtune torchdata kubernetes-validate
	@# torchtune needs this one, which PEFT refuses: apart, for torchtune alone.
	[ -d '$(TRAINERS_VENV)/torchtune' ] || $(TRAINERS_VENV)/bin/python -m pip install -q \
	    --no-deps --target '$(TRAINERS_VENV)/torchtune' torchao==0.9.0
	$(TRAINERS_VENV)/bin/python -m pytest tests/trainers tests/fit/test_cluster.py $(PYTEST_ARGS)

test-frontends: setup ## Run the magics in JupyterLab, Notebook 7 and nbclassic, in Chromium
	$(PYTHON) -m venv '$(FRONTENDS_VENV)'
	$(FRONTENDS_VENV)/bin/python -m pip install -q jupyterlab 'notebook>=7' nbclassic
	$(WITH_FRONTENDS) $(VENV_PYTHON) -m pytest tests/notebook/test_frontends.py $(PYTEST_ARGS)

programs: setup ## Run public programs from DIR's checkouts, and try each advice on them
	@[ -d '$(DIR)' ] || { echo "memlab: give DIR, a folder with clones of the repositories of \
	    tests/public/programs.ini: make programs DIR=..." >&2; exit 1; }
	$(VENV_PYTHON) tests/public/run.py '$(DIR)' $(PROGRAMS_ARGS)

test-nightly: setup ## Run the long tests; prints what they did, with which seeds
	$(NIGHTLY) $(WITH_FRONTENDS) $(VENV_PYTHON) -m pytest tests -m nightly -rP --durations=0 $(PYTEST_ARGS)

build: setup ## Build memlab in place

debug: export MEMLAB_DEBUG = 1
debug: setup ## Build memlab in place, unoptimised, with all assertions

test-c: $(CTESTS) ## Build and run the C tests
	@tools/run_c_tests.sh "$(CTEST_RUNNER_$(VARIANT))" $(CTESTS)

asan: ## Run the C tests under the address and undefined-behaviour sanitizers
	@$(MAKE) --no-print-directory test-c VARIANT=asan

tsan: ## Run the C tests that start threads, or write files, under the thread sanitizer
	@$(MAKE) --no-print-directory test-c VARIANT=tsan \
	    CTEST_SOURCES="$$(grep -lE 'pthread_create|journal' $(CTEST_SOURCES) | xargs)"

valgrind: ## Run the C tests under valgrind
	@$(call need,valgrind,valgrind)
	@$(MAKE) --no-print-directory test-c VARIANT=valgrind

cov: setup ## Measure the lines that the C tests and the Python tests reach
	@tools/coverage.sh '$(VENV_PYTHON)'

format: ## Lay out the C and C++ files with clang-format 14
	@$(call need,$(or $(CLANG_FORMAT),clang-format-14),clang-format-14)
	$(CLANG_FORMAT) -i $(C_FILES)

lint: ## Check lengths, terms, layout, warnings of gcc and clang, cppcheck, ruff, rooms
	@tools/lint.sh $(C_FILES)

docs: setup ## Build the docs site into build/docs; a link that leads nowhere fails
	@PYTHON='$(PYTHON)' MEMLAB_PYTHON='$(VENV_PYTHON)' tools/docs/build.sh '$(DOCS_VENV)'

wasm: ## Build the core that the empty page reads files with
	@$(call need,clang-14,clang-14 lld-14 llvm-14 wasi-libc libclang-rt-14-dev-wasm32)
	@tools/wasm.sh

bench: setup ## Measure memlab against torch's own recorder and pytorch_memlab
	$(VENV_PYTHON) -m pip install -q -r bench/requirements.txt
	$(VENV_PYTHON) bench/run.py

wheel: setup ## Build a source archive and a wheel into dist/
	$(VENV_PYTHON) -m build --no-isolation

wheels: ## Build into dist/ the wheels that need no compiler, with bridges to many torches
	$(PYTHON) tools/wheels/build.py dist $(WHEELS)

clean: ## Remove what the build made, not the virtual environment
	rm -rf build dist *.egg-info coverage memlab_demo
	rm -f memlab/*.so
	find . -name __pycache__ -not -path './.venv*' -prune -exec rm -rf {} +

# $(call need,PROGRAM,DEBIAN PACKAGE): stops with one line where PROGRAM is missing.
need = command -v $(1) >/dev/null || { echo "memlab: $(1) not found; \
    install it (Debian: apt-get install $(2))" >&2; exit 1; }

$(CTEST_DIR)/core/%.o: csrc/core/%.c $(CTEST_DIR)/flags
	@mkdir -p $(@D)
	@echo "cc $< ($(VARIANT))"
	@$(CC) $(C_FLAGS) -MMD -MP -c $< -o $@

$(CTEST_DIR)/%: tests/c/%.c $(CORE_OBJECTS) $(CTEST_DIR)/flags
	@mkdir -p $(@D)
	@echo "cc $< ($(VARIANT))"
	@$(CC) $(C_FLAGS) -MMD -MP -MF $@.d $< $(CORE_OBJECTS) -ldl -o $@

# Changes only when the compiler or its flags do.
$(CTEST_DIR)/flags: FORCE tools/warnings.flags tools/warnings-core.flags
	@mkdir -p $(@D)
	@echo '$(CC) $(C_FLAGS)' | cat - tools/*.flags | cmp -s - $@ || \
	    echo '$(CC) $(C_FLAGS)' | cat - tools/*.flags > $@

.PHONY: FORCE
FORCE:

-include $(shell find $(CTEST_DIR) -name '*.d' 2>/dev/null)
