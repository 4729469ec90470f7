# Every target sets up what it needs by itself; a second run does not install again.
# `make` alone lists them. ARGS go to what is run: make test ARGS="-k parse -x", make demo ARGS="--duration 1m".

# a Python that is named has an environment of its own: make test PYTHON=python3.13
PYTHON_ENV := .venv$(if $(PYTHON),-$(shell $(PYTHON) -c 'import sys; print("%d.%d" % sys.version_info[:2])'))
export PYTHON_ENV
BIN        := $(PYTHON_ENV)/bin
RUNNABLE   := $(PYTHON_ENV)/.stamp-run
RELEASES   := .venv-release/.stamp
LOCKS      := $(wildcard locks/*.txt)
DEVELOPS   := $(PYTHON_ENV)/.stamp-dev
TOOLS      := scripts/setup.sh tools
ARGS       ?=
# of the suite, by test-steady
RUNS       ?= 10
# at each door, by fuzz
SECONDS    ?= 60
# what same compares with; NEW=allowed takes outputs that it does not have
BASE       ?=
NEW        ?=
# what is chosen, and how many, by mutate
SEED       ?= 1
COUNT      ?= 30
WORKERS    := $(shell getconf _NPROCESSORS_ONLN 2>/dev/null || echo 2)

# compiled modules are kept, beside the environment: tests start the exporter hundreds of times
export PYTHONPYCACHEPREFIX     := $(CURDIR)/$(PYTHON_ENV)/pycache
export PYTHONDONTWRITEBYTECODE :=

.DEFAULT_GOAL := help
.PHONY: help demo drill test test-steady test-process test-e2e test-prometheus3 test-soak test-grafana test-kubernetes test-packages test-deb test-hardware set-up check same docs generate sample kustomize golden bench format fuzz mutate lock audit dist deb sbom clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / { printf "  make %-14s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

demo: $(RUNNABLE) ## a simulated fleet beside the exporter, Prometheus and Grafana; needs no GPU and no model
	@$(TOOLS) prometheus alertmanager || echo "the demo goes on without what could not be installed"
	@exec $(BIN)/llm-serving-exporter demo $(ARGS)

drill: $(RUNNABLE) ## a node-loss drill of a simulated fleet with the rules; needs no GPU and no model
	@$(TOOLS) prometheus alertmanager
	@exec $(BIN)/python -m llm_serving_alerts.drill_demo $(ARGS)

test: $(DEVELOPS) ## the quick tests: four minutes on two cores
	@$(TOOLS) promtool prometheus amtool alertmanager victoria-metrics vmalert cc chromium
	$(BIN)/python -m pytest --numprocesses $(WORKERS) --maxprocesses 8 --dist loadfile --no-loadscope-reorder $(ARGS)

test-steady: $(DEVELOPS) ## the quick tests RUNS times (10) on two cores beside four busy loops; stops at the first failure
	@$(TOOLS) promtool prometheus amtool alertmanager victoria-metrics cc chromium
	@scripts/test_steady.sh $(RUNS) $(ARGS)

# most of these wait for a program most of the time
test-process: $(DEVELOPS) ## what starts programs, beyond the some forty of such tests that are quick: two minutes
	@$(TOOLS) promtool prometheus amtool alertmanager victoria-metrics vmalert cc chromium
	$(BIN)/python -m pytest -m "process and not seam and not e2e and not soak" --numprocesses 3 --dist loadscope $(ARGS)

test-e2e: $(DEVELOPS) ## whole stacks and hours of simulated fleets: rules, N-1, dashboards, Prometheus, VictoriaMetrics: eight minutes
	@$(TOOLS) promtool prometheus amtool alertmanager victoria-metrics vmalert cc
	$(BIN)/python -m pytest -m e2e --numprocesses 4 --dist loadscope $(ARGS)

test-prometheus3: $(DEVELOPS) ## the rules before Prometheus 3 and its promtool, which it builds where Go is; minutes the first time
	@$(TOOLS) promtool prometheus amtool alertmanager victoria-metrics vmalert cc promtool3 prometheus3
	$(BIN)/python -m pytest -m "" tests/unit/alerts/test_dialects.py tests/unit/otlp/test_prometheus.py $(ARGS)
	PROMTOOL=$$(command -v promtool3 || echo $(CURDIR)/.venv/go/bin/promtool3) $(BIN)/python -m pytest -m "" tests/pack/test_alert_cases.py --numprocesses $(WORKERS) $(ARGS)

# what runs at a pace of its own comes last and with less beside it: rules that come too late say something else
test-soak: $(DEVELOPS) ## the rules over two simulated weeks, every scenario over the whole stack by the clock, a day of the exporter: over half an hour
	@$(TOOLS) promtool prometheus alertmanager victoria-metrics vmalert
	$(BIN)/python -m pytest -m "soak and not paced" --numprocesses 4 --dist loadscope $(ARGS) || test $$? -eq 5 -a -n "$(ARGS)"
	$(BIN)/python -m pytest -m "soak and paced" --numprocesses 2 --dist load $(ARGS) || test $$? -eq 5 -a -n "$(ARGS)"

test-grafana: $(DEVELOPS) ## every dashboard in the Grafana that GRAFANA_URL names; CONTRIBUTING.md says how to bring one up
	@$(TOOLS) chromium
	@$(BIN)/python -c "import playwright" 2>/dev/null || scripts/setup.sh venv grafana
	$(BIN)/python -m pytest -m grafana $(ARGS)

test-kubernetes: $(DEVELOPS) ## against the Kubernetes API server that KUBE_APISERVER names; CONTRIBUTING.md says what that takes
	$(BIN)/python -m pytest -m kubernetes $(ARGS)

test-packages: $(DEVELOPS) ## the Helm chart and the kustomizations, with helm and kubeconform; builds them where Go is there
	@$(TOOLS) promtool helm kubeconform actionlint
	$(BIN)/python -m pytest -m packages --numprocesses $(WORKERS) $(ARGS)

test-deb: $(DEVELOPS) ## the Debian package, with nfpm, which it builds where Go is there; makes it twice and installs it over an overlay: minutes
	@$(TOOLS) nfpm
	$(BIN)/python -m pytest tests/unit/deploy/test_deb.py -m deb $(ARGS)

test-hardware: $(DEVELOPS) ## against a real NVIDIA GPU
	$(BIN)/python -m pytest -m hardware $(ARGS)

set-up: $(DEVELOPS) ## what check, docs and the tests of .ci/run need: where it is there they install nothing, and may run at once
	@$(BIN)/python -c "import sphinx" 2>/dev/null || scripts/setup.sh venv docs
	@$(TOOLS) promtool prometheus amtool alertmanager victoria-metrics vmalert cc chromium helm kubeconform actionlint

check: $(DEVELOPS) ## style, types, import rules, generated files, golden pages
	@$(TOOLS) promtool amtool
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python -m tests.same check
	promtool check rules alerts/rendered/*.yml
	scripts/check_goldens.sh
	amtool check-config alerts/alertmanager/alertmanager.yml

same: $(DEVELOPS) ## whether all that a user sees is the same as of BASE=<commit>, byte for byte (default: where this branch left main); a minute
	@$(BIN)/python -m tests.same compare --base "$(BASE)" --new "$(NEW)"

docs: $(DEVELOPS) ## build/docs: docs/ as a site, with a search that works from the disk; a link that leads nowhere ends it
	@$(BIN)/python -c "import sphinx" 2>/dev/null || scripts/setup.sh venv docs
	$(BIN)/python -m sphinx --fail-on-warning --quiet --jobs auto -b html -c docs -d build/doctrees . build/docs $(ARGS)
	@echo "open $(CURDIR)/build/docs/index.html"

generate: $(DEVELOPS) ## write what is made from catalogue, tables, configuration keys and rules (engines/tables.json, METRICS.md, docs/{configuration,runtimes,records,alerts}.md, alerts/rendered, dashboards/rendered, files, schema and README of the chart, tables and picture of docs/accuracy.md, docs/sample)
	$(BIN)/python -m llm_serving_exporter.docgen.tables --write
	$(BIN)/python -m tests.same generate

sample: $(DEVELOPS) ## the sample page of the cost review, docs/sample, and its picture, docs/img/review.png
	@$(TOOLS) chromium
	$(BIN)/python -m scripts.sample_review --write
	$(BIN)/python -m scripts.sample_review --picture

kustomize: $(DEVELOPS) ## write what deploy/kustomize takes from the Helm chart; needs helm
	@$(TOOLS) helm
	PATH="$$PATH:$(CURDIR)/.venv/go/bin" $(BIN)/python scripts/render_kustomize.py --write

golden: $(DEVELOPS) ## rewrite the golden pages; read the diff
	$(BIN)/python -m pytest tests/unit/test_golden.py --golden-update $(ARGS)

bench: $(DEVELOPS) ## benchmarks against peers
	@$(TOOLS) nginx prometheus victoria-metrics vmalert
	$(BIN)/python -m bench.run $(ARGS)
	$(BIN)/python -m bench.large
	$(BIN)/python -m bench.fleet
	$(BIN)/python -m bench.render
	$(BIN)/python -m bench.start
	$(BIN)/python -m bench.rules
	$(BIN)/python -m bench.dashboards

format: $(DEVELOPS) ## put the code in shape
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

fuzz: $(DEVELOPS) ## a fuzzer guided by coverage, for SECONDS (60) at each door: pages, configurations, requests; then every property for as long
	@$(BIN)/python -c "import atheris" 2>/dev/null || scripts/setup.sh venv fuzz
	@for door in pages configurations requests; do $(BIN)/python -m tests.fuzz.guided $$door --seconds $(SECONDS) || exit 1; done
	@end=$$(($$(date +%s) + $(SECONDS))); while [ "$$(date +%s)" -lt "$$end" ]; do PROPERTIES=fuzz $(BIN)/python -m pytest -q -m hypothesis --numprocesses $(WORKERS) $(ARGS) || exit 1; done

# tells as its exit status whether any survived
mutate: $(DEVELOPS) ## COUNT (30) changed operators of the product, chosen by SEED (1): which ones do the quick tests not notice? ten to thirty minutes
	@$(TOOLS) promtool prometheus amtool alertmanager victoria-metrics vmalert cc chromium
	$(BIN)/python scripts/mutate.py --seed $(SEED) --count $(COUNT) $(ARGS)

lock: $(RELEASES) ## write locks/*.txt after a change of pyproject.toml; ARGS=--upgrade takes the newest versions; needs the network
	.venv-release/bin/python scripts/lock.py $(ARGS)

audit: $(RELEASES) ## known faults of every locked package; needs the network, so it is no part of check
	@for lock in locks/*.txt; do echo "$$lock"; .venv-release/bin/pip-audit --strict --disable-pip --require-hashes --progress-spinner off -r $$lock || exit 1; done

sbom: $(RELEASES) ## dist/llm-serving-exporter.cdx.json: what is in the container, as CycloneDX
	@mkdir -p dist
	.venv-release/bin/cyclonedx-py requirements locks/image.txt --pyproject pyproject.toml --output-reproducible --of JSON -o dist/llm-serving-exporter.cdx.json

dist: $(RELEASES) ## dist/: wheel and source distribution, the same bytes wherever they are made, as an index would take them
	rm -rf dist/*.whl dist/*.tar.gz
	.venv-release/bin/python -m hatchling build -d dist
	.venv-release/bin/twine check --strict dist/*.whl dist/*.tar.gz

deb: $(RUNNABLE) ## dist/*.deb: the exporter with its packages as locked, unit and man page; ARGS="--python 3.13 --arch arm64" for another system
	@$(TOOLS) nfpm
	$(BIN)/python scripts/make_deb.py $(ARGS)

clean: ## remove the environments, caches and builds
	rm -rf .venv .venv-[0-9]* .venv-release build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

$(RUNNABLE): pyproject.toml $(LOCKS)
	@scripts/setup.sh venv
	@touch $@

# What develops also runs: a demo after a test installs nothing.
$(DEVELOPS): pyproject.toml $(LOCKS)
	@scripts/setup.sh venv dev
	@touch $(RUNNABLE) $@

$(RELEASES): locks/release.txt locks/build.txt
	@scripts/setup.sh release
	@touch $@
