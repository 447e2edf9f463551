# make run    set everything up and run a broker for this machine: http://localhost:5337/
# make test   set everything up and run the linters, the types and the tests: five minutes
# make quick  run the tests of units only: in a minute, and without other programs
# make test-all
#             run make test, and then the tests that take long: a quarter of an hour
# make mutants
#             break the broker in a hundred ways, and see that the tests notice each
# make pictures
#             make the pictures of the manual, and those of ten pages in _screenshots: a minute
# make test-oldest
#             run the tests with the oldest dependencies that pyproject.toml allows
# make faults kill brokers on one PostgreSQL, and crash that, again and again: some minutes
# make dist   build a release into dist, and try it: five minutes
# make deb    build a Debian package from that, and try it in a new Debian: four minutes, as root
# make image  build an image for containers, and try its files: five minutes, as root
# make licences
#             list the licences of all dependencies
# make lock   choose the newest versions of all dependencies for the image and the Debian package
# make site   build the manuals of all versions into docs/_build/site: a minute for each
# make bench  set everything up and measure how fast the broker is
#
# They need Python 3.11 or later with venv, and the network when they run for the first time.
# What they install goes into .venv, but for packages of Debian that make test needs.
#
# make run ARGS="--listen tcp:8080" hands options to twistd rsscloud-broker.  With
# ARGS="--couriers 0" the broker makes all calls itself.
# make test EXAMPLES=20 has the tests make up 20 times as many examples as are usual for them; by
# itself make test makes up 0.4 times as many.

PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
PIP = $(BIN)/pip $(4) install --quiet --no-build-isolation
ARGS ?=

# Where the tests write down how long they took, and how they are run then: four at a time, for
# many of them wait for other processes.  What hypothesis finds out about the package and about
# Unicode is kept: else each process of each run would do it again.
TIMES := _trial_temp_times
TRIAL := TEST_TIMES=$(abspath $(TIMES)) \
    HYPOTHESIS_STORAGE_DIRECTORY=$(abspath $(VENV))/hypothesis $(BIN)/trial --reporter=text

# The tests start hundreds of processes.  Without its bytecode, each compiles the package anew.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: run test test-all test-oldest lint unit longer quick mutants faults docs site man pictures \
    bench clean dist lock licences deb image

# The broker ends by the signal of Ctrl-C, which is the way to end it and no error.
run: $(VENV)/run-ready
	@echo "Starting a broker.  It says below at which address to look (http://localhost:5337/,"
	@echo "unless ARGS says otherwise) when it is up, and prints a link to sign in; Ctrl-C ends it."
	@trap : INT; $(BIN)/rsscloud-broker serve --local $(ARGS); \
	    status=$$?; test $$status -eq 130 || exit $$status

# The tests look at the built documentation.  Meanwhile the linters run, which are heard when the
# tests are over.
test: $(VENV)/dev-ready
	@$(MAKE) --no-print-directory lint >$(VENV)/lint.log 2>&1 & \
	    $(MAKE) --no-print-directory docs && $(MAKE) --no-print-directory unit; unit=$$?; \
	    wait $$!; lint=$$?; cat $(VENV)/lint.log; test $$unit -eq 0 -a $$lint -eq 0

lint: $(VENV)/dev-ready
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports
	$(BIN)/mypy

# $(call tests,RUNS) runs the tests of some of the runs in tests/runs.py, and lists the slowest and
# those that failed.
define tests
@sh tests/e2e/install-programs.sh $(VENV)
@rm -rf $(TIMES) $(VENV)/passed
$(BIN)/python -m tests.runs $(1) >$(VENV)/tests
@{ $(TRIAL) --jobs 4 $$(cat $(VENV)/tests) 2>&1 && touch $(VENV)/passed; } | tee -i $(VENV)/output
@$(BIN)/python -c 'from tests.slowest import main; main()' $(TIMES) $(VENV)/output
@test -e $(VENV)/passed
endef

# Of what is made up at random, continuous integration tries more.
unit quick: export EXAMPLES ?= 0.4

unit: $(VENV)/dev-ready
	$(call tests,usual quick)

# What make test leaves out: faults of databases and clusters, kills, and every page at every width.
longer: $(VENV)/dev-ready
	$(call tests,longer)

test-all: test
	@$(MAKE) --no-print-directory longer

# The last line but two says how many tests there were.
quick: $(VENV)/dev-ready
	@rm -rf $(TIMES)
	@$(BIN)/python -m tests.runs quick >$(VENV)/tests
	@$(TRIAL) --jobs 2 $$(cat $(VENV)/tests)

# Takes some ten minutes.  make mutants WORDS="walk.py breakers.py" tries those of some modules.
mutants: $(VENV)/dev-ready
	$(BIN)/python -m tests.mutants $(WORDS)

# make test-all does this with one seed, which is a choice of the moments of faults.
SEEDS ?= 1 2 3 4 5

faults: $(VENV)/dev-ready
	@for seed in $(SEEDS); do echo "Seed $$seed"; \
	    FAULTS_SEED=$$seed $(TRIAL) tests.e2e.test_cluster_faults || exit 1; done

# The oldest packages that pyproject.toml allows, which hide the newest ones, and the tests that run
# with them: those of all rooms.  make test-oldest ROOMS="tests.outbound tests.core" runs fewer.
OLDEST := $(VENV)/oldest
ROOMS ?= $(subst /,.,$(patsubst %/__init__.py,%,$(wildcard tests/*/__init__.py)))

test-oldest: $(OLDEST)/ready
	PYTHONPATH=$(abspath $(OLDEST)) $(TRIAL) --jobs 4 $(ROOMS)

$(OLDEST)/ready: pyproject.toml | $(VENV)/dev-ready
	@rm -rf $(OLDEST)
	@$(BIN)/python -m tests.oldest >$(VENV)/oldest.txt
	$(call install,the oldest packages,half a minute,--only-binary :all: --target $(OLDEST) \
	    --requirement $(VENV)/oldest.txt)
	@touch $@

docs: $(VENV)/dev-ready
	$(BIN)/sphinx-build --quiet --fail-on-warning --keep-going docs docs/_build/html

site: $(VENV)/dev-ready
	@$(BIN)/python -m release.site

man: $(VENV)/dev-ready
	$(BIN)/sphinx-build -b man --quiet --fail-on-warning --keep-going docs docs/_build/man

pictures: $(VENV)/dev-ready
	@sh tests/e2e/install-programs.sh $(VENV)
	$(BIN)/python -m tests.e2e.pictures

# docs/releasing.rst says what these are for.
RELEASE := $(VENV)/release
LOCK := release/requirements.txt

dist: $(RELEASE)/ready
	@$(RELEASE)/bin/python -m release.dist

deb: $(RELEASE)/ready $(VENV)/dev-ready
	@rm -f dist/*.deb
	@sh release/debian/build.sh $(RELEASE)/bin/pip $(BIN)/sphinx-build
	@$(RELEASE)/bin/python -m release.dist sums
	@sh release/debian/try.sh dist/*.deb $(OLD)

image:
	@sh release/image.sh

licences: $(RELEASE)/ready | $(VENV)/run-ready
	@$(RELEASE)/bin/pip-licenses --python=$(BIN)/python --from=mixed --with-urls

# Its comments name no place from which packages come, nor a path of this machine.
lock: $(RELEASE)/ready
	$(RELEASE)/bin/uv pip compile --quiet --upgrade --universal --python-version 3.11 --generate-hashes \
	    --no-header --no-annotate --extra postgresql --output-file $(LOCK) pyproject.toml

$(RELEASE)/ready: pyproject.toml | $(VENV)/run-ready
	@$(PYTHON) -m venv $(RELEASE)
	$(call install,what builds a release,half a minute,--group release,--python $(RELEASE))
	@touch $@

# Takes a quarter of an hour, on a machine that does nothing else.
bench: $(VENV)/dev-ready
	$(BIN)/python -m benchmarks all --write docs/benchmarks-results.rst

clean:
	rm -rf $(VENV) docs/_build _screenshots _trial_temp* *.egg-info build dist .mypy_cache .ruff_cache .hypothesis

# $(call install,WHAT,HOW LONG,ARGUMENTS,OPTIONS OF PIP) has pip install WHAT.  If all of it is there already
# it says nothing and needs no network: a new checkout makes pyproject.toml newer, but often
# changes nothing in it.
define install
@$(PIP) --no-index $(3) >$(VENV)/pip.log 2>&1 || { \
    echo "Installing $(1) into $(VENV): about $(2)."; \
    $(PIP) --retries 1 $(3) >$(VENV)/pip.log 2>&1; \
} || if grep -q 'connection broken by' $(VENV)/pip.log; then \
    echo "No network: pip cannot fetch what is missing.  Connect this machine and run make" \
        "again; $(VENV)/pip.log has the details." >&2; exit 1; \
else \
    cat $(VENV)/pip.log >&2; exit 1; \
fi
endef

$(BIN)/pip:
	@echo "Setting up a virtual environment in $(VENV), with all that is needed here.  This is done"
	@echo "once, needs the network, and takes one to three minutes."
	@$(PYTHON) -m venv $(VENV)

# With setuptools in the environment, this project can be built without the network.
$(VENV)/run-ready: setup.py pyproject.toml | $(BIN)/pip
	$(call install,pip and setuptools,ten seconds,'pip>=25.1' 'setuptools>=77')
	$(call install,this project and the libraries that it needs,a minute,--editable .)
	@touch $@

$(VENV)/dev-ready: $(VENV)/run-ready | $(VENV)/apart/flask_websub
	$(call install,what the linters and the tests need,two minutes,--editable '.[dev]')
	@touch $@

# Flask-WebSub is somebody else's subscriber, for the tests.  It brings a package
# "tests" of its own, which would hide ours: so it goes where only that process looks.
$(VENV)/apart/flask_websub: | $(VENV)/run-ready
	$(call install,Flask-WebSub,ten seconds,--target $(VENV)/apart 'Flask-WebSub>=0.4.1')
