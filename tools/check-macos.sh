#!/usr/bin/env bash
# Usage: check-macos.sh ZIG CARGO_ZIGBUILD - lints and links for macOS, without a Mac: with Debian's compiler, which
# comes with the sources of the standard library, and these versions of Zig's linker, which knows what the system's
# libraries export. For Apple's processors: nothing in what is ours for macOS depends on them. Apart from what the
# other targets of make build.
set -euo pipefail

target=${CARGO_TARGET_DIR:-target}/macos
mkdir -p "$target"
target=$(realpath "$target")
zig=$target/zig-$1-$2
if [ ! -d "$zig" ]; then
    rm -rf "$zig.part"
    /usr/bin/python3 -m pip install --quiet --disable-pip-version-check --root-user-action ignore --no-deps \
        --target "$zig.part" "ziglang==$1" "cargo-zigbuild==$2"
    mv "$zig.part" "$zig"
fi

# rustup has programs of the same names: first in PATH, and before PATH where cargo looks for clippy.
triple=aarch64-apple-darwin
for_macos() { # PROGRAM COMMAND ARG...
    env PATH=/usr/bin:/bin RUSTC_BOOTSTRAP=1 CARGO_TARGET_DIR="$target" \
        CARGO_ZIGBUILD_ZIG_PATH="$zig/ziglang/zig" CARGO_ZIGBUILD_CACHE_DIR="$target/cache" \
        ZIG_GLOBAL_CACHE_DIR="$target/cache" \
        "$1" "$2" --locked -Zbuild-std=std,panic_abort -Zpanic-abort-tests --target "$triple" --bins "${@:3}"
}
for_macos cargo-clippy clippy --test platforms -- -D warnings
for_macos "$zig/bin/cargo-zigbuild" zigbuild
file=$target/$triple/debug/landstrip
# MH_MAGIC_64, as it is stored.
if [ "$(od -An -tx4 -N4 "$file" | tr -d ' ')" != feedfacf ]; then
    echo "check-macos: $file is no program for macOS" >&2
    exit 1
fi
echo "$file"
