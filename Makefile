# make demo    installs into .venv, makes a load, and says what to run on it, with a report
# make test    installs into .venv, then lint, types and all tests but the slow ones
# make test-slow   the tests that learn for longer
# make messages   writes every message and screen that the tests meet to build/messages.txt
# make tutorial   runs docs/tutorial.md and writes its outputs there and into the notebook
# make test-browser   the report in Debian's chromium, where that is installed
# make wheel   builds wheel and sdist, and tests the wheel bare: without torch, without extras
# make oldest  tests with the oldest supported versions of what corral stands on
# make test-frameworks   the bridges to other frameworks, each in an environment of its own
# make bench   runs the benchmarks
# make reliability   tries every promise of docs/reliability.md and writes its tables; SHARE=0.05: a part
# make demolition   the tests of the core, without corral.lab and corral.loads; PARTS=lab: without lab
# make security   bandit over the code, pip-audit over what is installed, where it reaches its service

PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
BARE   := .venv-bare

# What a wheel could lack, or needs torch or an extra for: files, commands, bridges, every game once.
# The rules of games are the same lines there, and are tested by make test.
BARE_TESTS := tests/data tests/cli tests/loads tests/envs/test_contract.py \
	tests/envs/conformance tests/adapters/test_sources.py tests/adapters/test_wrappers.py \
	tests/adapters/gymnasium tests/adapters/zoo/test_bridges.py
# What stands on NumPy's dtypes, Gymnasium, PettingZoo, pandas, SciPy, Pillow, Typer and rich.
OLDEST_TESTS := tests/data tests/cli tests/loads tests/trainers/evaluation tests/adapters \
	$(wildcard tests/envs/test_*.py) tests/envs/conformance tests/envs/render \
	tests/envs/dfaas_v0/test_optimum.py
FRAMEWORKS := cleanrl rllib torchrl tianshou agilerl skrl openspiel benchmarl

.PHONY: demo test lint types tests messages tutorial test-slow test-browser wheel oldest test-frameworks list-frameworks bench security reliability demolition clean

demo: $(VENV)/installed
	rm -rf runs/demo && mkdir -p runs
	$(BIN)/corral trace make --out runs/demo.csv --nodes 3 --days 35 --seed 1 --mean 16 --set largest=60 --set headroom=1.25 --set spread=0 --set uneven=0 --set scaling=0 --set maintenance=0 --set noise=0.25 --set bursts=3 --set shared=0
	OMP_NUM_THREADS=1 $(BIN)/corral advise runs/demo.csv --queue 16 --forward-cost 0.2 --link-limit 7 --no-second-offer --steps 32768 --seed 1 --out runs/demo

test: lint types tests

lint: $(VENV)/installed
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

# An editable install is invisible to mypy: the packages are installed into a folder of its own.
types: $(VENV)/installed
	rm -rf build/types build/lib
	$(BIN)/pip install --quiet --no-deps --target build/types .
	cd build/types && for what in "-p corral" ../../tests/packaging/typed_calls.py; do \
		../../$(BIN)/mypy --cache-dir ../../.mypy_cache --config-file ../../pyproject.toml $$what || exit 1; done

tests: $(VENV)/installed
	OMP_NUM_THREADS=1 $(BIN)/pytest -n 2 --dist worksteal -m "not slow"

# Every message and screen that the tests meet, on one page for a reader.
messages: $(VENV)/installed
	rm -f build/messages.jsonl && mkdir -p build
	CORRAL_MESSAGES=$(CURDIR)/build/messages.jsonl OMP_NUM_THREADS=1 \
		$(BIN)/pytest -q -n 2 --dist worksteal -m "not slow"
	$(BIN)/python tests/support/messages.py build/messages.jsonl build/messages.txt

tutorial: $(VENV)/installed
	$(BIN)/python docs/make_tutorial.py

test-slow: $(VENV)/installed
	OMP_NUM_THREADS=1 $(BIN)/pytest -n 2 --dist worksteal -m slow

# Skipped, with the reason printed, where there is no /usr/bin/chromium: apt-get install chromium.
test-browser: $(VENV)/installed
	OMP_NUM_THREADS=1 $(BIN)/pytest -m browser tests/browser

wheel: $(VENV)/installed
	rm -rf dist build $(BARE)
	mkdir -p build
	$(BIN)/python -m build --outdir dist . > build/log || { cat build/log; false; }
	$(PYTHON) -m venv $(BARE)
	$(BARE)/bin/pip install --quiet dist/corral-*.whl pytest pytest-xdist hypothesis
	$(BARE)/bin/python -c "import sys, corral.envs, corral.cli; assert 'torch' not in sys.modules"
	OMP_NUM_THREADS=1 $(BARE)/bin/pytest -n 2 --dist worksteal -m "not slow" $(BARE_TESTS)

# The oldest versions that pyproject.toml allows and that run on Python 3.11 and newer.
oldest:
	$(PYTHON) -m venv .venv-oldest
	.venv-oldest/bin/pip install --quiet --upgrade pip
	.venv-oldest/bin/pip install --quiet --constraint tests/oldest.txt . scipy pillow pytest pytest-xdist hypothesis
	OMP_NUM_THREADS=1 .venv-oldest/bin/pytest -n 2 --dist worksteal -m "not slow" $(OLDEST_TESTS)

# bandit: findings of medium severity fail; those that were looked at say so beside the line (nosec).
security: $(VENV)/installed
	$(PYTHON) -m venv .venv-security
	.venv-security/bin/pip install --quiet bandit pip-audit
	.venv-security/bin/bandit --quiet --recursive -ll envs adapters trainers data _corral
	.venv-security/bin/pip-audit --path $$($(BIN)/python -c "import sysconfig; print(sysconfig.get_path('purelib'))") \
		|| echo "pip-audit: see above; without its service (pypi.org) nothing is audited, and this says nothing"

test-frameworks: $(addprefix framework-,$(FRAMEWORKS))

list-frameworks:
	@echo $(FRAMEWORKS)

# One virtual environment each, since what they pin excludes each other. torch comes first, so that
# none of them brings another one. An example that needs no framework takes the extra of its trainer.
framework-%: EXTRA = $*
framework-cleanrl: EXTRA = mappo
framework-%:
	$(PYTHON) -m venv .venv-$*
	.venv-$*/bin/pip install --quiet --upgrade pip
	.venv-$*/bin/pip install --quiet --constraint constraints.txt torch
	.venv-$*/bin/pip install --quiet --constraint constraints.txt '.[$(EXTRA)]' pytest pytest-timeout
	OMP_NUM_THREADS=1 .venv-$*/bin/pytest --timeout 600 \
		$(wildcard tests/frameworks/test_$*.py tests/frameworks/test_$*_*.py)

bench: $(VENV)/installed
	OMP_NUM_THREADS=1 $(BIN)/python benchmarks/run.py

SHARE ?= 1
PARTS ?= lab loads
demolition: $(VENV)/installed
	$(BIN)/python tests/support/demolition.py $(PARTS) -- -n 2 --dist worksteal -m "not slow"

reliability: $(VENV)/installed
	OMP_NUM_THREADS=1 $(BIN)/python benchmarks/reliability.py --share $(SHARE)

# Installed anew when what it is made from changes.
$(VENV)/installed: pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/pip uninstall --quiet --yes pygame 2> /dev/null # pygame-ce comes into the same folder
	$(BIN)/pip install --quiet --upgrade pip
	$(BIN)/pip install --quiet --constraint constraints.txt torch
	PYTHONWARNINGS=ignore $(BIN)/pip install --quiet --constraint constraints.txt --editable '.[dev]'
	touch $@

clean:
	rm -rf build dist runs .venv .venv-* .mypy_cache .pytest_cache .ruff_cache
