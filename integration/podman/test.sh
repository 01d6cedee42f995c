#!/usr/bin/env bash
# Usage: test.sh LANDSTRIP-OCI - runs containers under podman, with it as the runtime.
# Needs root, podman and a static busybox; makes its own image, storage and configuration, and
# leaves nothing behind. Prints a line a check, and ends with 1 where one failed.
set -uo pipefail

runtime=$(realpath -s "${1:?usage: test.sh LANDSTRIP-OCI}")
here=$(cd "$(dirname "$0")" && pwd)
place=$(mktemp -d /var/tmp/landstrip-podman.XXXXXX)
image=localhost/landstrip-busybox
good=0 bad=0

# The drop-in as it is shipped, with the runtime's path, and less than podman's default limits for
# a root that may not raise them.
sed "s|^landstrip-oci = .*|landstrip-oci = [\"$runtime\"]|" \
    "$here/../../config/containers.conf.d/landstrip.conf" > "$place/containers.conf"
cat >> "$place/containers.conf" <<EOF
[containers]
default_ulimits = ["nofile=20000:20000", "nproc=32768:32768"]
[network]
network_backend = "netavark"
EOF
sed -i 's|^\[engine\]$|[engine]\ncgroup_manager = "cgroupfs"\nevents_logger = "file"|' "$place/containers.conf"
export CONTAINERS_CONF=$place/containers.conf

podman() {
    command podman --root "$place/root" --runroot "$place/run" --tmpdir "$place/tmp" \
        --runtime landstrip-oci "$@"
}
clean() {
    podman rm -a -f -t 0 >/dev/null 2>&1
    podman rmi -a -f >/dev/null 2>&1
    # podman's own clean-up after a container may still be at work there.
    for _ in $(seq 50); do
        umount "$place/root/overlay" 2>/dev/null
        rm -rf --one-file-system "$place" 2>/dev/null && break
        sleep 0.1
    done
}
trap clean EXIT

# NAME WANTED COMMAND...: the command ends with 0, and what it prints matches.
check() {
    local name=$1 wanted=$2 out code
    out=$(timeout --kill-after=2 60 bash -c "$(declare -f podman); ${*:3}" 2>&1 </dev/null)
    code=$?
    if [ "$code" -eq 0 ] && grep -qE -- "$wanted" <<<"$out"; then
        echo "ok    $name"
        good=$((good + 1))
    else
        printf 'FAIL  %s (exit code %s): %s\n' "$name" "$code" "$(tail -c 400 <<<"$out")"
        bad=$((bad + 1))
    fi
}
export place image

mkdir -p "$place"/rootfs/{bin,etc,proc,sys,dev,tmp,root,ws,data} "$place/volume"
cp "$(command -v busybox)" "$place/rootfs/bin/busybox"
chroot "$place/rootfs" /bin/busybox --install -s /bin
echo secret > "$place/rootfs/etc/secret"
echo 'u:x:1000:1000::/:/bin/sh' > "$place/passwd"
tar -C "$place/rootfs" -c . | podman import -q - "$image" >/dev/null || exit 1
cat > "$place/policy.json" <<'EOF'
{"filesystem": {"allowWrite": ["/ws", "/tmp"], "denyRead": ["/etc/secret"]}}
EOF
echo '{"filesystem": {"alowWrite": []}}' > "$place/wrong.json"

run='podman run --rm --network none'
policy="--annotation dev.landstrip.policy=$place/policy.json"

check 'runs' '^hi$' "$run $image echo hi"
check 'the exit code' '' "$run $image sh -c 'exit 7'; [ \$? -eq 7 ]"
check 'standard input' '^typed$' "echo typed | $run -i $image cat"
check 'a terminal' '/dev/pts/0' "$run -t $image tty"
check 'a user' 'uid=7 gid=8' "$run -u 7:8 $image id"
check 'no such program' 'code=127' "$run $image /nowhere; echo code=\$?"
check 'not executable' 'code=126' "$run $image /etc; echo code=\$?"
check 'a volume' '^kept$' "$run -v $place/volume:/v $image sh -c 'echo kept > /v/f' && cat $place/volume/f"
check 'a read-only volume' 'Read-only' "$run -v $place/volume:/v:ro $image touch /v/g; true"
check 'a read-only root' 'Read-only' "$run --read-only $image touch /x; true"
check 'no capability' 'CapEff:.0+$' "$run --cap-drop all $image grep CapEff /proc/self/status"
check 'the default profile' 'Seccomp:.2' "$run $image grep Seccomp: /proc/self/status"
check 'a user namespace' ' 0 +100000 +65536' "$run --uidmap 0:100000:65536 $image cat /proc/self/uid_map"
check 'a limit of processes' 'fork' "$run --pids-limit 10 $image sh -c 'for i in \$(seq 30); do sleep 9 & done'; true"
check 'a bridge' 'inet 10[.]' "podman run --rm $image ip addr show eth0"
check 'no cgroup' '^hi$' "$run --cgroups=disabled $image echo hi"
check 'an image is built' 'built' "printf 'FROM $image\nRUN echo built\n' | podman build --network none --no-cache -f - $place/volume"

check 'detached' '[0-9a-f]{64}' "podman run -d --name one --network none $image \
    sh -c 'trap \"exit 3\" TERM; echo started; while :; do sleep 0.1; done'"
check 'exec' '^in one$' "podman exec one echo in one"
check 'exec with a terminal' '/dev/pts/' "podman exec -t one tty"
check 'logs' '^started$' "podman logs one"
check 'top' 'sleep|sh' "podman top one"
check 'stats' 'one' "podman stats --no-stream one"
check 'pause' 'Paused|paused' "podman pause one && podman ps -a --format '{{.State}}' && podman unpause one"
check 'stop' '^3$' "podman stop -t 9 one && podman inspect -f '{{.State.ExitCode}}' one"
check 'restart' '^running$' "podman start one && podman inspect -f '{{.State.Status}}' one"
check 'remove' '^$' "podman rm -f -t 0 one >/dev/null; podman ps -aq"

check 'control: nothing is fenced' '^written secret$' "$run $image sh -c \
    'echo written > /data/f && echo \$(cat /data/f /etc/secret)'"
check 'a policy: writing' '^inside [^ ]*denied' "$run $policy $image sh -c \
    'echo inside > /ws/f && cat /ws/f; echo x > /data/f' 2>&1 | tr '\n' ' ' | sed 's/sh:.*Permission /denied/'"
check 'a policy: reading' 'Permission denied' "$run $policy $image cat /etc/secret; true"
check 'a policy: the network' 'Permission denied' "$run $policy $image nc 10.0.0.1 80; true"
check 'a policy: the exit code' '' "$run $policy $image sh -c 'exit 7'; [ \$? -eq 7 ]"
check 'a policy: a terminal' '/dev/pts/0' "$run $policy -t $image tty"
check 'a policy: detached' '[0-9a-f]{64}' "podman run -d --name two --network none $policy \
    --annotation dev.landstrip.traps=$place/traps $image \
    sh -c 'trap \"exit 3\" TERM; while :; do sleep 0.1; done'"
check 'a policy: exec' 'Permission denied' "podman exec two cat /etc/secret; true"
check 'a policy: traps' 'FILESYSTEM_DENIED.*/etc/secret' "cat $place/traps"
check 'a policy: stop' '^3$' "podman stop -t 9 two && podman inspect -f '{{.State.ExitCode}}' two"
check 'a policy that is wrong' 'alowWrite' "$run --annotation 'dev.landstrip.policy=$place/wrong.json' $image true; true"

# One broker a container: what podman executes in it meets the program, as without a policy.
check 'a policy: another user' '^1000 1000$' "$run $policy -v $place/passwd:/etc/passwd $image sh -c \
    'chmod 777 /ws; su u -c \"cd /ws; echo x > f; stat -c %u f; id -u\"' | tr '\n' ' ' | sed 's/ $//'"
check 'a policy: a health check' '^healthy$' "podman run -d --name three --network none $policy \
    --health-cmd 'kill -0 1 && echo x > /ws/h' --health-interval 1h $image sh -c \
    'trap \"echo got; exit 3\" TERM; while :; do sleep 0.1; done' >/dev/null 2>&1; podman healthcheck run three && echo healthy"
check 'a policy: executed as a user' '^7$' "podman exec -u 7 three id -u"
check 'a policy: executed with a terminal' '^ok' "podman exec -t three sh -c 'echo ok > /dev/tty'"
check 'a policy: pause' '^7$' "podman pause three && podman unpause three && podman exec -u 7 three id -u"
check 'a policy: copying' '^secret$' "podman cp three:/etc/secret $place/copy && cat $place/copy"
check 'a policy: restart' '^healthy$' "podman restart -t 5 three >/dev/null 2>&1; podman healthcheck run three && echo healthy"
check 'a policy: an executed kill' '^3 got got$' "podman exec three kill 1; podman wait three >/dev/null; \
    echo \$(podman inspect -f '{{.State.ExitCode}}' three; podman logs three)"

echo "$good passed, $bad failed"
[ "$bad" -eq 0 ]
