#!/usr/bin/env bash
# Usage: check-windows.sh TRIPLE... - lints for these, and compiles, links and tests for Windows, without one: with
# Debian's compiler, which comes with the sources of the standard library, and MinGW's linker. What wine does as Windows
# does is run there. Apart from what the other targets of make build.
set -euo pipefail

target=${CARGO_TARGET_DIR:-target}/windows
triple=x86_64-pc-windows-gnu
# rustup has programs of the same names: first in PATH, and before PATH where cargo looks for clippy.
for_windows() {
    env PATH=/usr/bin:/bin RUSTC_BOOTSTRAP=1 CARGO_TARGET_DIR="$target" \
        CARGO_TARGET_X86_64_PC_WINDOWS_GNU_RUNNER=wine \
        "$1" "$2" --locked -Zbuild-std=std,panic_abort -Zpanic-abort-tests --target "$triple" "${@:3}"
}
for other in "$@"; do
    triple=$other for_windows cargo-clippy clippy --bins --test platforms -- -D warnings
done
for_windows cargo test --no-run --test platforms

# The standard library takes its random numbers from a library that wine 8 has not.
library=$target/$triple/debug/deps/bcryptprimitives.dll
x86_64-w64-mingw32-gcc -shared -x c -o "$library" - -ladvapi32 <<'C'
#include <windows.h>
BOOLEAN NTAPI SystemFunction036(void *bytes, ULONG count);
__declspec(dllexport) BOOL WINAPI ProcessPrng(BYTE *bytes, SIZE_T count)
{
    return SystemFunction036(bytes, count);
}
C
export WINEPREFIX WINEDEBUG=-all
WINEPREFIX=$(realpath "$target")/wine
trap 'wineserver -k || true' EXIT
for_windows cargo test --test platforms
