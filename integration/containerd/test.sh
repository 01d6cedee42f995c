#!/usr/bin/env bash
# Usage: test.sh LANDSTRIP-OCI - runs containers under a containerd of its own, with it as the runtime, by ctr and
# by the interface that Kubernetes uses. Where something fails, all is done once more under runc, which says whether
# the host is to blame. Needs root. Prints a line a check, and ends with 1 where one failed. Leaves nothing behind.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
# shellcheck source=../lib.sh
. "$here/../lib.sh"

if [ -z "${place:-}" ]; then
    alone "$0" "$(realpath "${1:?usage: test.sh LANDSTRIP-OCI}")"
    exit
fi

# From here on, in namespaces of its own, and with a /run of its own: shims make their sockets there.
mount --make-shared /
mount -t tmpfs -o mode=755 tmpfs /run
ip link set lo up
mkdir "$place/bin"
cp "$1" "$place/bin/landstrip-oci"

# The default configuration, with the runtime added as it is shipped, but for its path: in places of its own, and
# without what would need rights over all memory of the host.
containerd config default | sed -E \
    -e "s|^root = .*|root = \"$place/lib\"|" -e 's|^state = .*|state = "/run/containerd"|' \
    -e '/^\[grpc\]/,/^\[/s|^  address = .*|  address = "/run/containerd.sock"|' \
    -e "s|path = \"/opt/containerd\"|path = \"$place/opt\"|" \
    -e 's|sandbox_image = .*|sandbox_image = "localhost/pause:1"|' \
    -e 's|restrict_oom_score_adj = .*|restrict_oom_score_adj = true|' \
    -e "s|(bin_dir\|conf_dir) = .*|\1 = \"$place/none\"|" > "$place/config.toml"
sed "s|/usr/local/bin/|$place/bin/|" "$here/../../config/containerd/landstrip.toml" |
    grep -v '^version' >> "$place/config.toml"
containerd -c "$place/config.toml" > "$place/log" 2>&1 &
export CONTAINERD_ADDRESS=/run/containerd.sock CONTAINERD_NAMESPACE=landstrip-test
soon ctr version || { tail -n 20 "$place/log"; exit 1; }

busybox_root "$place/rootfs"
image=localhost/busybox:1
/usr/bin/python3 "$here/image.py" "$place/rootfs" "$image" > "$place/image.tar"
/usr/bin/python3 "$here/image.py" "$place/rootfs" localhost/pause:1 sleep infinity > "$place/pause.tar"
ctr image import "$place/image.tar" > /dev/null
for name in image pause; do
    ctr -n k8s.io image import "$place/$name.tar" > /dev/null
done
echo '{"filesystem": {"allowWrite": ["/ws", "/tmp"], "denyRead": ["/etc/secret"]}}' > "$place/policy.json"
echo '{"filesystem": {"alowWrite": []}}' > "$place/wrong.json"

run() { ctr run --rm --runc-binary "$binary" "$@"; }
start() { ctr run -d --runc-binary "$binary" "$@"; }
fenced() { run --annotation "dev.landstrip.policy=$place/policy.json" "$@"; }
# Ends a task and takes its container away.
over() {
    ctr task kill -s KILL "$1" >/dev/null 2>&1 || true
    soon sh -c "ctr task ls | grep -E '^$1 .*STOPPED'"
    ctr task rm "$1" >/dev/null
    ctr container rm "$1"
}
is() { ctr task ls | grep -qE "^$1 .*$2"; }
cri() { /usr/bin/python3 "$here/cri.py" /run/containerd.sock "$@"; }
export -f run start fenced over is cri soon pty
export place image here

clean() {
    local space
    for space in landstrip-test k8s.io; do
        ctr -n "$space" task ls -q | xargs -r ctr -n "$space" task rm -f
        ctr -n "$space" container ls -q | xargs -r ctr -n "$space" container rm
    done
    # containerd keeps the names of pods by itself.
    [ ! -s "${pod:-}" ] || { cri stop-pod "$(cat "$pod")" && cri rm-pod "$(cat "$pod")"; } || true
} >/dev/null 2>&1

# All checks, with a runtime.
pass() { # NAME
    name=$1 handler=${1%-oci} binary=$1 results=$place/results.$1
    [ "$name" = runc ] || binary=$place/bin/$name
    export binary handler results
    : > "$results"
    for topic in ctr cri; do
        checks "$here/$topic.sh" clean
    done
}
pass landstrip-oci
summary landstrip-oci "$results" && exit
# The control.
pass runc > "$place/lines"
compare runc "$results" "$place/results.landstrip-oci"
exit 1
