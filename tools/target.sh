#!/usr/bin/env bash
# Prints the target to build for: musl where it is installed or rustup can install it, else the host's.
# The C library of musl starts in half the time of a static glibc, which asks the processor about its
# caches first.
set -euo pipefail

host=$(rustc -vV | sed -n 's/^host: //p')
musl=${host%-gnu}-musl
installed() { [ -d "$(rustc --print sysroot)/lib/rustlib/$musl/lib" ]; }

case $host in *-linux-gnu) ;; *) echo "$host"; exit ;; esac
if ! installed && command -v rustup >/dev/null; then
    rustup target add "$musl" >&2 || true
fi
if installed; then
    echo "$musl"
else
    echo "target: $musl cannot be had; building for $host, which starts a little slower" >&2
    echo "$host"
fi
