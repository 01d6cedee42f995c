# What the engines' tests share; sourced.

# alone SCRIPT ARGS...: runs a script where nothing of it can stay behind: in mount, pid and network
# namespaces of its own, with a directory that it gets as $place. What it started ends with it, what it
# mounted and what it set up in the network is gone then; the directory and cgroups are removed here.
alone() {
    local parents=() dir code
    place=$(mktemp -d /var/tmp/landstrip-engine.XXXXXX)
    export place
    # What was killed may take a moment to let go of it.
    trap 'soon rm -rf --one-file-system "$place"' EXIT
    chmod 755 "$place"
    # Engines leave the parents of their containers' cgroups; those that are here already are not ours.
    for dir in /sys/fs/cgroup /sys/fs/cgroup/*/; do
        for name in libpod_parent default k8s.io landstrip-test; do
            [ -e "$dir/$name" ] || parents+=("$dir/$name")
        done
    done
    code=0
    # An init takes up what loses its parent: engines wait for such a process to be gone.
    unshare --mount --propagation private --net --pid --fork --mount-proc --kill-child \
        catatonit -- "$@" || code=$?
    for dir in "${parents[@]}"; do
        find "$dir" -depth -type d -exec rmdir {} + 2>/dev/null || true
    done
    return "$code"
}

# A root directory with busybox in it, for images.
busybox_root() { # DIRECTORY
    mkdir -p "$1"/{bin,etc,proc,sys,dev,tmp,root,ws,data,v}
    chmod 1777 "$1/tmp" "$1/ws" "$1/data"
    cp "$(command -v busybox)" "$1/bin/busybox"
    chroot "$1" /bin/busybox --install -s /bin
    printf 'root:x:0:0::/root:/bin/sh\nmail:x:8:12::/tmp:/bin/sh\n' > "$1/etc/passwd"
    printf 'root:x:0:\nmail:x:12:\n' > "$1/etc/group"
    echo secret > "$1/etc/secret"
}

# Until the command succeeds, or half a minute is over.
soon() {
    local _
    for _ in $(seq 300); do
        "$@" >/dev/null 2>&1 && return 0
        sleep 0.1
    done
    echo "in vain: $*"
    return 1
}

# Runs a command on a terminal, whose input does not end before the command does. By bash, which knows our functions:
# script takes $SHELL, and sh without one.
pty() { # COMMAND
    [ -p "$results.in" ] || mkfifo "$results.in"
    SHELL=/bin/bash script -qec "$1" /dev/null <> "$results.in"
}

# check NAME WANTED SCRIPT: the script ends well, and what it prints matches, in any case. A line goes to standard
# output, and one without details to the file $results.
check() {
    local out code=0
    # To a file: what it may leave running holds no pipe open.
    timeout --kill-after=2 40 bash -euo pipefail -c "$3" >"$results.out" 2>&1 </dev/null || code=$?
    out=$(tr -d '\0\r' < "$results.out")
    if [ "$code" -eq 0 ] && grep -qiE -- "$2" <<<"$out"; then
        echo "ok $topic: $1" >> "$results"
        echo "ok    $topic: $1"
        return
    fi
    echo "bad $topic: $1" >> "$results"
    printf 'FAIL  %s: %s (exit code %s): %s\n' "$topic" "$1" "$code" "$(tail -c 600 <<<"$out")"
}

# A script for a container that prints the size of its terminal: engines send that of their own beside the start.
export sized='until size=$(stty size 2>/dev/null) && [ "$size" ]; do :; done; echo $size'

# checks FILE CLEAN: the checks of a file, and CLEAN after them; where one fails, all of it once more. Engines have
# races of their own, and a busy machine loses one in thousands. `summary` names what passes only then.
checks() {
    # Names that no file of checks has for its own.
    local checks_results=$results checks_round
    export results=$checks_results.topic
    for checks_round in first second; do
        : > "$results"
        . "$1"
        "$2"
        grep -q '^bad ' "$results" || break
        [ "$checks_round" = second ] || sed -n 's/^bad /unlucky /p' "$results" >> "$checks_results"
    done
    cat "$results" >> "$checks_results"
    export results=$checks_results
}

# skip NAME REASON: what is not checked here, and why.
skip() {
    echo "skip  $topic: $1: $2"
}

# What the control made of the checks that failed: whether the host or the runtime is to blame.
compare() { # CONTROL, ITS RESULTS, OURS
    sed -n 's/^bad //p' "$3" | while IFS= read -r name; do
        grep -qxF "ok $name" "$2" && echo "      $1 passes: $name" || echo "      nor does $1: $name"
    done
}

# How many of the results in a file are good, and which are not; false if any is not.
summary() { # TITLE FILE
    sed -n 's/^unlucky //p' "$2" | while IFS= read -r name; do
        ! grep -qxF "ok $name" "$2" || echo "== FAILED AT FIRST, passed when run once more: $name"
    done
    local bad
    echo "$1: $(grep -c '^ok ' "$2") passed, $(grep -c '^bad ' "$2" || true) failed"
    ! grep -q '^bad ' "$2"
}
