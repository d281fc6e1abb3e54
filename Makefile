# Short verbs; `make help` lists them.

# Profile of the program that the tests end to end run.
PROFILE ?= quick
# Seconds for each fuzz target.
FUZZ_SECONDS ?= 60
FUZZ_TOOLCHAIN ?= nightly
# What `make run` runs.
ARGS ?= run -c examples/evener.toml

TARGET := $(abspath $(or $(CARGO_TARGET_DIR),target))
TOOLS := .cache/tools
CARGO_DENY := 0.20.2
CARGO_FUZZ := 0.13.2
# Their results may depend on nothing but the arguments: not on the order of a hash table either.
PURE := --package evener-model --package evener-scheduler --package evener-protocol --package evener-feedback \
	--package evener-record

.PHONY: help demo run build test lint architecture deny bench bench-feedback fuzz

help: ## list the verbs
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-15s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

demo: ## see on this machine what the choice of a scheduler and the reports of nodes do (about a minute)
	@cargo run --locked --release --package evener -- demo

run: ## run evener with ARGS="..."
	@cargo run --locked --release --quiet --package evener -- $(ARGS)

build: ## the program as it is released: target/release/evener
	cargo build --locked --release --package evener

test: ## all tests: unit, property, fuzz corpora, documentation, end to end; installs what it needs
	tests/setup
	cargo build --locked --profile $(PROFILE) --package evener
	EVENER_BIN=$(TARGET)/$(PROFILE)/evener cargo test --locked --workspace --no-fail-fast

lint: architecture deny ## format, clippy, the arrows between the crates, licences of dependencies
	cargo fmt --all --check
	cargo clippy --locked --workspace --all-targets -- --deny warnings
	cargo clippy --locked $(PURE) -- --deny warnings --deny clippy::iter_over_hash_type
	RUSTDOCFLAGS="--deny warnings" cargo doc --locked --workspace --no-deps --quiet

architecture: ## which crate may depend on which
	tools/architecture-check

deny: $(TOOLS)/bin/cargo-deny ## licences and sources of dependencies
	$(TOOLS)/bin/cargo-deny --log-level error check bans licenses sources

bench: ## Evener beside HAProxy, nginx and Envoy (about 25 minutes; fetches them)
	bench/peers/run

bench-feedback: ## what feedback is worth, live: nginx nodes with quotas of CPU time (about 15 minutes; needs root)
	bench/feedback/run

# What is new goes to .cache: the committed corpus grows only by what is chosen for it.
fuzz: $(TOOLS)/bin/cargo-fuzz ## each fuzz target for FUZZ_SECONDS (60)
	@set -e; PATH="$(abspath $(TOOLS))/bin:$$PATH"; for target in $$(cargo fuzz list); do \
		echo "fuzz $$target for $(FUZZ_SECONDS) s"; \
		mkdir -p ".cache/fuzz/$$target"; \
		cargo +$(FUZZ_TOOLCHAIN) fuzz run "$$target" ".cache/fuzz/$$target" "fuzz/corpus/$$target" -- \
			-max_total_time=$(FUZZ_SECONDS); \
	done

# Tools are built where they are first needed, once. They need not be fast: without optimisation they build in a minute.
$(TOOLS)/bin/cargo-deny:
	cargo install --quiet --locked --debug --root $(TOOLS) cargo-deny@$(CARGO_DENY)

$(TOOLS)/bin/cargo-fuzz:
	cargo install --quiet --locked --debug --root $(TOOLS) cargo-fuzz@$(CARGO_FUZZ)
