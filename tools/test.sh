#!/usr/bin/env bash
# Runs every test. As root it runs the same test binaries a second time as an ordinary user: what a
# policy can be held with differs between the two.
#
# LANDSTRIP_TEST_HAVE: capabilities of this host, comma separated. A test that needs one of them
# fails where it is missing, rather than being skipped. `root` or `user` is added for each run.
set -euo pipefail

target=$(tools/target.sh)
have=${LANDSTRIP_TEST_HAVE:-}
run() { # WHO COMMAND...
    echo "== tests as $1"
    LANDSTRIP_TEST_HAVE=${have:+$have,$1} "${@:2}"
}

if [ "$(id -u)" -ne 0 ]; then
    run user cargo test --locked --target "$target"
    exit
fi

# The user has to reach the binaries and the fixtures by the path they were built with.
ordinary() { setpriv --reuid nobody --regid nogroup --clear-groups --inh-caps=-all -- "$@"; }
if ! ordinary test -x "$PWD" -a -r Cargo.toml; then
    copy=$(mktemp -d /var/tmp/landstrip-test.XXXXXX)
    trap 'rm -rf "$copy"' EXIT
    chmod 755 "$copy"
    echo "== $PWD is closed to ordinary users: testing a copy in $copy"
    tar --exclude=./target --exclude=./.git -cf - . | tar -xf - -C "$copy"
    cd "$copy"
    export CARGO_TARGET_DIR=$copy/target
fi

run root cargo test --locked --target "$target"

home=$(mktemp -d /var/tmp/landstrip-home.XXXXXX)
trap 'rm -rf "$home" ${copy:+"$copy"}' EXIT
chown nobody:nogroup "$home"
name=$(tr a-z- A-Z_ <<<"$target")
runner="$PWD/tools/as-user.sh $home"
run user env "CARGO_TARGET_${name}_RUNNER=$runner" cargo test --locked --target "$target"
