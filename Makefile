SHELL := /bin/bash
PY := .venv/bin/python
.DEFAULT_GOAL := help
# Three processes for two cores, because many tests wait for something; files in their order mix those that do and do not.
SPREAD := -n $(shell echo $$(( ($$(nproc) * 3 + 1) / 2 ))) --dist loadfile --no-loadscope-reorder
ifneq ($(wildcard ../shared/data),)
export GAVEL_DATA ?= $(abspath ../shared/data)
endif

.PHONY: help env frameworks-env faults soak chaos histories mutation demo demo-ray demo-slurm demo-kubernetes demo-emergent demo-elastic demo-mixed \
  test test-slurm test-kubernetes test-chart test-full check serve lock format client-types clean
help:            ## this list
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 14
env:             ## .venv with everything, developer tools included
	@scripts/env.sh requirements-dev.lock
frameworks-env: env  ## .venv-frameworks: PyTorch, Hugging Face, Lightning, Keras, JAX, for tests/journeys
	@PYTHON=$(PY) scripts/env.sh requirements-frameworks.lock
test: env        ## the tests (small profiles, under 10 minutes)
	@$(PY) -m pytest -q $(SPREAD)
test-full: env   ## the tests with the full counts, all or some [TESTS="file ..."]
	@GAVEL_TEST_PROFILE=full $(PY) -m pytest -q $(SPREAD) --timeout=1800 $(TESTS)
demo:            ## the main job on this machine: real training jobs on several accelerator types
	@scripts/env.sh requirements.lock
	@.venv/bin/gavel demo
demo-ray: env    ## the same on a Ray cluster of three nodes, which it starts on this machine and stops
	@.venv/bin/gavel demo --backend ray
demo-slurm: env  ## the same on a Slurm cluster of three nodes, likewise (Debian: slurm-wlm and munge)
	@.venv/bin/gavel demo --backend slurm
demo-kubernetes: env  ## the same on a Kubernetes cluster of three nodes, likewise (KUBERNETES_BIN: docs/kubernetes.md)
	@.venv/bin/gavel demo --backend kubernetes
test-kubernetes: env  ## the tests on a real control plane of Kubernetes (KUBERNETES_BIN: docs/kubernetes.md)
	@$(PY) -m pytest -q -n 1 -m kubernetes -rs tests/backends/kubernetes
test-chart: env  ## the tests of the Helm chart, with Helm as a library
	@.venv/bin/pip install -q --require-hashes -r requirements-chart.lock
	@$(PY) -m pytest -q -n 1 -rs tests/backends/kubernetes/test_chart*.py
test-slurm: env  ## the tests on a real Slurm cluster of this machine (Debian: slurm-wlm and munge)
	@$(PY) -m pytest -q -n 1 -m slurm -rs tests/backends/slurm
demo-emergent:   ## tasks on real processes that change their nature twice: what the autopilot makes of them
	@scripts/env.sh requirements.lock
	@.venv/bin/gavel demo --autopilot
demo-elastic:    ## jobs that grow and shrink beside the same jobs at one size, on this machine
	@scripts/env.sh requirements.lock
	@.venv/bin/gavel demo --elastic
demo-mixed:      ## trainings, a session and a service share this machine, and the service follows its requests
	@scripts/env.sh requirements.lock
	@.venv/bin/gavel demo --mixed
serve:           ## the service, the scheduler and the dashboard, until Ctrl-C
	@scripts/env.sh requirements.lock
	@.venv/bin/gavel serve
faults: env      ## simulate faults with the seeds [SEEDS=0:500]; docs/reliability.md
	@$(PY) -m gavel.faults run --seeds $(or $(SEEDS),0:500)
soak: env        ## short jobs without end, nothing grows [ROUNDS=600] [ROUND_S=2]
	@GAVEL_TEST_PROFILE=full GAVEL_SOAK_ROUNDS=$(or $(ROUNDS),600) GAVEL_SOAK_ROUND_S=$(or $(ROUND_S),2) $(PY) -m pytest -q --timeout=0 tests/soak
chaos: env       ## kill and suspend processes of a real service, fail its disk [KILLS=200] [RAY_FAULTS=30] [SEED=1]
	@GAVEL_TEST_PROFILE=full GAVEL_CHAOS_KILLS=$(or $(KILLS),200) GAVEL_CHAOS_RAY_FAULTS=$(or $(RAY_FAULTS),30) \
	  GAVEL_CHAOS_SEED=$(or $(SEED),1) \
	  $(PY) -m pytest -q --timeout=0 tests/chaos
histories: env   ## histories of clients under kills, checked for linearizability [COUNT=500] [SEED=1]
	@GAVEL_TEST_PROFILE=full GAVEL_HISTORIES=$(or $(COUNT),500) GAVEL_HISTORIES_SEED=$(or $(SEED),1) \
	  $(PY) -m pytest -q --timeout=0 tests/linearizability
mutation: env    ## change files in small ways, does a test notice: FILES="gavel/.." TESTS="tests/.."; docs/mutants.md
	@.venv/bin/pip install -q --require-hashes -r requirements-mutation.lock
	@$(PY) -m scripts.mutation $(FILES) -- $(TESTS)
bench-%: env     ## a benchmark, for example bench-startup [QUICK=1] [JSON=file] [STREAM=name] [RUN=name] [TABLE=name]
	@$(PY) -m benchmarks.$(subst -,_,$*) $(if $(QUICK),--quick) $(if $(JSON),--json $(JSON)) \
	  $(if $(STREAM),--stream "$(STREAM)") $(if $(RUN),--run "$(RUN)") \
	  $(if $(TABLE),--table "$(TABLE)")
check: env       ## lint, types, floors
	@.venv/bin/ruff check . && .venv/bin/ruff format --check . && .venv/bin/mypy && .venv/bin/lint-imports --no-cache
format: env      ## rewrite to the house style
	@.venv/bin/ruff check --fix . ; .venv/bin/ruff format .
client-types:    ## the client's types, made from the API's description
	@$(PY) -m scripts.client_types
lock:            ## pin the dependencies anew (needs uv)
	uv pip compile -q --universal --generate-hashes --python-version 3.11 --extra install --extra dev pyproject.toml \
	  -o requirements-dev.lock --custom-compile-command "make lock"
	uv pip compile -q --universal --generate-hashes --python-version 3.11 --extra install pyproject.toml \
	  -c requirements-dev.lock -o requirements.lock --custom-compile-command "make lock"
	uv pip compile -q --universal --generate-hashes --python-version 3.11 --extra install --extra kubernetes --extra postgres pyproject.toml \
	  -c requirements-dev.lock -o requirements-image.lock --custom-compile-command "make lock"
	uv pip compile -q --universal --generate-hashes --python-version 3.11 --group mutation -c requirements-dev.lock \
	  -o requirements-mutation.lock --custom-compile-command "make lock"
	uv pip compile -q --universal --generate-hashes --python-version 3.11 --group chart -c requirements-dev.lock \
	  -o requirements-chart.lock --custom-compile-command "make lock"
	uv pip compile -q --python-version 3.11 --no-annotate --group frameworks -c requirements-dev.lock \
	  -o requirements-frameworks.lock --custom-compile-command "make lock"
	sed -i -E '/^(cuda|nvidia|triton)/d' requirements-frameworks.lock  # the build of torch that is installed brings its own
