# Pods, with an infra container whose image podman builds here.
check 'a pod' '^Running$' 'podman pod create --name pod --share net,ipc,uts --hostname pods -p 18081:80 >/dev/null; podman pod start pod >/dev/null; podman pod inspect -f "{{.State}}" pod'
check 'one network' '^1$' 'for i in 1 2; do podman run --rm --pod pod $image readlink /proc/self/ns/net; done | sort -u | wc -l'
check 'one name' '^pods$' 'podman run --rm --pod pod $image hostname'
check 'one talks to another' '^pong$' 'podman run -d --pod pod --name server $image sh -c "while :; do echo pong | nc -l -p 80; done" >/dev/null; soon sh -c "podman run --rm --pod pod $image nc 127.0.0.1 80 </dev/null | grep pong > $home/pong"; cat "$home/pong"'
check 'a port of the pod' '^pong$' 'rm "$home/pong"; soon sh -c "busybox nc -w 2 127.0.0.1 18081 </dev/null | grep pong > $home/pong"; cat "$home/pong"'
check 'ps' '^pod 2$' 'podman pod ps --format "{{.Name}} {{.NumberOfContainers}}"'
check 'top' 'nc|sh' 'podman pod top pod'
check 'processes shared' ' sleep 99$' 'podman pod create --name seen --share pid >/dev/null; podman run -d --pod seen --network none $image sleep 99 >/dev/null 2>&1 || podman run -d --pod seen $image sleep 99 >/dev/null; podman run --rm --pod seen $image ps'
root && check 'pause' '^Paused$' 'podman pod pause pod >/dev/null; podman pod inspect -f "{{.State}}" pod; podman pod unpause pod >/dev/null'
check 'stop' '^Exited$' 'podman pod stop -t 1 pod >/dev/null 2>&1; podman pod inspect -f "{{.State}}" pod'
check 'start' '^Running$' 'podman pod start pod >/dev/null; podman pod inspect -f "{{.State}}" pod'
check 'rm' '^0$' 'podman pod rm -f -t 0 pod seen >/dev/null; podman pod ps -q | wc -l'
cat > "$home/pod.yaml" <<YAML
apiVersion: v1
kind: Pod
metadata:
  name: played
  annotations:
    dev.landstrip.policy: $place/user/policy.json
spec:
  hostname: played
  restartPolicy: Never
  containers:
  - name: first
    image: $image
    command: [sh, -c, "hostname > /ws/name; cat /ws/name; cat /etc/secret; sleep 100"]
    securityContext:
      readOnlyRootFilesystem: false
      capabilities: {drop: [ALL]}
    volumeMounts: [{name: shared, mountPath: /ws}]
  - name: second
    image: $image
    command: [sleep, "100"]
    volumeMounts: [{name: shared, mountPath: /ws}]
  volumes:
  - name: shared
    emptyDir: {}
YAML
echo '{"filesystem": {"allowWrite": ["/ws", "/tmp"], "denyRead": ["/etc/secret"]}}' > "$home/policy.json"
sed -i "s|$place/user/policy|$home/policy|" "$home/pod.yaml"
check 'play' 'played' 'podman kube play "$home/pod.yaml" 2>&1 || podman play kube "$home/pod.yaml"; podman pod ps'
check 'what was played runs' '^played$' 'soon sh -c "podman logs played-first | grep played"; podman logs played-first'
check 'it shares what it should' '^played$' 'podman exec played-second cat /ws/name'
if [ "$name" = landstrip-oci ]; then
    check 'it is under the policy of its annotation' "/etc/secret'?: Permission denied" 'podman logs played-first 2>&1'
fi
check 'and ends' '^0$' 'podman play kube --down "$home/pod.yaml" >/dev/null; podman pod ps -q | wc -l'
