# The network of a policy, in the namespaces that podman makes. The host has one page, and one that no line opens.
[ "$name" = landstrip-oci ] || return
mkdir -p "$home/www"
echo hello > "$home/www/index.html"
servers=()
for port in 18090 18091 18095; do
    busybox httpd -f -p "127.0.0.1:$port" -h "$home/www" &
    servers+=($!)
done
network='{"hostPorts": [18090], "allowedDomains": ["a.localhost:18091"], "expose": [80]}'
echo "{\"filesystem\": {\"allowWrite\": [\"/ws\"]}, \"network\": $network}" > "$home/network.json"
echo '{"network": {"hostPorts": [18090]}}' > "$home/closed.json"
cat > "$home/get" <<'SH'
# Of a page what is printed, directly or by the proxy in SOCKS5. By hand: a static wget takes libraries to look an
# address up.
page() { tr -cd ' -~\n' | tail -n 1; }
direct() { printf 'GET / HTTP/1.0\r\n\r\n' | nc 127.0.0.1 "$1" 2>&1 | page; }
asked() { printf '\5\1\0\5\1\0\3\13'"$1"'\106\253GET / HTTP/1.0\r\n\r\n' | nc 127.0.0.1 "${http_proxy##*:}" 2>&1 | page; }
# The same by a name that is looked up, in no proxy's way.
named() {
    at=$(timeout 10 nslookup "$1" 2>/dev/null | grep -o '198[.]18[.][0-9.]*' | head -n 1)
    [ -n "$at" ] || { echo none; return; }
    printf 'GET / HTTP/1.0\r\n\r\n' | nc "$at" 18091 2>&1 | page
}
echo "$(direct 18090), $(asked a.localhost), $(direct 18095), ($(asked b.localhost)), $(named a.localhost), $(named b.localhost)"
SH
networked() { podman --runtime-flag "policy=$home/network.json" run --rm -v "$home/get:/get" "$@"; }
export -f networked
all='^hello, hello, .*denied, [(][)], hello, none$'
check 'control: the loopback of the host is not the container'"'"'s' 'refused, .*, .*refused, .*none, none$' 'podman run --rm -v "$home/get:/get" $image sh /get'
check 'the default network' "$all" 'networked $image sh /get'
check 'no network' "$all" 'networked --network none $image sh /get'
check 'of the host' "$all" 'networked --network host $image sh /get'
check 'another name server' "$all" 'networked --dns 203.0.113.53 $image sh /get'
check 'no capability' "$all" 'networked --cap-drop all -u 7:8 $image sh /get'
check 'podman'"'"'s own proxy variables' "$all" 'networked --env http_proxy=http://127.0.0.1:1 $image sh /get'
pong='while :; do echo pong | nc -l -p 80; done'
export pong
check 'a published port' '^pong$' 'podman --runtime-flag "policy=$home/network.json" --runtime-flag "traps=$home/network.traps" run -d --name exposed -v "$home/get:/get" -p 127.0.0.1:18092:80 $image sh -c "$pong" >/dev/null; soon sh -c "busybox nc -w 2 127.0.0.1 18092 </dev/null | grep pong > $home/pong"; cat "$home/pong"'
check 'one that the policy does not open' 'denied' 'podman --runtime-flag "policy=$home/closed.json" run -d --name closed -p 127.0.0.1:18093:80 $image sh -c "nc -l -p 80; sleep 99" >/dev/null; soon sh -c "podman logs closed 2>&1 | grep -i denied"; podman logs closed 2>&1; busybox nc -w 2 127.0.0.1 18093 </dev/null || true'
check 'exec' "$all" 'podman exec exposed sh /get'
check 'exec as another user' "$all" 'podman exec -u 7 exposed sh /get'
check 'traps' 'b.localhost:18091' 'soon grep -q b.localhost "$home/network.traps"; cat "$home/network.traps"'
if root; then
    check 'after a pause' "$all" 'podman pause exposed >/dev/null; podman unpause exposed >/dev/null; podman exec exposed sh /get'
fi
check 'restart' "$all" 'podman --runtime-flag "policy=$home/network.json" --runtime-flag "traps=$home/network.traps" restart -t 0 exposed >/dev/null 2>&1; podman exec exposed sh /get'
check 'kill' '^137$' 'podman kill exposed >/dev/null; podman wait exposed >/dev/null; status exposed ExitCode'
check 'a pod' "$all" 'podman pod create --name hosts >/dev/null; for i in 1 2; do podman --runtime-flag "policy=$home/network.json" run -d --pod hosts --name "in$i" -v "$home/get:/get" $image sleep 99 >/dev/null; done; podman exec in1 sh /get'
check 'another one in it' "$all" 'podman exec in2 sh /get'
check 'one without a policy in it' 'refused, .*, .*refused' 'podman run --rm --pod hosts -v "$home/get:/get" $image sh /get'
check 'no proxy of the host is a failure' 'no proxy is reached' 'echo "{\"network\": {\"httpProxyPort\": 18099}}" > "$home/absent.json"; ! podman --runtime-flag "policy=$home/absent.json" run --rm --network none $image true'
check 'an annotation opens nothing of the host' 'refused, .*denied' 'podman run --rm -v "$home/get:/get" --annotation "dev.landstrip.policy=$home/network.json" $image sh /get'
kill "${servers[@]}"
wait "${servers[@]}" 2>/dev/null
podman pod rm -a -f -t 0 >/dev/null 2>&1
podman rm -a -f -t 0 >/dev/null 2>&1
check 'no helper stays' '^none$' 'soon sh -c "! cat /proc/[0-9]*/comm 2>/dev/null | grep -qxE \"network|sockets\""; echo none'
