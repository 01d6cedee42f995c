#!/usr/bin/env bash
# Type-checks and lints for macOS on both processors, without a Mac: with Debian's compiler, which comes
# with the sources of the standard library. Apart from what the other targets of make build.
set -euo pipefail

target=${CARGO_TARGET_DIR:-target}/macos
# rustup has programs of the same names: first in PATH, and before PATH where cargo looks for clippy.
for triple in aarch64-apple-darwin x86_64-apple-darwin; do
    env PATH=/usr/bin:/bin RUSTC_BOOTSTRAP=1 CARGO_TARGET_DIR="$target" \
        cargo-clippy clippy --locked -Zbuild-std=std,panic_abort --target "$triple" -- -D warnings
done
