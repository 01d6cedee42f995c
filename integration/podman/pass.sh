# One pass of all checks: as $who, with the runtime $name, in the directory $place; called by test.sh, which
# says what the rest of the environment is.
set -uo pipefail
here=$(cd "$(dirname "$0")" && pwd)
. "$here/../lib.sh"

home=$place/$who
results=$home/results.$name
: > "$results"

# The drop-in as it is shipped, with the runtime's path, and less than podman's default limits for
# a root that may not raise them. Everything that podman keeps is in one place.
{
    sed "s|^landstrip-oci = .*|landstrip-oci = [\"$place/bin/landstrip-oci\"]|" \
        "$place/config/containers.conf.d/landstrip.conf" |
        sed "/^\[engine\]/a runtime = \"$name\"\ncgroup_manager = \"cgroupfs\"\nevents_logger = \"file\"\ntmp_dir = \"$home/tmp\"\nvolume_path = \"$home/volumes\""
    cat <<TOML
[containers]
default_ulimits = ["nofile=20000:20000", "nproc=32768:32768"]
[network]
network_backend = "netavark"
network_config_dir = "$home/networks"
TOML
} > "$home/containers.conf"
# No more than 50 characters, or podman loses the ends of containers.
cat > "$home/storage.conf" <<TOML
[storage]
driver = "overlay"
graphroot = "$home/storage"
runroot = "$XDG_RUNTIME_DIR/storage"
TOML
export CONTAINERS_CONF=$home/containers.conf CONTAINERS_STORAGE_CONF=$home/storage.conf
# No systemd to time health checks with.
export DISABLE_HC_SYSTEMD=true

cd "$home" || exit 1
image=localhost/landstrip-busybox
run() { podman run --rm --network none "$@"; }
status() { podman inspect -f "{{.State.$2}}" "$1"; }
is() { [ "$(status "$1" Status)" = "$2" ]; }
root() { [ "$who" = root ]; }
export -f run status is soon pty
export image home place name results

podman image exists "$image" || podman import -q - "$image" < "$place/rootfs.tar" >/dev/null || exit 1
run "$image" true >"$home/why" 2>&1 || {
    echo "does not run: $name: $(tail -n1 "$home/why")"
    exit 1
}
podman info -f '{{.Host.CgroupsVersion}}' > "$home/cgroups"
v1() { grep -q v1 "$home/cgroups"; }

clean() {
    podman pod rm -a -f -t 0
    podman rm -a -f -t 0
    podman volume rm -a -f
    podman network prune -f
} >/dev/null 2>&1
all=("$@")
[ $# -gt 0 ] || all=(basic lifecycle exec limits files users fences network pods build policy hosts)
for topic in "${all[@]}"; do
    topic=$who/$topic
    checks "$here/topics/${topic#*/}.sh" clean
done
topic=$who/end
check 'nothing is left' '^0 0$' 'echo $(podman ps -aq | wc -l) $(find /run/landstrip "$XDG_RUNTIME_DIR/landstrip" -mindepth 1 2>/dev/null | wc -l)'
summary "$name, $who" "$results"
