#!/usr/bin/env bash
# Usage: demo.sh LANDSTRIP - the main job on real input, each step checked.
set -euo pipefail

landstrip=$(realpath "$1")
# The demo builds in its own directory, wherever ours goes.
unset CARGO_TARGET_DIR
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cp -r integration/demo "$work/demo"
cd "$work/demo"

step() { printf '\n== %s\n   $ %s\n' "$1" "$2"; }

step "Build and test a crate, its own directory being all that may be written" \
    "landstrip run -p @workspace -- cargo test --offline"
"$landstrip" run -p @workspace -- cargo test --offline

step "Write outside of it" \
    "landstrip run -p @workspace -- sh -c 'echo gotcha > ../outside'"
status=0
"$landstrip" run -p @workspace -- sh -c 'echo gotcha > ../outside' || status=$?
if [ "$status" -eq 0 ] || [ -e ../outside ]; then
    echo "demo: the write was not refused" >&2
    exit 1
fi
printf '\n== Refused: sh exited with %s, and no file was made. The trap above says why.\n' "$status"
