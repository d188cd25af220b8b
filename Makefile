# Two commands on a fresh machine: 'make demo' and 'make test'. Both set up .venv by themselves.
PYTHON ?= python3
BIN := .venv/bin

.PHONY: demo env test quick test-lowest check bench bench-check docs audit-tests lock release clean
.DEFAULT_GOAL := help

help:
	@echo "make demo   set up, do eight short runs, leave one page with pictures: demo/report.html"
	@echo "make test   set up, then linters, types, the import contract and all tests, in some nine minutes on two cores"
	@echo "make quick  unit tests and laws on the embedded engine, in a minute and a half: no processes, browsers, real data or papers"
	@echo "make test-lowest  the quick tests with the lowest version of every package that pyproject.toml declares"
	@echo "make env    set up .venv with everything that tests and benchmarks need"
	@echo "make bench  times against peers in the same run, in some twelve minutes; leaves docs/benchmarks.md"
	@echo "            ('make bench-check' compares with the stored ratios; 'python -m benchmarks --help' lists all)"
	@echo "make docs   build the documentation site, leave docs/_build/html/index.html"
	@echo "make audit-tests  change the code in small ways and count what the tests notice; SAMPLE=all for every way"
	@echo "make release  build sdist and wheel, install the wheel into an empty environment, run the demo from it"
	@echo "make lock   write the lock files again from pyproject.toml"

# A lock is installed only when it, or what the package declares, has changed.
.venv/core.done: locks/core.txt pyproject.toml
	@$(PYTHON) -c 'import sys; sys.version_info >= (3, 11) or sys.exit("fedspan needs Python 3.11 or newer: make PYTHON=python3.12 ...")'
	@test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet -r locks/core.txt
	$(BIN)/python -m pip install --quiet --no-deps -e .
	@touch $@

.venv/dev.done: .venv/core.done locks/dev.txt
	$(BIN)/python -m pip install --quiet -r locks/dev.txt
	@touch $@

.venv/docs.done: .venv/dev.done locks/docs.txt
	$(BIN)/python -m pip install --quiet -r locks/docs.txt
	@touch $@

.venv/audit.done: .venv/dev.done locks/audit.txt
	$(BIN)/python -m pip install --quiet -r locks/audit.txt
	@touch $@

demo: .venv/core.done
	$(BIN)/fedspan demo --out demo

env: .venv/dev.done

check: .venv/dev.done
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

# One BLAS thread for each test process: more would only wait for each other. What is compiled is kept, since tests
# start many processes. Warnings are listed by a plain pytest; here they would bury what failed.
PYTEST := OPENBLAS_NUM_THREADS=1 OMP_NUM_THREADS=1 PYTHONDONTWRITEBYTECODE= $(BIN)/python -m pytest --disable-warnings

# Three processes for two cores: that of the tests over NVIDIA FLARE mostly waits.
test: check
	$(PYTEST) -n 3

QUICK := $(addprefix tests/, aggregation attacks clustering datasets durable federation landmarks laws linalg pca privacy secure_sum sums tables test_checks.py test_wire.py)
quick: .venv/dev.done
	$(PYTEST) -n 2 -m "not slow" --hypothesis-profile=quick --ignore=tests/laws/test_engines.py $(QUICK)

# In an environment of its own. Not part of 'make test': run it before a minimum is raised or a release is made.
LOWEST := $(filter-out tests/laws, $(QUICK)) $(addprefix tests/, model_selection test_persistence.py)
test-lowest:
	mkdir -p build
	$(PYTHON) tools/lowest_versions.py > build/lowest.txt
	test -x build/lowest/bin/python || $(PYTHON) -m venv build/lowest
	build/lowest/bin/python -m pip install --quiet -c build/lowest.txt -e ".[tables,secure,privacy,maps,excel,sql,mysql,mssql,atlas]" pytest hypothesis
	OPENBLAS_NUM_THREADS=1 OMP_NUM_THREADS=1 build/lowest/bin/python -m pytest --disable-warnings -m "not slow" $(LOWEST)

# Without dependencies: the lock holds all that is used, and ByzFL's own list has more (torchvision, seaborn).
.venv/bench.done: .venv/dev.done locks/bench.txt
	$(BIN)/python -m pip install --quiet --no-deps -r locks/bench.txt
	@touch $@

bench: .venv/bench.done
	$(BIN)/python -m benchmarks

bench-check: .venv/bench.done
	$(BIN)/python -m benchmarks --check

# Offline, and a warning is an error. Pages are read afresh; examples that have not changed are not run again.
docs: .venv/docs.done
	OPENBLAS_NUM_THREADS=1 OMP_NUM_THREADS=1 $(BIN)/python -m sphinx -E -W --keep-going -b html docs docs/_build/html

# Leaves build/mutation/survivors.txt. The same sample for the same seed.
SAMPLE ?= 400
SEED ?= 0
audit-tests: .venv/audit.done
	OPENBLAS_NUM_THREADS=1 OMP_NUM_THREADS=1 $(BIN)/python -m tools.mutation --sample $(SAMPLE) --seed $(SEED)

# locks/pins.in holds back what must not be the newest: this torch has a build for the CPU alone.
lock: .venv/dev.done
	$(BIN)/python -m pip install --quiet pip-tools
	$(BIN)/python -m piptools compile --quiet --strip-extras --no-emit-index-url --no-emit-find-links --no-emit-trusted-host --no-header --no-annotate --extra tables --extra secure -o locks/core.txt pyproject.toml
	$(BIN)/python -m piptools compile --quiet --strip-extras --no-emit-index-url --no-emit-find-links --no-emit-trusted-host --no-header --no-annotate --extra tables --extra deep --extra maps --extra secure --extra privacy --extra gpu --extra nvflare --extra sql --extra mysql --extra mssql --extra excel --extra plots --extra atlas --extra onnx --extra tracking --extra dev -c locks/core.txt -c locks/pins.in --allow-unsafe -o locks/dev.txt pyproject.toml
	$(BIN)/python -m piptools compile --quiet --strip-extras --no-emit-index-url --no-emit-find-links --no-emit-trusted-host --no-header --no-annotate --extra docs -c locks/dev.txt -c locks/pins.in --allow-unsafe -o locks/docs.txt pyproject.toml
	$(BIN)/python -m piptools compile --quiet --strip-extras --no-emit-index-url --no-emit-find-links --no-emit-trusted-host --no-header --no-annotate --extra bench -c locks/dev.txt -c locks/docs.txt -c locks/pins.in --unsafe-package torchvision --unsafe-package seaborn -o locks/bench.txt pyproject.toml
	$(BIN)/python -m piptools compile --quiet --strip-extras --no-emit-index-url --no-emit-find-links --no-emit-trusted-host --no-header --no-annotate --extra audit -c locks/dev.txt -c locks/pins.in --allow-unsafe -o locks/audit.txt pyproject.toml
	sed -i 's/+cpu$$//' locks/dev.txt locks/bench.txt

# sdist and wheel in dist/; the wheel alone, without extras, is installed into an empty environment, and the demo is run
# from there, in another folder.
release: .venv/core.done
	rm -rf dist build/release
	$(BIN)/python -m pip install --quiet build
	$(BIN)/python -m build --outdir dist . > /dev/null
	$(PYTHON) -m venv build/release
	build/release/bin/python -m pip install --quiet -c locks/core.txt "$$(ls dist/*.whl)"
	cd build/release && bin/fedspan demo --out demo
	@ls -l dist

clean:
	rm -rf .venv demo build dist *.egg-info src/*.egg-info .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis docs/_build docs/api docs/gallery
