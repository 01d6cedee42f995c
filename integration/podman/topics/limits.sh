# Limits of the container, and of its processes.
check 'open files' '^512 1024$' 'run --ulimit nofile=512:1024 --ulimit nproc=1000:2000 $image sh -c "echo \$(ulimit -Sn) \$(ulimit -Hn)"'
check 'a core of no size' '^0$' 'run --ulimit core=0:0 --ulimit nofile=512:1024 --ulimit nproc=1000:2000 $image sh -c "ulimit -c"'
check 'the score of memory' '^500$' 'run --oom-score-adj 500 $image cat /proc/self/oom_score_adj'
check 'shared memory' '4\.0M' 'run --shm-size 4m $image df -h /dev/shm'
if ! root; then
    skip 'memory, processes, processors' 'an ordinary user has no cgroup here'
    return
fi
value() { # FILE OF VERSION 1, OF VERSION 2
    v1 && echo "/sys/fs/cgroup/$1" || echo "/sys/fs/cgroup/$2"
}
memory=$(value memory/memory.limit_in_bytes memory.max) pids=$(value pids/pids.max pids.max)
cpu=$(value cpu/cpu.cfs_quota_us cpu.max) shares=$(value cpu/cpu.shares cpu.weight)
set=$(value cpuset/cpuset.cpus cpuset.cpus)
export memory pids cpu shares set
check 'memory' '^67108864$' 'run -m 64m $image cat $memory'
# On version 1 conmon does not see why, whatever the runtime.
ended='^137 true$'
v1 && ended='^137 '
check 'the end of memory' "$ended" 'podman run --name full --network none -m 16m --memory-swap 16m $image tail /dev/zero || code=$?; echo ${code:-0} $(status full OOMKilled)'
check 'processes' '^40$' 'run --pids-limit 40 $image cat $pids'
check 'the end of processes' 'fork' '! run --pids-limit 10 $image sh -c "for i in \$(seq 30); do sleep 9 & done"'
check 'processor time' '^50000' 'run --cpus 0.5 $image cat $cpu'
check 'processor shares' '^(512|20)$' 'run --cpu-shares 512 $image cat $shares'
check 'processors' '^0$' 'run --cpuset-cpus 0 $image cat $set'
check 'update' '^104857600 30$' 'podman run -d --name up --network none -m 64m --pids-limit 30 $image sleep 100 >/dev/null; podman update -m 100m up >/dev/null; podman exec up cat $memory $pids | xargs'
check 'the container that exec is in' '^1$' 'podman exec up cat /proc/1/cgroup > "$home/a"; podman exec up cat /proc/self/cgroup | cmp - "$home/a" && echo 1'
check 'its own view of cgroups' '^1$' 'run --cgroupns=private $image cut -d: -f3 /proc/self/cgroup | sort -u | grep -cx /'
