#!/usr/bin/env bash
# Usage: test-vm.sh SUITE TEST... - runs test binaries as root, and as an ordinary user, on the kernel of a Debian
# release: in a virtual machine, which is emulated and needs no rights but to make its disk.
#
# A TEST is the name of a test binary (`run`), or that and a filter of its tests (`run:exit`).
# VM_SYSTEM: the packages that are installed in the machine. LANDSTRIP_TEST_HAVE: as in test.sh, of the machine.
set -euo pipefail

inside() { # NAME:FILTER=BINARY... - what is done in the machine; its last line says how it went.
    local failed=0 who name filter binary log home=/home/nobody
    log=$(mktemp)
    install -d -o nobody -g nogroup "$home"
    target/*/debug/landstrip doctor --format text || failed=1
    for who in root user; do
        echo "== tests as $who"
        for test in "$@"; do
            IFS=:= read -r name filter binary <<<"$test"
            SECONDS=0
            LANDSTRIP_TEST_HAVE=${LANDSTRIP_TEST_HAVE:+$LANDSTRIP_TEST_HAVE,$who} timeout -k 9 1800 \
                $([ $who = root ] || echo tools/as-user.sh "$home") \
                "$binary" ${filter:+"$filter"} </dev/null >"$log" 2>&1 || { failed=1; cat "$log"; }
            printf '%-18s %s; %s skipped for want of something; %s s\n' "$name" \
                "$(sed -n 's/; [0-9]* measured.*//; s/^test result: //p' "$log")" \
                "$(grep -c '^skipped: ' "$log" || true)" "$SECONDS"
        done
    done
    echo "status $failed"
}
if [ "$1" = --inside ]; then
    inside "${@:2}" 2>&1
    exit
fi

suite=$1
shift
export CARGO_TARGET_DIR=target
target=$(tools/target.sh)
debug=target/$target/debug
out=target/vm
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir -p $out "$work/tree"

disk() { # FILE SIZE TREE
    truncate -s "$2" "$1"
    mke2fs -q -t ext4 -d "$3" "$1"
}

system=$out/$suite-$(md5sum <<<"$VM_SYSTEM" | cut -c 1-8)
if [ ! -e "$system.disk" ]; then
    echo "== making a system of $suite in $system.disk"
    mmdebstrap --quiet --variant=minbase --include="$VM_SYSTEM" "$suite" "$work/system"
    cp "$work"/system/boot/vmlinuz-* "$system.kernel"
    disk "$work/disk" 4G "$work/system"
    mv "$work/disk" "$system.disk"
fi

# By the paths that they were built with, and without the symbols that are most of them.
stage() { # FILE
    mkdir -p "$work/tree/$(dirname "$1")"
    strip -o "$work/tree/$1" "$1"
}
tar --exclude=./target --exclude=./.git -cf - . | tar -xf - -C "$work/tree"
built=$(cargo test --locked --no-run --target "$target" --examples $(printf -- '--test %s ' "${@%%:*}") 2>&1) ||
    { echo "$built" >&2; exit 1; }
tests=()
for test in "$@"; do
    binary=$(sed -n "s|.*(\($debug/deps/${test%%:*}-[0-9a-f]*\))|\1|p" <<<"$built")
    [ -e "$work/tree/$binary" ] || stage "$binary"
    [[ $test == *:* ]] || test=$test:
    tests+=("$test=$PWD/$binary")
done
stage $debug/landstrip
stage $debug/examples/probe
cat >"$work/tree/inside.sh" <<EOF
cd $PWD
export HOME=/root LANDSTRIP_TEST_HAVE=${LANDSTRIP_TEST_HAVE:-}
tools/test-vm.sh --inside ${tests[*]}
EOF
disk "$work/tests" 4G "$work/tree"

attach() { echo -drive "if=none,format=raw,snapshot=on,id=$1,file=$2" -device "nvme,drive=$1,serial=$1"; }
start="mkdir -p $PWD; mount /dev/nvme1n1 $PWD; systemctl start dbus; stty raw </dev/ttyS1;
    bash $PWD/inside.sh >/dev/ttyS1; poweroff"
echo "== $suite boots; $out/console has what it says"
qemu-system-x86_64 -accel tcg,thread=multi -cpu max -smp 2 -m 2048 -nodefaults -display none -no-reboot \
    -kernel "$system.kernel" $(attach system "$system.disk") $(attach tests "$work/tests") \
    -append "root=/dev/nvme0n1 rw console=ttyS0 panic=-1 systemd.run=\"/bin/bash -c '${start//$'\n'/}'\"" \
    -serial "file:$out/console" -serial stdio </dev/null | tee $out/log
[ "$(tail -n 1 $out/log)" = "status 0" ]
