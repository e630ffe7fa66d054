# Nothing has to be set up before: each target makes .venv and installs what it uses (also Debian packages, as root;
# otherwise it prints what is missing).

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
# Each worker would compile every test again.
unexport PYTHONDONTWRITEBYTECODE
.PHONY: help demo test unit property integration faults nightly cluster-test mutants churn lint bench manifests man site dist images constraints clean

python := .venv/bin/python
DATASTORE ?= sqlite
# Two workers more than there are cores, because integration tests wait for servers, two of them for API servers most of
# the time; tests/conftest.py says which tests share a worker.
parallel := $(python) -m pytest -n $(shell expr $$(nproc) + 2) --dist loadgroup
coverage = .venv/bin/coverage report --include='$(1)/*' --fail-under=$(2)
# What `make lint` runs: all of it, whatever fails.
linters := ruff-format ruff-check mypy pyright lint-imports sphinx
lint.ruff-format := ruff format --check .
lint.ruff-check := ruff check .
lint.mypy := mypy --strict
lint.pyright := pyright --pythonpath $(python) --warnings
lint.lint-imports := lint-imports
# All pages anew: of pages that it knows from before, Sphinx would not repeat the warnings.
lint.sphinx := python -m sphinx --quiet --fail-on-warning --fresh-env --write-all -d dist/doctrees -c tools/site . dist/site
# The other servers that the tests have to pass on, at night: the oldest and the newest etcd, and an older API server.
# Only the tests of what netplug asks of a server: what it does with the answers is the same on all of them.
other_etcds := etcd-debian etcd-v3.7.3
other_apiservers := kube-apiserver-v1.35.4
of_etcd = $(wildcard tests/integration/test_etcd_*.py) tests/integration/test_every_datastore.py
of_apiserver = $(wildcard tests/integration/test_kubernetes_*.py) tests/integration/test_every_datastore.py \
    tests/integration/test_admission.py tests/integration/test_install_cluster.py tests/integration/test_operator.py
of_cluster = $(addsuffix -v1.36.3,kube-apiserver kubectl kubelet kube-controller-manager kube-scheduler)
step = @printf '==> %s\n'
# The rule is in tests/conftest.py.
missed = $(if $(filter 1 true,$(shell echo '$(CI)' | tr A-Z a-z)),fail: CI=$(CI) allows no skip,are skipped)
# The first time servers are built while those tests run that need none (tests/harness/servers/binaries.py waits).
beside_servers = @{ tools/servers || printf '%s\n' 'tests that need what is missing $(missed)'; } & \
    failed=0; $(1) || failed=$$?; wait; exit $$failed

help:                   ## this list
	@grep -E '^[a-z -]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## */\t/' | expand -t 14

# The servers of the other datastores come with what development takes.
demo:                   ## two nodes whose pods reach each other, shown and taken down again; DATASTORE=etcdv3, kubernetes; KEEP=1 leaves it up
	@tools/prepare $(if $(filter-out sqlite,$(DATASTORE)),dev,demo)
	@DATASTORE=$(DATASTORE) tools/demo

test:                   ## every test, and the branch coverage of each package
	@tools/prepare dev
	$(step) 'pytest: unit, property, integration, with branch coverage'
	$(call beside_servers,$(parallel) --cov --cov-report= --durations=15)
	$(step) 'coverage: netplug_core is complete; netplug_backends and netplug_cli are above 90 %'
	@$(call coverage,netplug_core,100)
	@$(call coverage,netplug_backends,90)
	@$(call coverage,netplug_cli,90)

unit property:          ## one folder of tests, without coverage
	@tools/prepare dev
	$(step) 'pytest: $@'
	@$(parallel) tests/$@

integration:            ## the tests on real kernels and real servers
	@tools/prepare dev
	$(step) 'pytest: integration'
	$(call beside_servers,$(parallel) tests/integration)

faults:                 ## every fault at every write of every operation of the allocator
	@tools/prepare dev
	$(step) 'pytest: faults'
	@$(parallel) tests/faults

# Each part of the night is a target of its own: what failed can be run again alone.
nights := nightly-unit nightly-faults nightly-integration nightly-stress nightly-node $(addprefix nightly-,$(other_etcds)) \
    $(addprefix nightly-,$(other_apiservers)) nightly-dist cluster-test mutants
.PHONY: $(nights)
# Only tests in which a night tries more: the others would be those of `make test` again.
deep = NETPLUG_HYPOTHESIS_PROFILE=nightly $(parallel) --deeper

nightly:                ## every test in which a night tries more; other servers; what is published
	@tools/prepare dev --night
	@tools/servers --all
	@$(MAKE) --jobs=1 --keep-going --no-print-directory $(nights)

nightly-unit:
	$(step) 'pytest: unit and property, deep'
	@$(deep) tests/unit tests/property

nightly-faults:
	$(step) 'pytest: faults, deep'
	@$(deep) tests/faults

nightly-integration:
	$(step) 'pytest: integration, deep'
	@$(deep) tests/integration -m 'not stress and not cluster'

# One test at a time: what waits for a server in others would wait for the processor.
nightly-stress:
	$(step) 'pytest: a hundred calls at once, outages and kills, deep'
	@NETPLUG_HYPOTHESIS_PROFILE=nightly $(python) -m pytest tests/integration -m stress

nightly-node:
	$(step) 'pytest: the calls of a runtime, served by a node process'
	@NETPLUG_SERVED_BY=node-process $(parallel) tests/integration

cluster-test:           ## what needs a whole cluster of nodes, or its scale; one test at a time
	@tools/prepare dev --night
	@tools/servers $(of_cluster)
	$(step) 'pytest: whole clusters'
	@NETPLUG_HYPOTHESIS_PROFILE=nightly $(python) -m pytest tests/integration -m cluster

mutants:                ## known mutants of every package, each of which a unit test has to catch
	@tools/prepare dev
	$(step) 'mutants of tests/mutants.diff'
	@nice -n 15 $(python) -m tools.known_mutants

churn:                  ## 100,000 attachments come and go through one node process on etcd
	@tools/prepare dev
	@tools/servers
	$(step) 'pytest: 100,000 attachments'
	@NETPLUG_HYPOTHESIS_PROFILE=nightly NETPLUG_CHURN_ROUNDS=2000 $(python) -m pytest tests/integration/test_node_process_churn.py \
	    -m etcd

$(addprefix nightly-,$(other_etcds)): nightly-%:
	$(step) 'pytest: $*'
	@NETPLUG_ETCD=$* $(parallel) $(of_etcd) -m etcd

$(addprefix nightly-,$(other_apiservers)): nightly-%:
	$(step) 'pytest: $*'
	@NETPLUG_KUBE_APISERVER=$* $(parallel) $(of_apiserver) -m apiserver

nightly-dist:
	$(step) 'nox: dist'
	@.venv/bin/nox -s dist

lint:                   ## format, style, types twice, import contracts, the site with its links
	@tools/prepare dev
	@$(MAKE) --keep-going --jobs=2 --output-sync=target --no-print-directory $(linters)

.PHONY: $(linters)
$(linters):
	$(step) '$(lint.$@)'
	@.venv/bin/$(lint.$@)

bench:                  ## blocks beside plain JSON, a cluster of allocators, ADD and DEL beside the well-known plugins, with and without a node process
	@tools/prepare dev
	@tools/demo servers
	$(step) 'benchmarks'
	@$(python) -m benchmarks

manifests:              ## write netplug_cli/manifests again from the tables of kinds and rights
	@tools/prepare dev
	$(step) 'manifests'
	@$(python) -m tools.manifests

man:                    ## write the man page of netplugctl and docs/netplugctl-reference.md again from its commands
	@tools/prepare dev
	$(step) 'man page and reference'
	@$(python) -m tools.reference

site:                   ## the documentation as a site, in dist/site; a warning is an error
	@tools/prepare dev
	@rm -rf dist/site
	@$(MAKE) --no-print-directory sphinx

dist:                   ## build what is published, the source distribution and the wheel, in dist
	@tools/prepare dev
	$(step) 'source distribution and wheel'
	@.venv/bin/hatchling build -d dist

images:                 ## write the image of the nodes to dist/images, from Debian packages and .venv
	@tools/prepare dev
	$(step) 'image'
	@$(python) -m tools.images

constraints:            ## pin again what pyproject.toml asks for
	@tools/prepare dev
	@tools/pin

clean:                  ## remove what the targets made in this folder
	$(step) 'remove .venv, caches and builds'
	@rm -rf .venv .nox .hypothesis .mypy_cache .pytest_cache .ruff_cache .import_linter_cache .coverage dist
