# Thin names for commands; `make` lists them.

PREFIX ?= /usr/local
PORT ?= 6379
SERVER ?= redis-server
TARGET_DIR := $(or $(CARGO_TARGET_DIR),target)
MODULE := $(TARGET_DIR)/release/libferrobloom.so
CARGO_FLAGS := --locked
IMAGE ?= ferrobloom
ATTACK ?= 100000
EXAMPLE := cargo run $(CARGO_FLAGS) --quiet --example

# Where rustup puts cargo; a fresh shell may not have it on the PATH yet.
export PATH := $(PATH):$(HOME)/.cargo/bin

.DEFAULT_GOAL := help
.PHONY: help build run test lint test-matrix servers peer install audit bench bench-core fuzz hostile \
        sanitize fpr examples test-clients docker docker-run docker-test

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## /{printf "  %-13s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

# Only a build of the cdylib alone gets link-time optimisation, see Cargo.toml.
build: ## build the module: target/release/libferrobloom.so
	@.ci/deps build
	cargo rustc $(CARGO_FLAGS) --release --lib --crate-type cdylib

run: build ## start a server with the module (PORT=6379, SERVER=redis-server)
	@[ "$(SERVER)" != redis-server ] || .ci/deps server
	@echo
	@echo "The server listens on 127.0.0.1:$(PORT) until Ctrl-C, and saves nothing. To try in another terminal:"
	@echo "  redis-cli -p $(PORT) BF.ADD names alice"
	@echo "  redis-cli -p $(PORT) BF.EXISTS names alice"
	@echo "  redis-cli -p $(PORT) BF.INFO names"
	@echo
	$(SERVER) --bind 127.0.0.1 --port $(PORT) --save "" --loadmodule $(abspath $(MODULE))

test: build ## unit tests and tests against one server (FERROBLOOM_SERVER=...)
	@.ci/deps server
	cargo test $(CARGO_FLAGS)

lint: ## formatting, clippy and documentation, warnings are errors
	@.ci/deps build
	cargo fmt --check
	cargo clippy $(CARGO_FLAGS) --all-targets -- -D warnings
	RUSTDOCFLAGS="-D warnings" cargo doc $(CARGO_FLAGS) --no-deps

test-matrix: build servers ## tests against Redis 6.2, 7.0, 8.2 and Valkey 8.1, 9.1
	.ci/matrix

servers: ## fetch the servers of test-matrix into .servers/
	.ci/servers matrix

peer: ## fetch RedisBloom's module into .servers/, for the tests that compare
	.ci/servers peer

test-clients: build ## drive every wrapper of redis-py and node-redis, RESP2 and RESP3
	@.ci/deps server
	tests/clients/run

examples: build ## run the examples (ATTACK=100000 invented IDs for the guard)
	@.ci/deps server
	$(EXAMPLE) cache_penetration_guard -- $(ATTACK)
	$(EXAMPLE) dedup_events
	$(EXAMPLE) rebuild_and_swap
	$(EXAMPLE) offline_build

docker: ## build the image (IMAGE, RUNTIME=redis:7.4-bookworm or valkey/valkey:8.1-bookworm, BUILDER)
	docker build $(DOCKER_FLAGS) -f docker/Dockerfile -t $(IMAGE) \
		$(if $(BUILDER),--build-arg BUILDER=$(BUILDER)) \
		$(if $(RUNTIME),--build-arg RUNTIME=$(RUNTIME)) .

docker-run: docker ## run it on 127.0.0.1:PORT, data in the volume ferrobloom-data
	docker run --rm -it -p 127.0.0.1:$(PORT):6379 -v ferrobloom-data:/data $(IMAGE)

docker-test: docker ## test it: restarts, persistence, the integration tests from outside and inside
	@.ci/deps build
	docker/test $(IMAGE)

install: build ## copy the module to PREFIX/lib/redis/modules (PREFIX=/usr/local, DESTDIR)
	install -D -m 755 $(MODULE) $(DESTDIR)$(PREFIX)/lib/redis/modules/libferrobloom.so

audit: ## licences, sources and known vulnerabilities of the dependencies
	@cargo deny --version >/dev/null 2>&1 || cargo install --locked cargo-deny
	cargo deny check licenses bans sources
	cargo deny check advisories

bench: build peer ## race the module against RedisBloom in the same server (ROUNDS, ONLY, SCALE)
	@.ci/deps server
	FERROBLOOM_SERVER=$${FERROBLOOM_SERVER:-$$(command -v $(SERVER))} FERROBLOOM_MODULE=$(abspath $(MODULE)) \
	FERROBLOOM_PEER=$(CURDIR)/.servers/redisbloom.so OUT=$(if $(ONLY),,$(CURDIR)/docs) \
	cargo bench $(CARGO_FLAGS) --bench race

bench-core: ## time the data structures without a server
	cargo bench $(CARGO_FLAGS) --bench core

fuzz: ## fuzz every reader, parser and core, SECONDS=60 each
	@.ci/deps build
	fuzz/run $(or $(SECONDS),60)

hostile: build ## attack a server with CASES=20000 bad payloads, chunks and commands per family
	@.ci/deps server
	FERROBLOOM_HOSTILE_CASES=$(or $(CASES),20000) cargo test $(CARGO_FLAGS) --test hostile -- --nocapture

sanitize: build ## look for memory errors with AddressSanitizer and valgrind
	@.ci/deps server
	.ci/sanitize

fpr: ## measure false positive rates and bytes per item
	cargo run $(CARGO_FLAGS) --release --example fpr
