# make run    set everything up and run a broker for this machine: http://localhost:5337/
# make test   set everything up and run the linters, the types and every test
# make bench  set everything up and measure how fast the broker is
#
# They need Python 3.11 or later with venv, and nothing else; what they install
# goes into .venv.

PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin

.PHONY: run test lint unit docs bench clean

run: $(VENV)/run-ready
	$(BIN)/twistd -n --pidfile= rsscloud-broker --local

test: lint unit docs

lint: $(VENV)/dev-ready
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports
	$(BIN)/mypy

unit: $(VENV)/dev-ready
	$(BIN)/trial --jobs 4 --reporter=text tests

docs: $(VENV)/dev-ready
	$(BIN)/sphinx-build --quiet --fail-on-warning --keep-going docs docs/_build/html

# Takes a quarter of an hour, on a machine that does nothing else.
bench: $(VENV)/dev-ready
	$(BIN)/python -m benchmarks all --write docs/benchmarks-results.rst

clean:
	rm -rf $(VENV) docs/_build _trial_temp* *.egg-info build dist .mypy_cache .ruff_cache .hypothesis

$(BIN)/pip:
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --upgrade 'pip>=24'

$(VENV)/run-ready: $(BIN)/pip setup.py pyproject.toml
	$(BIN)/pip install --quiet --editable .
	touch $@

# Flask-WebSub is somebody else's subscriber, for the tests.  It brings a package
# "tests" of its own, which would hide ours: so it goes where only that process looks.
$(VENV)/dev-ready: $(BIN)/pip setup.py pyproject.toml
	$(BIN)/pip install --quiet --editable '.[dev]'
	$(BIN)/pip install --quiet --upgrade --target $(VENV)/apart 'Flask-WebSub>=0.4.1'
	sh tests/e2e/install-nginx.sh
	touch $@ $(VENV)/run-ready
