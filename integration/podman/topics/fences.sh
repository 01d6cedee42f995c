# What keeps a container in.
check 'no capability' 'CapEff:.0+$' 'run --cap-drop all $image grep CapEff /proc/self/status'
check 'one capability less' 'Operation not permitted' '! run --cap-drop chown $image chown 1 /tmp'
check 'one capability more' '^more$' 'run --cap-add net_admin $image ip link set lo mtu 1400 && echo more'
check 'one alone' 'CapEff:.0+2000$' 'run --cap-drop all --cap-add net_raw $image grep CapEff /proc/self/status'
check 'none inherited' 'CapInh:.0+$' 'run --cap-add sys_admin $image grep CapInh /proc/self/status'
check 'privileged' 'CapEff:.0*1ff' 'run --privileged $image grep CapEff /proc/self/status'
check 'no new privileges' 'NoNewPrivs:.1' 'run --security-opt no-new-privileges $image grep NoNewPrivs /proc/self/status'
check 'the default profile' 'Seccomp:.2' 'run $image grep Seccomp: /proc/self/status'
check 'the default profile refuses' 'Operation not permitted' '! run $image unshare -m true'
check 'no profile' 'Seccomp:.0' 'run --security-opt seccomp=unconfined $image grep Seccomp: /proc/self/status'
echo '{"defaultAction": "SCMP_ACT_ALLOW", "syscalls": [{"names": ["mkdir", "mkdirat"], "action": "SCMP_ACT_ERRNO", "errnoRet": 13}]}' > "$home/profile.json"
check 'a profile' 'denied' '! run --security-opt seccomp="$home/profile.json" $image mkdir /tmp/x'
echo '{"defaultAction": "SCMP_ACT_ALLOW", "syscalls": [{"names": ["mkdir", "mkdirat"], "action": "SCMP_ACT_KILL_PROCESS"}]}' > "$home/kills.json"
check 'a profile that kills' '^159$' 'run --security-opt seccomp="$home/kills.json" $image mkdir /tmp/x || echo $?'
check 'masked paths' '^0$' 'run $image sh -c "cat /proc/kcore | wc -c"'
check 'one more masked path' '^0$' 'run --security-opt mask=/etc/secret $image sh -c "cat /etc/secret | wc -c"'
check 'unmasked paths' '^0$' 'run --security-opt unmask=ALL $image sh -c "grep -c kcore /proc/mounts || true"'
check 'read-only paths' 'Read-only' '! run $image sh -c "echo 1 > /proc/sys/kernel/domainname"'
check 'processes outside' '^1$' 'run $image sh -c "ls -d /proc/[0-9]* | head -n1 | grep -c /proc/1\$"'
check 'processes of the host' 'same' '[ "$(run --pid host $image readlink /proc/self/ns/pid)" = "$(readlink /proc/self/ns/pid)" ] && echo same'
if root || [ -e /dev/mqueue ]; then
    check 'objects of the host' 'same' '[ "$(run --ipc host $image readlink /proc/self/ns/ipc)" = "$(readlink /proc/self/ns/ipc)" ] && echo same'
else
    skip 'objects of the host' 'podman binds /dev/mqueue, which is not here'
fi
check 'the name of the host' 'same' '[ "$(run --uts host $image readlink /proc/self/ns/uts)" = "$(readlink /proc/self/ns/uts)" ] && echo same'
check 'processes of another container' 'sleep 100' 'podman run -d --name other --network none $image sleep 100 >/dev/null; run --pid container:other $image ps'
check 'a setting' '^5000$' 'run --sysctl net.ipv4.ip_unprivileged_port_start=5000 $image cat /proc/sys/net/ipv4/ip_unprivileged_port_start'
check 'a setting of the host' 'not.*(namespace|allowed|permitted)|sysctl' '! run --sysctl vm.swappiness=1 $image true'
check 'a device' '^character special file$' 'run --device /dev/full $image stat -c "%F" /dev/full'
if root; then
    check 'a device by another name' '^hi$' 'run --device /dev/full:/dev/mine:r $image sh -c "test -c /dev/mine && echo hi"'
    check 'a device that is not to be had' 'not permitted' '! run --cap-add mknod $image sh -c "mknod /tmp/k c 1 12 && cat /tmp/k"'
    check 'the null device stays whose it is' '^0 0 666$' 'run --uidmap 0:100000:65536 $image true; stat -c "%u %g %a" /dev/null'
fi
