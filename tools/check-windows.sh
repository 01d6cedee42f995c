#!/usr/bin/env bash
# Type-checks, lints and links for Windows, without one: with Debian's compiler, which comes with the sources
# of the standard library, and MinGW's linker. Apart from what the other targets of make build.
set -euo pipefail

# rustup has programs of the same names: first in PATH, and before PATH where cargo looks for clippy.
for_windows() {
    env PATH=/usr/bin:/bin RUSTC_BOOTSTRAP=1 CARGO_TARGET_DIR="${CARGO_TARGET_DIR:-target}/windows" \
        "$1" "$2" --locked -Zbuild-std=std,panic_abort --target "$3" "${@:4}"
}
for_windows cargo-clippy clippy x86_64-pc-windows-gnu -- -D warnings
for_windows cargo build x86_64-pc-windows-gnu
