# Small targets; `make help` lists them. Tools are built at pinned versions into .tmp/bin.
SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DELETE_ON_ERROR:
MAKEFLAGS += --no-builtin-rules --no-print-directory
.DEFAULT_GOAL := help

BIN := $(abspath .tmp/bin)
BUF := $(BIN)/buf
LINT := $(BIN)/golangci-lint
PLUGINS := $(BIN)/protoc-gen-go $(BIN)/protoc-gen-go-grpc $(BIN)/protoc-gen-grpc-gateway

# Modules of our own that this module requires (docs/design/0035-modules.md); gen/portcullis is one too, and is generated.
PARTS := internal/wire hostsdk hostsdk/kube
# Modules that are linted; tools/ holds none of our code.
MODULES := $(patsubst %/go.mod,%,$(wildcard ./go.mod $(PARTS:%=%/go.mod) test/e2e/go.mod test/bench/go.mod deploy/render/go.mod deploy/monitoring/go.mod))
# Directories of this module's code.
CODE := $(filter-out ./docs/ ./gen/ ./proto/ ./sdk/ ./test/ ./tools/,$(wildcard ./*/))
# Flags for go test, for example TESTFLAGS='-run TestDeny -v'.
TESTFLAGS ?=
# Flags for bench: see `go run -C test/bench . -help`.
BENCHFLAGS ?=
# How long each fuzz test runs.
FUZZTIME ?= 20s

.PHONY: help
help: ## Describe the targets
	@awk 'BEGIN {FS = ":.*## "} /^[a-z0-9]+:.*## / {printf "%-15s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

.PHONY: build
build: ## Build .tmp/bin/portcullis
	@new=$$(go list -deps -f '{{if .Stale}}x{{end}}' ./cmd/portcullis | grep -c x || true); ((new < 300)) || echo \
		"compiling $$new packages, most of them of Kubernetes, client-go and etcd: minutes for the first build, seconds for later ones"
	go build -ldflags='-s -w' -o $(BIN)/portcullis ./cmd/portcullis # as a release does

.PHONY: run
run: build ## Run everything in one process, with a sample configuration and a sample host
	$(BIN)/portcullis dev

# The three circles of tests (CONTRIBUTING.md): internal/circles has the table of their steps. `go run ./internal/circles gate lint` runs one step.
.PHONY: test gate soak
test: ## Show that this checkout works: unit tests, the mesh in memory, a real kube-apiserver
	@go run ./internal/circles test
gate: ## The rest of .ci/run: the race detector, more of the real kube-apiserver, chart, changed SDKs, lint, generated code
	@go run ./internal/circles gate
soak: ## Every test with its largest counts, and everything that is built and generated: a night; the report is .tmp/soak/report.md
	@go run ./internal/circles soak

.PHONY: unit
unit: ## Tests of this module under the race detector, and of the modules that hosts link
	go test -race -timeout 20m $(TESTFLAGS) ./...
	for module in $(PARTS); do go test -C $$module -race -timeout 20m $(TESTFLAGS) ./...; done # each with the versions that it requires at least

# How the test host of each SDK starts, from the root; its check makes it. Memory is limited where the runtime keeps what is free.
TESTHOST_python := .tmp/sdk-python/requirements/bin/python sdk/python/testhost.py
TESTHOST_typescript := .tmp/sdk-typescript/bin/node sdk/typescript/build/testhost/testhost.js
TESTHOST_java := sdk/java/testhost/testhost
BUILT_java := sdk/java/testhost/target/classes
TESTHOST_rust := .tmp/bin/testhost-rust
LANGUAGES := python typescript java rust
# Languages that bench measures.
BENCHED := $(notdir $(patsubst %/build,%,$(wildcard test/bench/languages/*/build)))
# $(1) language: whether its test host can start.
built = [[ -e $(or $(BUILT_$(1)),$(lastword $(TESTHOST_$(1)))) ]] && command -v $(firstword $(TESTHOST_$(1))) >/dev/null

.PHONY: sdks
sdks: ## Check, conformance suite and page of the SDKs whose inputs changed since their green run (ALL=1: all); skip missing toolchains
	@run=page-go; for language in $(LANGUAGES); do \
		[[ -z "$(ALL)" ]] && sdk/record green $$language || run+=" sdk-$$language"; \
	done; \
	$(MAKE) --jobs=2 --keep-going --output-sync=recurse $$run # two: much of the time is spent waiting

# sdk/LANGUAGE/green.txt records a green run; without the toolchain of the language it skips.
.PHONY: $(LANGUAGES:%=sdk-%)
$(LANGUAGES:%=sdk-%): sdk-%:
	@sdk/record run $*

.PHONY: $(LANGUAGES:%=conformance-%)
$(LANGUAGES:%=conformance-%): conformance-%:
	@if $(call built,$*); then \
		go test ./sdk/conformance -count=1 -timeout 30m -run TestConformance -args -name $* -testhost '$(TESTHOST_$*)'; \
	else echo "conformance: $* skipped, its test host is not built"; [[ -z "$${CI:-}" ]]; fi

.PHONY: conformance-go
conformance-go:
	@go test ./sdk/conformance -count=1 -timeout 30m -run TestConformance

.PHONY: testhosts
testhosts: ## Print the language and the command of each test host that is built, for tests
	@$(foreach l,$(LANGUAGES),if $(call built,$l); then echo "$l $(TESTHOST_$l)"; fi;)

# How the example of each language starts, from the root; the check of its SDK makes it with the test host.
EXAMPLE_python := .tmp/sdk-python/requirements/bin/python examples/imagepolicy-python/imagepolicy.py
EXAMPLE_typescript := .tmp/sdk-typescript/bin/node examples/imagepolicy-typescript/dist/src/main.js
EXAMPLE_java := java -jar examples/imagepolicy-java/target/imagepolicy-0.1.0.jar
EXAMPLE_rust := .tmp/bin/imagepolicy-rust

.PHONY: examplehosts
examplehosts: ## Print the language and the command of each example of a host that is built, for tests
	@$(foreach l,$(LANGUAGES),if $(call built,$l); then echo "$l $(EXAMPLE_$l)"; fi;)

# -v: it says how long each block of commands takes, or why it skips.
.PHONY: page-go $(LANGUAGES:%=page-%)
page-go $(LANGUAGES:%=page-%): page-%:
	@go test ./examples -count=1 -v -timeout 40m -run TestThePage -args -language $*
	@[ $* != python ] || go test ./cmd/portcullis/internal/localhosts -count=1 -run TestTheExampleInPython # with the SDK that is here then

# It needs root. The tools are those of this machine, and not those of the base images.
.PHONY: images
images: image-go $(LANGUAGES:%=image-%) ## Build the container file of each example

.PHONY: image-go $(LANGUAGES:%=image-%)
image-go $(LANGUAGES:%=image-%): image-%:
	@go test ./examples -count=1 -v -timeout 40m -run TestTheContainerFile -args -image -language $*

.PHONY: conformancetable
conformancetable: export PORTCULLIS_TABLE := $(abspath docs/conformance.md)
conformancetable: ## Write docs/conformance.md by a run of the suite for each SDK that is built
	@$(MAKE) --keep-going --jobs=1 conformance-go $(LANGUAGES:%=conformance-%) # one after the other: each writes its column

.PHONY: browser
browser: ## Get chromium and axe-core for the tests of the console, as far as this machine lets us
	@.ci/browser

.PHONY: screenshots
screenshots: browser ## Make docs/images/console-* again, by the tests of the console
	PORTCULLIS_SCREENSHOTS=$(abspath docs/images) go test -C test/e2e -count=1 -run 'TestConsole$$|TestConsoleIsAccessible$$' ./console

.PHONY: e2e
e2e: browser ## Tests against a real kube-apiserver and etcd, both built once and cached
	go vet -C test/e2e ./... # compiles on all cores; -p 1 below would not, but prints progress as it happens
	go test -C test/e2e -p 1 -count=1 -v -timeout 45m $(TESTFLAGS) ./... # -count=1: a result is of the programs as they are now

.PHONY: charttest
charttest: ## Tests of the Helm chart and of deploy/manifests
	go vet -C deploy/render ./...
	go test -C deploy/render -count=1 $(TESTFLAGS) ./... # -count=1: the chart lies outside of the module, and go test caches

.PHONY: monitoringtest
monitoringtest: ## Tests of dashboards, alert rules and docs against the metrics of a mesh that runs
	go vet -C deploy/monitoring ./...
	go test -C deploy/monitoring -count=1 $(TESTFLAGS) ./... # -count=1: the mesh and the files lie outside of the module

.PHONY: dashboards
dashboards: ## Write the Grafana dashboards of the chart from deploy/monitoring
	go run -C deploy/monitoring .

.PHONY: manifests
manifests: ## Render deploy/manifests from the Helm chart
	go run -C deploy/render . template portcullis ../chart/portcullis --namespace portcullis-system \
		--values ../manifests-values.yaml --output-dir ../manifests
	go run -C deploy/render . template portcullis ../chart/portcullis --namespace portcullis-system \
		--values ../manifests-values.yaml --set certificates.self.enabled=true \
		--show-only templates/certificates-self.yaml > deploy/certificates-self.yaml

.PHONY: schemas
schemas: ## Make deploy/chart/portcullis/crds and deploy/schemas/ from internal/config/kinds, and the chart's copies of policies/
	go run ./internal/schemas/generate
	rm -rf deploy/chart/portcullis/files/policies && mkdir deploy/chart/portcullis/files/policies
	for p in policies/*/policy.yaml; do cp $$p deploy/chart/portcullis/files/policies/$$(basename $$(dirname $$p)).yaml; done

.PHONY: benchtest
benchtest: benchprograms ## Tests of the benchmarks, which run each of them for a few reviews, with the languages that are built
	PORTCULLIS_SOAK=1 go test -C test/bench -timeout 20m $(TESTFLAGS) ./...

.PHONY: lint
lint: $(BUF) $(LINT) ## Lint code and contract
	$(BUF) lint
	$(BUF) format --diff --exit-code
	$(LINT) config verify --schema $$(go list -C tools/lint -m -f '{{.Dir}}' github.com/golangci/golangci-lint/v2)/jsonschema/golangci.next.jsonschema.json
	@.ci/lint $(LINT) $(MODULES)

.PHONY: lintfix
lintfix: $(BUF) $(LINT) ## Mend what lint can mend by itself
	$(BUF) format --write
	@.ci/lint $(LINT) $(MODULES) -- --fix

.PHONY: generate
generate: $(BUF) $(PLUGINS) ## Regenerate gen/ from proto/
	$(BUF) lint
	find gen -name '*.pb.go' -delete -or -name '*.pb.gw.go' -delete
	$(BUF) generate

.PHONY: checkgenerate
checkgenerate: generate ## Fail when gen/ is not what proto/ says
	@if [[ -n "$$(git status --porcelain -- gen)" ]]; then \
		git status --short -- gen; git --no-pager diff --stat -- gen; \
		echo "gen/ differs from the commit: run 'make generate' and commit gen/ with proto/"; exit 1; \
	fi

.PHONY: breaking
breaking: $(BUF) ## Fail when the contract breaks its users
	@.ci/breaking $(BUF)

# The host of a language is its example, as sdk/LANGUAGE/check leaves it, except for those that are compiled with optimization only here.
.PHONY: benchprograms $(BENCHED:%=benchprogram-%)
benchprograms: $(BENCHED:%=benchprogram-%) ## Build what bench measures the languages with; skip those whose toolchain is missing
$(BENCHED:%=benchprogram-%): benchprogram-%:
	@test/bench/languages/$*/build

.PHONY: bench
bench: benchprograms ## Measure against kube-apiserver's own webhooks and against the wire, and write docs/benchmarks.*
	go run -C test/bench . -out ../../docs -commit "$$(git describe --always --dirty --abbrev=12)" $(BENCHFLAGS)

.PHONY: microbench
microbench: ## Run the benchmarks of the packages, with allocations
	@grep -rl --include='*_test.go' '^func Benchmark' $(CODE) | xargs -n 1 dirname | sort -u | while read -r package; do \
		go test -C $$package -run '^$$' -bench . -benchmem .; \
	done

.PHONY: fuzz
fuzz: ## Run each fuzz test for FUZZTIME
	@grep -rHo --include='*_test.go' '^func Fuzz[A-Za-z0-9_]*' $(CODE) | sed 's/:func / /' | while read -r file name; do \
		echo "$$name in $$(dirname $$file)"; \
		go test -C $$(dirname $$file) -run '^$$' -fuzz "^$$name\$$" -fuzztime $(FUZZTIME) .; \
	done

.PHONY: tags
tags: ## Commit and tag release VERSION of all modules in this clone, and push nothing
	@tools/release/tags $(VERSION)

.PHONY: release
release: $(BIN)/goreleaser ## Archives, checksums and krew plugin of a release into .tmp/release, without images, SBOMs and publishing
	$(BIN)/goreleaser check
	$(BIN)/goreleaser release --clean --snapshot --skip=docker,sbom,publish

.PHONY: clean
clean: ## Remove the built tools and programs
	rm -rf .tmp

# A tool is rebuilt when its module's pins change. $(1) module directory, $(2) package.
define tool
$(BIN)/$(notdir $(2)): tools/$(1)/go.mod tools/$(1)/go.sum
	@echo "building $$(@F)"
	@mkdir -p $$(@D)
	@go build -C tools/$(1) -trimpath -o $$@ $(2)
endef
$(eval $(call tool,buf,github.com/bufbuild/buf/cmd/buf))
$(eval $(call tool,lint,github.com/golangci/golangci-lint/v2/cmd/golangci-lint))
$(eval $(call tool,protoc,google.golang.org/protobuf/cmd/protoc-gen-go))
$(eval $(call tool,protoc,google.golang.org/grpc/cmd/protoc-gen-go-grpc))
$(eval $(call tool,protoc,github.com/grpc-ecosystem/grpc-gateway/v2/protoc-gen-grpc-gateway))

$(BIN)/goreleaser: tools/release/go.mod tools/release/go.sum
	@echo "building $(@F)"
	@go build -C tools/release -trimpath -o $@ github.com/goreleaser/goreleaser/v2
