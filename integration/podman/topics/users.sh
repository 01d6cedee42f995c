# Users, and user namespaces.
check 'a user by number' 'uid=7.* gid=8' 'run -u 7:8 $image id'
check 'a user by name' 'uid=8.*gid=12' 'run -u mail $image id'
check 'more groups' 'groups=.*77' 'run -u 7:8 --group-add 77 $image id'
check 'no capability for a user' 'CapEff:.0+$' 'run -u 7 $image grep CapEff /proc/self/status'
check 'umask' '^0027$' 'run --umask 0027 $image sh -c umask'
if root; then
    check 'keep-id is for others' 'keep-id is only supported in rootless mode' '! run --userns=keep-id $image id'
    check 'a map' ' 0 +100000 +65536' 'run --uidmap 0:100000:65536 $image cat /proc/self/uid_map'
    check 'a user in a map' 'uid=7.* gid=8' 'run --uidmap 0:100000:65536 -u 7:8 $image id'
    check 'exec in a map' 'uid=7' 'podman run -d --name mapped --uidmap 0:100000:65536 --network none $image sleep 100 >/dev/null; podman exec -u 7 mapped id'
    check 'limits in a map' '^40$' 'run --uidmap 0:100000:65536 --pids-limit 40 $image sh -c "cat /sys/fs/cgroup/pids/pids.max || cat /sys/fs/cgroup/pids.max" 2>/dev/null'
else
    check 'keep-id' 'uid=23001.* gid=23001' 'run --userns=keep-id $image id'
    check 'keep-id owns what it makes' '^23001 23001$' 'mkdir -p "$home/own"; run --userns=keep-id -v "$home/own:/v" $image touch /v/f; stat -c "%u %g" "$home/own/f"'
    check 'root owns what it makes' '^23001 23001$' 'run -v "$home/own:/v" $image touch /v/r; stat -c "%u %g" "$home/own/r"'
    check 'a user owns what it makes' '^2300006$' 'chmod 777 "$home/own"; run -u 7 -v "$home/own:/v" $image touch /v/s; stat -c "%u" "$home/own/s"'
    check 'a map' ' 0 +1 +5000' 'run --uidmap 0:1:5000 $image cat /proc/self/uid_map'
    check 'nomap' 'uid=0' 'run --userns=nomap $image id'
fi
check 'auto' ' 0 +[1-9][0-9]* +[1-9]' 'run --userns=auto $image cat /proc/self/uid_map'
check 'auto, of a size' ' 0 +[1-9][0-9]* +4096' 'run --userns=auto:size=4096 $image cat /proc/self/uid_map'
