# By the interface that the kubelet uses. A pod's annotation is what names its policy.
# The host's file of a container's cgroup: that of version 1, or of version 2.
limit() { # ID, CONTROLLER AND FILE OF VERSION 1, FILE OF VERSION 2
    local pid path
    pid=$(ctr -n k8s.io task ls | awk -v id="$1" '$1 == id { print $2 }')
    path=$(grep -E ":${2%/*}:" "/proc/$pid/cgroup" | cut -d: -f3)
    [ -n "$path" ] && cat "/sys/fs/cgroup/${2%/*}$path/${2##*/}" ||
        cat "/sys/fs/cgroup$(grep '^0::' "/proc/$pid/cgroup" | cut -d: -f3)/$3"
}
state() { cri status "$1" | cut -d' ' -f1; }
ended() { [ "$(state "$1")" = exited ]; }
export -f limit state ended
pod=$place/pod.$name one=$place/one.$name
export pod one
check 'a pod' '[0-9a-f]{64}' 'cri pod "pod-$handler" "$handler" > "$pod"; cat "$pod"'
check 'a container' 'running 0' 'cri container "$(cat $pod)" $image memory=67108864 -- sh -c "trap \"exit 3\" TERM; touch /tmp/ready; while :; do sleep 0.1; done" > "$one"; cri status "$(cat $one)"'
check 'exec' '^in one$' 'cri exec "$(cat $one)" echo in one'
check 'the exit code of exec' '^9$' 'cri exec "$(cat $one)" sh -c "exit 9" || echo $?'
check 'exec of what is not there' 'not found|no such file' '! cri exec "$(cat $one)" nowhere'
check 'a limit' '^67108864$' 'limit "$(cat $one)" memory/memory.limit_in_bytes memory.max'
check 'update' '^104857600$' 'cri update "$(cat $one)" 104857600; limit "$(cat $one)" memory/memory.limit_in_bytes memory.max'
check 'stats' 'memory [1-9]' 'cri stats "$(cat $one)"'
check 'stop' 'exited 3' 'soon cri exec "$(cat $one)" test -e /tmp/ready; cri stop "$(cat $one)" 20; cri status "$(cat $one)"'
check 'rm' '' 'cri rm "$(cat $one)"'
check 'a user' '^uid=7' 'cri container "$(cat $pod)" $image user=7 -- sleep 100 > "$one"; cri exec "$(cat $one)" id'
check 'who does not listen is killed' 'exited 137' 'cri stop "$(cat $one)" 1; cri status "$(cat $one)"; cri rm "$(cat $one)"'
check 'a read-only root' 'Read-only' 'cri container "$(cat $pod)" $image readonly=1 -- sleep 100 > "$one"; ! cri exec "$(cat $one)" touch /x; cri stop "$(cat $one)" 0; cri rm "$(cat $one)"'
check 'the end of memory' 'exited 137' 'cri container "$(cat $pod)" $image memory=16777216 -- tail /dev/zero > "$one"; soon ended "$(cat $one)"; cri status "$(cat $one)"; cri rm "$(cat $one)"'
check 'no such program' 'not found|no such file' '! cri container "$(cat $pod)" $image -- nowhere > "$one"; cri rm "$(cat $one)"'
check 'control: nothing is fenced without a policy' '^secret$' 'cri container "$(cat $pod)" $image -- sleep 100 > "$one"; cri exec "$(cat $one)" cat /etc/secret; cri stop "$(cat $one)" 0; cri rm "$(cat $one)"'
check 'the end of the pod' '' 'cri stop-pod "$(cat $pod)"; cri rm-pod "$(cat $pod)"'
if [ "$name" = landstrip-oci ]; then
    check 'a pod with a policy' '' 'cri pod fenced landstrip "dev.landstrip.policy=$place/policy.json" > "$pod"'
    check 'a container in it' 'running' 'cri container "$(cat $pod)" $image "dev.landstrip.policy=$place/policy.json" -- sleep 100 > "$one"; cri status "$(cat $one)"'
    check 'it is fenced' 'denied' '! cri exec "$(cat $one)" cat /etc/secret'
    check 'it can write where it may' '^hi$' 'cri exec "$(cat $one)" sh -c "echo hi > /ws/x; cat /ws/x"'
    check 'stats under a policy' 'memory [1-9]' 'cri stats "$(cat $one)"'
    check 'the end of the pod with a policy' '' 'cri stop-pod "$(cat $pod)"; cri rm-pod "$(cat $pod)"'
fi
check 'nothing is left' '^0$' 'ctr -n k8s.io container ls -q | wc -l'
