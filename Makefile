# What runs something sets .venv up first; that takes minutes once and a moment afterwards.
#   PYTHON=...       the Python 3.11 to build .venv with
#   EXTRA=gpu        CUDA builds of vLLM and torch instead of the CPU ones
#   TORCH_INDEX=...  address of PyTorch's CPU wheel index, where pip finds no +cpu wheel by itself
#   ARGS=...         more arguments for what the target runs: make fast ARGS='-k loop'

PYTHON ?= python3.11
EXTRA ?=
TORCH_INDEX ?=
ARGS ?=
BIN := .venv/bin
export TORCH_INDEX

.DEFAULT_GOAL := help
.PHONY: help setup demo test fast check format knobs lock hooks bench-trl clean

help:  ## this list
	@sed -n 's/^\([a-z-]*\):.*## /\1|/p' Makefile | while IFS='|' read -r target what; do \
	  printf '  make %-10s %s\n' "$$target" "$$what"; done
	@sed -n 's/^#   /  /p' Makefile

setup:  ## .venv from constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info[:2] != (3, 11))' 2>/dev/null || \
	  { echo "specrl needs Python 3.11 and '$(PYTHON)' is not one: install it, or name it with" \
	         "make setup PYTHON=/path/to/python3.11" >&2; exit 1; }
	@$(PYTHON) scripts/setup_env.py --extra "$(EXTRA)"

demo: setup  ## train a real model on this CPU, three ways of drafting compared
	@$(BIN)/specrl experiment=demo $(ARGS)

test: setup  ## checks and every test
	@$(call checked_beside,$(BIN)/pytest -n 2 $(ARGS))

fast: setup  ## checks and the tests that start neither vLLM, Megatron nor Ray
	@$(call checked_beside,$(BIN)/pytest -n 2 -m "not slow" $(ARGS))

# Each leaves cores idle while it starts and ends. The checks' output comes last.
checked_beside = code=0; said=$$(mktemp); $(MAKE) --no-print-directory check >$$said 2>&1 & \
	  checks=$$!; $(1) || code=1; wait $$checks || code=1; cat $$said; rm $$said; exit $$code

check: setup  ## ruff, ruff format, mypy --strict, import-linter
	@code=0; for tool in "ruff check" "ruff format --check" mypy "lint-imports --no-logo"; do \
	  $(BIN)/$$tool || code=1; done; exit $$code

format: setup  ## let ruff format and fix what it can
	@$(BIN)/ruff format . && $(BIN)/ruff check --fix .

knobs: setup  ## every config key with its type, default and meaning
	@$(BIN)/python scripts/knobs.py

lock:  ## write constraints.txt from what .venv has now
	@$(BIN)/python scripts/lock.py

hooks: setup  ## run the checks before every git commit
	@$(BIN)/pre-commit install

bench-trl: setup  ## a step of specrl against a step of TRL, minutes on a quiet machine
	@test -x .venv-trl/bin/python || $(PYTHON) -m venv .venv-trl
	@.venv-trl/bin/pip install -q --no-deps -r benchmarks/requirements-trl.txt \
	  $(if $(TORCH_INDEX),--extra-index-url $(TORCH_INDEX))
	@$(BIN)/python benchmarks/trl_step.py $(ARGS)

clean:  ## remove both environments and all caches; runs and results stay
	rm -rf .venv .venv-trl .mypy_cache .ruff_cache .pytest_cache .import_linter_cache build *.egg-info
	find . -name __pycache__ -not -path './.git/*' -prune -exec rm -rf {} +
