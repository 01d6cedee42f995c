# By ctr, over the shim that calls runtimes as runc.
check 'runs' '^hi$' 'run $image one echo hi'
check 'the exit code' '^7$' 'run $image one sh -c "exit 7" || echo $?'
check 'standard input' '^typed$' 'echo typed | run $image one sh -c "read x; echo \$x"'
check 'a terminal' '/dev/pts/0' 'pty "run -t $image one tty"'
check 'no such program' 'no such file|not found' '! run $image one /nowhere'
check 'a name that is taken again' '^hi$' 'run $image one echo hi'
check 'a variable and a directory' '^b /tmp$' 'run --env A=b --cwd /tmp $image one sh -c "echo \$A \$(pwd)"'
check 'a mount' '^kept$' 'mkdir -p "$place/v"; run --mount "type=bind,src=$place/v,dst=/v,options=rbind:rw" $image one sh -c "echo kept > /v/f"; cat "$place/v/f"'
check 'a read-only root' 'Read-only' '! run --read-only $image one touch /x'
check 'a profile' 'Seccomp:.2' 'run --seccomp $image one grep Seccomp: /proc/self/status'
check 'no new privileges' 'NoNewPrivs:.1' 'run $image one grep NoNewPrivs /proc/self/status'
check 'privileged' 'CapEff:.0*1ff' 'run --privileged $image one grep CapEff /proc/self/status'
check 'the network of the host' 'same' '[ "$(run --net-host $image one readlink /proc/self/ns/net)" = "$(readlink /proc/self/ns/net)" ] && echo same'
check 'memory and processor time' '^67108864 50000' 'start --cgroup /landstrip-test/one --memory-limit 67108864 --cpus 0.5 $image one sleep 100; read -r memory < <(cat /sys/fs/cgroup/{memory/,}landstrip-test/one/memory.{limit_in_bytes,max} 2>/dev/null); read -r cpu < <(cat /sys/fs/cgroup/{cpu/,}landstrip-test/one/cpu.{cfs_quota_us,max} 2>/dev/null); echo "$memory $cpu"; over one'
check 'the end of memory' '^137$' 'run --memory-limit 16777216 $image one tail /dev/zero || echo $?'
check 'a device' 'character' 'run --device /dev/full $image one stat -c %F /dev/full'

check 'detached' 'RUNNING' 'start $image two sh -c "trap \"exit 3\" TERM; while :; do sleep 0.1; done"; ctr task ls | grep "^two"'
check 'exec' '^in two$' 'ctr task exec --exec-id a two echo in two'
check 'the exit code of exec' '^9$' 'ctr task exec --exec-id a two sh -c "exit 9" || echo $?'
check 'input of exec' '^typed$' 'echo typed | ctr task exec --exec-id a two sh -c "read x; echo \$x"'
check 'exec with a terminal' '/dev/pts/' 'pty "ctr task exec -t --exec-id a two tty"'
check 'exec with a user and a directory' 'uid=8.*' 'ctr task exec --user mail --cwd /tmp --exec-id a two sh -c "[ \$(pwd) = /tmp ] && id"'
check 'exec of what is not there' 'no such file|not found' '! ctr task exec --exec-id a two /nowhere'
check 'ten at once' '^10$' 'for i in $(seq 10); do ctr task exec --exec-id "x$i" two echo "at once" & done | grep -c "at once"; wait'
check 'ps' '[0-9]' 'ctr task ps two | tail -n1'
check 'metrics' 'memory' 'ctr task metrics two'
check 'pause' 'PAUSED' 'ctr task pause two; ctr task ls | grep "^two"'
check 'resume' 'RUNNING' 'ctr task resume two; ctr task ls | grep "^two"'
if [ "$name" = landstrip-oci ]; then
    check 'a checkpoint is refused' 'not supported' '! ctr task checkpoint two 2>&1'
    check 'and nothing happened to it' 'RUNNING' 'ctr task ls | grep "^two"'
fi
check 'a signal' 'STOPPED' 'ctr task kill -s TERM two; soon is two STOPPED; ctr task ls | grep "^two"; over two'
check 'killed' 'STOPPED' 'start $image three sleep 1000; ctr task kill -s KILL three; soon is three STOPPED; ctr task ls | grep "^three"; over three'
check 'everything is killed' 'STOPPED' 'start $image four sh -c "sleep 99 & sleep 99"; ctr task kill -a -s KILL four; soon is four STOPPED; ctr task ls | grep "^four"; over four'
check 'removed by force' '^0$' 'start $image five sleep 1000; ctr task rm -f five >/dev/null; ctr container rm five; ctr container ls -q | grep -c five || true'
check 'ten containers at once' '^10$' 'for i in $(seq 10); do run $image "m$i" echo "at once" & done | grep -c "at once"; wait'

check 'control: nothing is fenced without a policy' '^written secret$' 'run $image one sh -c "echo written > /data/f && echo \$(cat /data/f /etc/secret)"'
if [ "$name" = landstrip-oci ]; then
    check 'a policy: writing' '^inside$' 'fenced $image one sh -c "echo inside > /ws/f; cat /ws/f"'
    check 'a policy: writing outside' 'denied' '! fenced $image one sh -c "echo x > /data/f"'
    check 'a policy: reading' 'denied' '! fenced $image one cat /etc/secret'
    check 'a policy: the exit code' '^7$' 'fenced $image one sh -c "exit 7" || echo $?'
    check 'a policy: a terminal' '/dev/pts/0' 'pty "fenced -t $image one tty"'
    check 'a policy: exec' 'denied' 'ctr run -d --runc-binary "$binary" --annotation "dev.landstrip.policy=$place/policy.json" $image six sh -c "trap \"exit 3\" TERM; while :; do sleep 0.1; done"; ! ctr task exec --exec-id a six cat /etc/secret'
    check 'a policy: exec inside' '^hi$' 'ctr task exec --exec-id a six sh -c "echo hi > /ws/x; cat /ws/x"'
    check 'a policy: pause' 'RUNNING' 'ctr task pause six; ctr task resume six; ctr task ls | grep "^six"'
    check 'a policy: a signal' 'STOPPED' 'soon ctr task exec --exec-id a six true; ctr task kill -s TERM six; soon is six STOPPED; ctr task ls | grep "^six"; over six'
    check 'a policy: the end of memory' '^137$' 'fenced --memory-limit 33554432 $image one tail /dev/zero || echo $?'
    mkdir -p "$place/www"
    echo hello > "$place/www/index.html"
    busybox httpd -f -p 127.0.0.1:18090 -h "$place/www" &
    served=$!
    echo '{"network": {"hostPorts": [18090], "allowedDomains": ["a.localhost:18090"]}}' > "$place/network.json"
    # The operator's policy is an option of the runtime, or the host's file.
    printf '#!/bin/sh\nexec %s --policy %s "$@"\n' "$binary" "$place/network.json" > "$place/bin/networked"
    chmod 755 "$place/bin/networked"
    networked() { ctr run --rm --runc-binary "$place/bin/networked" "$@"; }
    export -f networked
    # By hand: a static wget takes libraries to look an address up.
    pages='page() { nc 127.0.0.1 "$1" 2>&1 | tr -cd " -~\n" | tail -n 1; }
        asked() { printf "\5\1\0\5\1\0\3\13$1\106\252GET / HTTP/1.0\r\n\r\n" | page "${http_proxy##*:}"; }
        named() {
            at=$(timeout 10 nslookup "$1" 2>/dev/null | grep -o "198[.]18[.][0-9.]*" | head -n 1)
            [ -n "$at" ] || { echo none; return; }
            printf "GET / HTTP/1.0\r\n\r\n" | nc "$at" 18090 2>&1 | tr -cd " -~\n" | tail -n 1
        }
        echo "$(printf "GET / HTTP/1.0\r\n\r\n" | page 18090), $(asked a.localhost), ($(asked b.localhost)), $(named a.localhost), $(named b.localhost)"'
    export pages
    check 'control: the loopback of the host is not the container'"'"'s' 'refused, .*none, none$' 'run $image one sh -c "$pages"'
    check 'a policy: hosts' '^hello, hello, [(][)], hello, none$' 'networked $image one sh -c "$pages"'
    check 'a policy: hosts in the network of the host' '^hello, hello, [(][)], hello, none$' 'networked --net-host $image one sh -c "$pages"'
    check 'a policy: hosts of exec' '^hello, hello, [(][)], hello, none$' 'ctr run -d --runc-binary "$place/bin/networked" $image seven sleep 99; ctr task exec --exec-id a seven sh -c "$pages"'
    check 'a policy: the end of the helper' '^none$' 'ctr task rm -f seven >/dev/null; ctr container rm seven; soon sh -c "! cat /proc/[0-9]*/comm 2>/dev/null | grep -qx network"; echo none'
    kill "$served"
    check 'a policy that is wrong' 'wrong\.json: line 1: is no policy' '! run --annotation "dev.landstrip.policy=$place/wrong.json" $image one true'
fi
check 'nothing is left' '^0 0$' 'echo $(ctr container ls -q | wc -l) $(ls -A /run/containerd/runc/landstrip-test 2>/dev/null | wc -l)'
