# The policy in a container. Under the other runtime it is an annotation like any: that nothing is fenced there
# is the control.
echo '{"filesystem": {"allowWrite": ["/ws", "/tmp"], "denyRead": ["/etc/secret"]}}' > "$home/policy.json"
echo '{"filesystem": {"alowWrite": []}}' > "$home/wrong.json"
fenced() { run --annotation "dev.landstrip.policy=$home/policy.json" "$@"; }
export -f fenced
check 'control: nothing is fenced without one' '^written secret$' 'run $image sh -c "echo written > /data/f && echo \$(cat /data/f /etc/secret)"'
if [ "$name" != landstrip-oci ]; then
    check 'control: another runtime fences nothing' '^written secret$' 'fenced $image sh -c "echo written > /data/f && echo \$(cat /data/f /etc/secret)"'
    return
fi
check 'writing inside' '^inside$' 'fenced $image sh -c "echo inside > /ws/f; cat /ws/f"'
check 'writing outside' '/data/f: Permission denied' '! fenced $image sh -c "echo x > /data/f"'
check 'reading' '/etc/secret.*: Permission denied' '! fenced $image cat /etc/secret'
check 'the network' 'nc: .*: Permission denied' '! fenced $image nc 10.0.0.1 80'
check 'the exit code' '^7$' 'fenced $image sh -c "exit 7" || echo $?'
check 'no such program' '^127$' 'fenced $image /nowhere 2>/dev/null || echo $?'
check 'a terminal' '^/dev/pts/0$' 'fenced -t $image tty'
check 'a terminal and input' '^30 90$' 'pty "stty rows 30 cols 90; fenced -it $image sh -c \"\$sized\""'
check 'a user' 'uid=7.* gid=8' 'fenced -u 7:8 $image id'
check 'no capability' 'CapEff:.0+$' 'fenced --cap-drop all $image grep CapEff /proc/self/status'
check 'a read-only root' '/ws/x: Read-only file system' '! fenced --read-only $image touch /ws/x'
check 'a volume' '^kept$' 'mkdir -p "$home/ws"; fenced -v "$home/ws:/ws" $image sh -c "echo kept > /ws/f"; cat "$home/ws/f"'
check 'auto' ' 0 +[1-9][0-9]* +[1-9]' 'fenced --userns=auto $image cat /proc/self/uid_map'
check 'detached' '' 'podman --runtime-flag "traps=$home/traps" run -d --name two --network none --annotation "dev.landstrip.policy=$home/policy.json" $image sh -c "trap \"exit 3\" TERM; touch /ws/ready; while :; do sleep 0.1; done" >/dev/null; soon podman exec two test -e /ws/ready'
check 'exec' '/etc/secret.*: Permission denied' '! podman exec two cat /etc/secret'
check 'exec inside' '^hi$' 'podman exec two sh -c "echo hi > /ws/x; cat /ws/x"'
check 'traps' 'FILESYSTEM_DENIED.*/etc/secret' 'soon grep -q /etc/secret "$home/traps"; cat "$home/traps"'
check 'top' 'sh' 'podman top two comm'
if root; then
    check 'pause' '^paused running$' 'podman pause two >/dev/null; was=$(status two Status); podman unpause two >/dev/null; echo $was $(status two Status)'
    check 'the end of memory' '^137 ' 'podman run --name full --network none -m 32m --memory-swap 32m --annotation "dev.landstrip.policy=$home/policy.json" $image tail /dev/zero || code=$?; echo ${code:-0} $(status full OOMKilled)'
    check 'a map' ' 0 +100000 +65536' 'fenced --uidmap 0:100000:65536 $image cat /proc/self/uid_map'
fi
check 'stop' '^3$' 'podman stop -t 20 two >/dev/null; status two ExitCode'
check 'start again' '/etc/secret.*: Permission denied' 'podman start two >/dev/null; ! podman exec two cat /etc/secret'
check 'kill' '^137$' 'podman kill two >/dev/null; podman wait two >/dev/null; status two ExitCode'
check 'one that is wrong' 'wrong\.json: line 1: is no policy' '! run --annotation "dev.landstrip.policy=$home/wrong.json" $image true'
check 'one that is not there' 'nowhere\.json: No such file' '! run --annotation "dev.landstrip.policy=$home/nowhere.json" $image true'

# What an image says of itself: podman passes it on, and it may tighten.
annotated() { # NAME ANNOTATION
    local c
    c=$(buildah from --pull-never "$image")
    buildah config --annotation "$2" "$c"
    buildah commit -q --rm "$c" "localhost/$1" >/dev/null
}
export -f annotated
check 'control: annotations of an image arrive' 'denied' 'annotated closed dev.landstrip.policy=@readonly; ! run localhost/closed sh -c "echo x > /data/f"'
check 'an image names no place for traps' 'annotations\.dev\.landstrip\.traps: .*forged' 'annotated forger "dev.landstrip.traps=$home/forged"; ! fenced localhost/forger sh -c "echo x > /data/f"; test ! -e "$home/forged"'
check 'an image accepts nothing' 'annotations\.dev\.landstrip\.accept: is not taken' 'annotated accepts dev.landstrip.accept=signals; ! fenced localhost/accepts true'
echo '{"filesystem": {"allowWrite": ["/"]}}' > "$home/open.json"
annotated_open() { [ -e "$home/opened" ] || annotated opens "dev.landstrip.policy=$home/open.json"; touch "$home/opened"; }
export -f annotated_open
check 'control: a policy of an image is one where nobody else has one' '^written$' 'annotated_open; run localhost/opens sh -c "echo written > /data/f; cat /data/f"'
check 'an image opens nothing that the caller closes' 'may only tighten' 'annotated_open; ! podman --runtime-flag "policy=$home/policy.json" run --rm --network none localhost/opens sh -c "echo written > /data/f"'

# One broker a container: what podman executes in it meets the program, as without a policy.
check 'another user' '^8 8$' 'echo $(fenced $image sh -c "chmod 777 /ws; su mail -c \"cd /ws; echo x > f; stat -c %u f; id -u\"")'
check 'a health check' '^healthy$' 'podman run -d --name three --network none --annotation "dev.landstrip.policy=$home/policy.json" --health-cmd "kill -0 1 && echo x > /ws/h" --health-interval 1h $image sh -c "trap \"echo got; exit 3\" TERM; while :; do sleep 0.1; done" >/dev/null 2>&1; podman healthcheck run three && echo healthy'
check 'executed as a user' '^7$' 'podman exec -u 7 three id -u'
check 'executed with a terminal' '^ok$' 'podman exec -t three sh -c "echo ok > /dev/tty"'
root && check 'executed after a pause' '^7$' 'podman pause three >/dev/null; podman unpause three >/dev/null; podman exec -u 7 three id -u'
check 'copying' '^secret$' 'podman cp three:/etc/secret "$home/copy"; cat "$home/copy"'
check 'restart' '^healthy$' 'podman restart -t 5 three >/dev/null 2>&1; podman healthcheck run three && echo healthy'
check 'an executed kill' '^3 got got$' 'podman exec three kill 1; podman wait three >/dev/null; echo $(status three ExitCode; podman logs three)'
