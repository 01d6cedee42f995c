# Networks.
check 'none' '^1$' 'run $image sh -c "ls /sys/class/net | wc -l"'
check 'loopback is up' 'LOOPBACK,UP' 'run $image ip link show lo'
check 'of the host' 'same' '[ "$(podman run --rm --network host $image readlink /proc/self/ns/net)" = "$(readlink /proc/self/ns/net)" ] && echo same'
check 'the default' 'inet 10[.]' 'podman run --rm $image ip addr'
check 'a published port' '^pong$' 'podman run -d --name ponged -p 127.0.0.1:18080:80 $image sh -c "while :; do echo pong | nc -l -p 80; done" >/dev/null; soon sh -c "busybox nc -w 2 127.0.0.1 18080 </dev/null | grep pong > $home/pong"; cat "$home/pong"'
check 'of another container' 'LISTEN' 'soon sh -c "podman run --rm --network container:ponged $image netstat -tln | grep :80"; podman run --rm --network container:ponged $image netstat -tln'
check 'a network of its own' 'inet 10[.]' 'podman network create mine >/dev/null; podman run --rm --network mine $image ip addr; podman network rm mine >/dev/null'
