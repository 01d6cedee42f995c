#!/usr/bin/env bash
# Usage: deny.sh VERSION ARG... - runs `cargo deny ARG...` of that version, built here if need be.
set -euo pipefail

version=$1
shift
deny=$(command -v cargo-deny || true)
if [ -z "$deny" ] || [ "$("$deny" --version)" != "cargo-deny $version" ]; then
    root=target/tools/cargo-deny-$version
    deny=$root/bin/cargo-deny
    if [ ! -x "$deny" ]; then
        # Without optimisation: it builds in a minute and runs in a second.
        cargo install --locked --debug --quiet cargo-deny --version "$version" --root "$root"
    fi
fi
exec "$deny" "$@"
