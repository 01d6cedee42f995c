include versions.mk

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help

PREFIX ?= /usr/local
DESTDIR ?=
SECONDS_EACH ?= 60
VM_TESTS ?= enforce_kernel enforce_net enforce_read enforce_sockets enforce_write posix
WINDOWS ?= x86_64-pc-windows-gnu aarch64-pc-windows-msvc
TARGET := $(or $(CARGO_TARGET_DIR),target)
# Asked for once, and only by who needs it: it may install the target.
TRIPLE = $(eval TRIPLE := $(shell tools/target.sh))$(TRIPLE)
OUT = $(TARGET)/$(TRIPLE)/release
BIN = $(OUT)/landstrip
# 9,000 pointers to relocate at every start, in 3 KiB rather than 220.
PACKED := -C link-arg=-Wl,-z,pack-relative-relocs
SHARE := $(TARGET)/share

.PHONY: help run build check check-macos check-windows test test-vm integration fuzz bench man schema install

help: ## Show this list
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/\1\t\2/p' $(MAKEFILE_LIST) | expand -t 13

run: build ## Set up, and show the main job on a real crate
	@tools/demo.sh $(BIN)

build: ## Build the release binary, and its second name beside it
	@tools/deps.sh $(BUILD_PACKAGES)
	RUSTFLAGS="$${RUSTFLAGS:-} -C target-feature=+crt-static $(PACKED)" \
	    cargo build --locked --release --target $(TRIPLE)
	@ln -sf landstrip $(OUT)/landstrip-oci
	@echo $(BIN)

check: ## Check format, lints, documentation, licences and sources
	@tools/deps.sh $(BUILD_PACKAGES)
	cargo fmt --check
	cargo clippy --locked --all-targets -- -D warnings
	RUSTDOCFLAGS="-D warnings" cargo doc --locked --no-deps
	@tools/deny.sh $(CARGO_DENY_VERSION) check licenses bans sources

check-macos: ## Compile, lint and link for macOS (on Debian, which has the sources of the standard library)
	@tools/deps.sh $(MACOS_PACKAGES)
	@tools/check-macos.sh $(ZIG_VERSION) $(CARGO_ZIGBUILD_VERSION)

check-windows: ## Compile, lint and link for Windows, and test under wine (on Debian, likewise)
	@tools/deps.sh $(WINDOWS_PACKAGES)
	@tools/check-windows.sh $(WINDOWS)

test: ## Set up, and run every test (as root: again as an ordinary user)
	@tools/deps.sh $(TEST_PACKAGES)
	@tools/test.sh

test-vm: ## Run tests (VM_TESTS) on an older kernel (VM_SUITE), in an emulated machine, as root
	@tools/deps.sh $(VM_PACKAGES)
	@VM_SYSTEM="$(strip $(VM_SYSTEM))" tools/test-vm.sh $(VM_SUITE) $(VM_TESTS)

integration: build ## Run containers under podman and containerd, as root
	@tools/deps.sh $(ENGINE_PACKAGES)
	integration/config.py
	integration/podman/test.sh $(OUT)/landstrip-oci
	integration/containerd/test.sh $(OUT)/landstrip-oci

fuzz: ## Run each fuzz target for a minute (SECONDS_EACH)
	@tools/deps.sh $(BUILD_PACKAGES)
	LANDSTRIP_FUZZ_SECONDS=$(SECONDS_EACH) cargo test --locked --target $(TRIPLE) --test fuzz -- --nocapture

bench: build ## Compare speed with no sandbox, bubblewrap, runc and crun
	@tools/deps.sh $(BENCH_PACKAGES)
	LANDSTRIP=$(abspath $(BIN)) cargo bench --locked

man: build ## Write the manual page and the shell completions
	@mkdir -p $(SHARE)
	@$(BIN) man > $(SHARE)/landstrip.1
	@for name in landstrip landstrip-oci; do for shell in bash fish zsh; do \
	    $(OUT)/$$name completions $$shell > $(SHARE)/$$name.$$shell; done; done
	@ls $(SHARE)/landstrip*.*sh $(SHARE)/landstrip.1

schema: build ## Write the JSON Schemas of policies and traps
	@mkdir -p $(SHARE)
	@for name in policy trap; do $(BIN) policy schema $$name > $(SHARE)/$$name.schema.json; done
	@ls $(SHARE)/*.schema.json

install: man schema ## Install below PREFIX (/usr/local), within DESTDIR
	install -D -m 755 $(BIN) $(DESTDIR)$(PREFIX)/bin/landstrip
	ln -sf landstrip $(DESTDIR)$(PREFIX)/bin/landstrip-oci
	install -D -m 644 -t $(DESTDIR)$(PREFIX)/share/man/man1 $(SHARE)/landstrip.1
	install -D -m 644 -t $(DESTDIR)$(PREFIX)/share/landstrip $(SHARE)/*.schema.json
	for name in landstrip landstrip-oci; do \
	    install -D -m 644 $(SHARE)/$$name.bash \
	        $(DESTDIR)$(PREFIX)/share/bash-completion/completions/$$name; \
	    install -D -m 644 $(SHARE)/$$name.fish \
	        $(DESTDIR)$(PREFIX)/share/fish/vendor_completions.d/$$name.fish; \
	    install -D -m 644 $(SHARE)/$$name.zsh \
	        $(DESTDIR)$(PREFIX)/share/zsh/site-functions/_$$name; done
