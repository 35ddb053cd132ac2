# Small targets; `make help` lists them. Tools are built at pinned versions into .tmp/bin.
SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DELETE_ON_ERROR:
MAKEFLAGS += --no-builtin-rules
.DEFAULT_GOAL := help

BIN := $(abspath .tmp/bin)
BUF := $(BIN)/buf
PLUGINS := $(BIN)/protoc-gen-go $(BIN)/protoc-gen-go-grpc $(BIN)/protoc-gen-grpc-gateway

.PHONY: help
help: ## Describe the targets
	@awk 'BEGIN {FS = ":.*## "} /^[a-z0-9]+:.*## / {printf "%-15s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

.PHONY: generate
generate: $(BUF) $(PLUGINS) ## Regenerate gen/ from proto/
	$(BUF) lint
	$(BUF) generate

# A tool is rebuilt when its module's pins change. $(1) module directory, $(2) package.
define tool
$(BIN)/$(notdir $(2)): tools/$(1)/go.mod tools/$(1)/go.sum
	@echo "building $$(@F)"
	@mkdir -p $$(@D)
	@go build -C tools/$(1) -trimpath -o $$@ $(2)
endef
$(eval $(call tool,buf,github.com/bufbuild/buf/cmd/buf))
$(eval $(call tool,protoc,google.golang.org/protobuf/cmd/protoc-gen-go))
$(eval $(call tool,protoc,google.golang.org/grpc/cmd/protoc-gen-go-grpc))
$(eval $(call tool,protoc,github.com/grpc-ecosystem/grpc-gateway/v2/protoc-gen-grpc-gateway))
