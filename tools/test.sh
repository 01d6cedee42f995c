#!/usr/bin/env bash
# Runs every test. As root it runs the same test binaries a second time as an ordinary user: what a
# policy can be held with differs between the two.
#
# LANDSTRIP_TEST_HAVE: capabilities of this host, comma separated. A test that needs one of them
# fails where it is missing, rather than being skipped. `root` or `user` is added for each run.
#
# Hundreds of tests are races, or have deadlines, and a busy machine loses one in thousands. So a test binary
# that fails is run once more, by itself; what passes only then is named at the end.
set -euo pipefail

target=$(tools/target.sh)
have=${LANDSTRIP_TEST_HAVE:-}
log=$(mktemp) home='' copy=''
trap 'rm -rf "$log" "$home" "$copy"' EXIT
unlucky=()
run() { # WHO COMMAND...
    echo "== tests as $1"
    local all=${have:+$have,}$1 failed which
    if LANDSTRIP_TEST_HAVE=$all "${@:2}" --no-fail-fast 2>&1 | tee "$log"; then
        return
    fi
    # As cargo lists them at the end; what does not compile is not listed.
    mapfile -t failed < <(sed -n 's/^    `\(-.*\)`$/\1/p' "$log")
    [ ${#failed[@]} -gt 0 ] || exit 1
    for which in "${failed[@]}"; do
        echo "== once more as $1: $which"
        # shellcheck disable=SC2086 # Several words.
        LANDSTRIP_TEST_HAVE=$all "${@:2}" $which
        unlucky+=("$which as $1")
    done
}
tell() {
    for which in "${unlucky[@]}"; do
        echo "== FAILED AT FIRST, passed when run once more: $which"
    done
}

if [ "$(id -u)" -ne 0 ]; then
    run user cargo test --locked --target "$target"
    tell
    exit
fi

# The user has to reach the binaries and the fixtures by the path they were built with.
ordinary() { setpriv --reuid nobody --regid nogroup --clear-groups --inh-caps=-all -- "$@"; }
if ! ordinary test -x "$PWD" -a -r Cargo.toml; then
    copy=$(mktemp -d /var/tmp/landstrip-test.XXXXXX)
    chmod 755 "$copy"
    echo "== $PWD is closed to ordinary users: testing a copy in $copy"
    tar --exclude=./target --exclude=./.git -cf - . | tar -xf - -C "$copy"
    cd "$copy"
    export CARGO_TARGET_DIR=$copy/target
fi

run root cargo test --locked --target "$target"

home=$(mktemp -d /var/tmp/landstrip-home.XXXXXX)
chown nobody:nogroup "$home"
name=$(tr a-z- A-Z_ <<<"$target")
runner="$PWD/tools/as-user.sh $home"
run user env "CARGO_TARGET_${name}_RUNNER=$runner" cargo test --locked --target "$target"
tell
