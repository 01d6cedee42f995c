#!/usr/bin/env bash
# Usage: test.sh LANDSTRIP-OCI [TOPIC...] - runs containers under podman and buildah, with it as the runtime,
# as root and as an ordinary user. What fails is done once more under crun or runc, which says whether the host
# is to blame. Needs root. Prints a line a check, and ends with 1 where one failed. Leaves nothing behind.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
# shellcheck source=../lib.sh
. "$here/../lib.sh"

if [ -z "${place:-}" ]; then
    runtime=$(realpath "${1:?usage: test.sh LANDSTRIP-OCI [TOPIC...]}")
    alone "$0" "$runtime" "${@:2}"
    exit
fi

# From here on, in namespaces of its own, and with a /run of its own: engines and runtimes keep their state there.
mount --make-shared /
mount -t tmpfs -o mode=755 tmpfs /run
mkdir -p /run/lock
runtime=$1
topics=("${@:2}")
ip link set lo up

# The ordinary user must reach everything.
mkdir -p "$place/bin" "$place/config"
cp "$runtime" "$place/bin/landstrip-oci"
cp -r "$here/.." "$place/integration"
cp -r "$here/../../config/containers.conf.d" "$place/config/"

# A user, with users of its own for containers, as far as this mount namespace sees. `containers` has
# those that --userns=auto takes.
user=landstrip-test id=23001
cp /etc/passwd /etc/group "$place/"
echo "$user:x:$id:$id::$place/user:/bin/sh" >> "$place/passwd"
echo "$user:x:$id:" >> "$place/group"
printf '%s\n' "$user:2300000:65536" "containers:2400000:1000000" > "$place/subuid"
cp "$place/subuid" "$place/subgid"
for file in passwd group subuid subgid; do
    [ -e "/etc/$file" ] || touch "/etc/$file"
    mount --bind "$place/$file" "/etc/$file"
done
# Devices that any user may open: FUSE for storage where the kernel gives no better, tun for the network.
mkdir "$place/dev"
mount -t tmpfs -o mode=755 tmpfs "$place/dev"
while read -r name major minor; do
    [ -e "/dev/$name" ] || continue
    mknod -m 666 "$place/dev/${name##*/}" c "$major" "$minor"
    mount --bind "$place/dev/${name##*/}" "/dev/$name"
done <<<$'net/tun 10 200\nfuse 10 229'

busybox_root "$place/rootfs"
tar -C "$place/rootfs" -cf "$place/rootfs.tar" .
mkdir -p "$place"/{root,user} /run/{root,user}
chown "$id:$id" "$place/user" /run/user
chmod 700 /run/{root,user}

# One pass of the checks of some topics, or of all, as WHO, with the runtime NAME.
pass() { # WHO NAME TOPIC...
    local as=() login=root
    [ "$1" = root ] || login=$user
    [ "$1" = root ] || as=(setpriv "--reuid=$id" "--regid=$id" --clear-groups --inh-caps=-all --)
    "${as[@]}" env -i PATH="$PATH" HOME="$place/$1" USER="$login" XDG_RUNTIME_DIR="/run/$1" TERM=xterm \
        place="$place" who="$1" name="$2" bash "$place/integration/podman/pass.sh" "${@:3}"
}

code=0
for who in root user; do
    pass "$who" landstrip-oci "${topics[@]}" && continue
    code=1
    # The control, of what failed: the first of these that runs anything here.
    ours=$place/$who/results.landstrip-oci
    mapfile -t failed < <(sed -n 's|^bad [a-z]*/\([a-z]*\):.*|\1|p' "$ours" | sort -u)
    for name in crun runc; do
        ! pass "$who" "$name" "${failed[@]}" > "$place/log" && grep -q '^does not run' "$place/log" && continue
        compare "$name" "$place/$who/results.$name" "$ours"
        break
    done
done
exit "$code"
