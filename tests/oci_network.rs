//! The network of containers under a policy: served from outside, in whatever network namespace they have.
//! Names below `localhost` lead to the host's loopback without DNS, so they stand for hosts.
#![cfg(target_os = "linux")]

mod support;

use serde_json::{Value, json};
use std::io::{BufRead, Read};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::Stdio;
use std::thread;
use std::time::Duration;
use support::have::have;
use support::net::answering;
use support::networked::{
    containers, helper, helpers, in_network, init, kill, place, shell, traps,
};
use support::place::{Answer, BUSYBOX, Waiting, id, ready};

const PATIENCE: Duration = Duration::from_secs(20);

/// A port where nobody listens now.
fn free() -> u16 {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("bind");
    listener.local_addr().expect("an address").port()
}

/// A line of shell that gets the answer of a server without any proxy. By hand: busybox's wget, which is static,
/// takes libraries to look even an address up.
fn direct(address: &str, port: u16) -> String {
    format!("printf 'GET / HTTP/1.0\\r\\n\\r\\n' | busybox nc {address} {port} 2>&1")
}

/// The same by the proxy that the environment names, in SOCKS5.
fn by_proxy(host: &str, port: u16) -> String {
    let (length, [high, low]) = (host.len(), port.to_be_bytes());
    let request = format!("\\5\\1\\0\\5\\1\\0\\3\\{length:03o}{host}\\{high:03o}\\{low:03o}");
    format!(
        "printf '{request}GET / HTTP/1.0\\r\\n\\r\\n' |
        busybox nc 127.0.0.1 ${{http_proxy##*:}} 2>&1 | busybox tr -cd ' -~\\n'"
    )
}

#[test]
fn ports_of_the_host_are_reached_in_any_network_namespace() {
    if !containers("ports of the host") {
        return;
    }
    let (port, other) = (answering("hello"), answering("other"));
    let ways = format!(
        "{}; {}; {}; {}",
        direct("127.0.0.1", port),
        direct("[::1]", port),
        direct("0.0.0.0", port),
        direct("127.0.0.1", other)
    );
    let network = json!({"hostPorts": [port]});
    let open = place(Some(&network));
    let answer = shell(&open, &ways);
    assert_eq!(answer.out.matches("hello").count(), 3, "{answer:?}");
    assert!(
        answer.out.contains("Permission denied") && !answer.out.contains("other"),
        "{answer:?}"
    );
    let traps = traps(&open);
    assert_eq!(traps.len(), 1, "{traps:?}");
    assert_eq!(traps[0]["target"], format!("127.0.0.1:{other}"), "{traps:?}");
    // The controls: the host's loopback is not the container's, and is not open without the line.
    let bare = shell(&place(None), &ways).out;
    assert_eq!(bare.matches("Connection refused").count(), 4, "{bare}");
    let closed = shell(&place(Some(&json!({}))), &ways).out;
    assert_eq!(closed.matches("Permission denied").count(), 4, "{closed}");
    // In the host's network namespace.
    if !ready("ports of the host, in its namespace") {
        return;
    }
    let answer = shell(&in_network(place(Some(&network)), None), &ways);
    // The server has no address of IPv6.
    assert_eq!(answer.out.matches("hello").count(), 2, "{answer:?}");
    assert!(
        answer.out.contains("Permission denied") && !answer.out.contains("other"),
        "{answer:?}"
    );
    let bare = shell(&in_network(place(None), None), &ways).out;
    assert!(bare.contains("other"), "the control: {bare}");
}

#[test]
fn a_proxy_of_the_host_has_to_be_there() {
    if !containers("a proxy of the host") {
        return;
    }
    let port = answering("proxied");
    let network = |port: u16| json!({"httpProxyPort": port});
    let answer = shell(&place(Some(&network(port))), &direct("127.0.0.1", port));
    assert!(answer.out.ends_with("proxied"), "{answer:?}");
    let place = place(Some(&network(free())));
    shell(&place, "echo ran").bad("network.httpProxyPort");
    assert_eq!(place.call(&["list", "-q"]).good(), "");
}

#[test]
fn hosts_are_reached_from_outside_the_container() {
    if !containers("hosts") {
        return;
    }
    let port = answering("hello");
    let network =
        json!({"allowedDomains": [format!("a.localhost:{port}"), format!("127.0.0.1:{port}")]});
    let script = format!(
        "{}; echo; {}; echo; {}",
        by_proxy("a.localhost", port),
        direct("127.0.0.1", port),
        by_proxy("b.localhost", port)
    );
    let open = place(Some(&network));
    let answer = shell(&open, &script);
    assert_eq!(answer.out.matches("hello").count(), 2, "{answer:?}");
    let traps = traps(&open);
    assert_eq!(traps.len(), 1, "{traps:?}");
    let target = format!("b.localhost:{port}");
    assert_eq!(traps[0]["target"], target, "{traps:?}");
    assert_eq!(traps[0]["arguments"]["protocol"], "socks5");
    assert_eq!(traps[0]["suggested_grant"], json!({"allowedDomains": target}));
    assert!(traps[0]["process"]["pid"].as_i64().is_some_and(|pid| pid > 0), "{traps:?}");
    // The control: what is not listed is not reached by its address.
    let closed = shell(&place(Some(&json!({"allowedDomains": ["x.example"]}))), &script);
    assert!(!closed.out.contains("hello"), "{closed:?}");
    if ready("hosts, in the host's namespace") {
        let answer = shell(&in_network(place(Some(&network)), None), &script);
        assert_eq!(answer.out.matches("hello").count(), 2, "{answer:?}");
    }
}

#[test]
fn programs_and_commands_are_told_of_the_proxy() {
    if !ready("the environment") {
        return;
    }
    let count = "busybox env | grep -ci '^[a-z]*_proxy='; true";
    let counted = |network: Value| {
        let place = place(Some(&network));
        let own = shell(&place, count).out.trim().to_owned();
        let running = place.waiting();
        let guest = running.sh(count).trim().to_owned();
        let other = running.exec(&["--user", "7", &running.id, "sh", "-c", count]);
        (own, guest, other)
    };
    let hosts = json!(["a.localhost"]);
    for (network, told) in [
        (json!({"allowedDomains": hosts}), "8"),
        (json!({"allowedDomains": hosts, "proxyEnvironment": false}), "0"),
        (json!({"hostPorts": [free()]}), "0"),
    ] {
        let (own, guest, other) = counted(network.clone());
        assert_eq!((own.as_str(), guest.as_str()), (told, told), "{network}");
        assert_eq!(other.good().trim(), told, "{network}");
    }
}

/// Whether the launcher of the container serves them, or one of their own.
#[test]
fn commands_have_the_network_of_the_container() {
    if !ready("commands") {
        return;
    }
    let (port, other) = (answering("hello"), answering("other"));
    let network = json!({"allowedDomains": [format!("a.localhost:{port}")], "hostPorts": [port]});
    let script = format!(
        "{}; echo; {}; echo; {}; echo; {}",
        by_proxy("a.localhost", port),
        direct("127.0.0.1", port),
        by_proxy("b.localhost", other),
        direct("127.0.0.1", other),
    );
    let held = |answer: Answer| {
        assert_eq!(answer.out.matches("hello").count(), 2, "{answer:?}");
        assert!(answer.out.contains("denied") && !answer.out.contains("other"), "{answer:?}");
    };
    let mut place = place(Some(&network));
    let running = place.waiting();
    held(running.exec(&[&running.id, "sh", "-c", &script]));
    held(running.exec(&["--user", "7", &running.id, "sh", "-c", &script]));
    let by_guests = traps(running.place).len();
    assert_eq!(by_guests, 4);
    drop(running);
    // The launcher may not act as anybody else: then a command has its own.
    place.spec["process"]["capabilities"] = json!({});
    place.spec["process"]["user"] = json!({"uid": 7, "gid": 7});
    let running = place.waiting();
    held(running.exec(&["--user", "8", &running.id, "sh", "-c", &script]));
    held(running.exec(&[&running.id, "sh", "-c", &script]));
    // One that joined before the program was started.
    let id = &id();
    place.program(&["sleep", "1000"]).call(&["create", "-b", ".", id]).good();
    held(place.call(&["exec", id, "sh", "-c", &script]));
    place.call(&["delete", "--force", id]).good();
}

/// A server on all addresses is one in the container's own network namespace, which the engine publishes.
#[test]
fn servers_have_the_addresses_of_the_container() {
    if !ready("servers") {
        return;
    }
    let port = free();
    // The address that it listens on, in hexadecimal digits; otherwise why it does not.
    let serve = |port: u16| {
        let listening = format!(
            "busybox awk '$4 == \"0A\" && $2 ~ /:{port:04X}$/ {{print $2}}' /proc/net/tcp /proc/net/tcp6"
        );
        format!(
            "busybox nc -l -p {port} > /ws/said 2>&1 < /dev/null &
            until [ -n \"$({listening})\" ] || ! kill -0 $! 2> /dev/null; do sleep 0.05; done
            {listening}; cat /ws/said; kill $! 2> /dev/null; true"
        )
    };
    let (all, none) = (format!("00000000:{port:04X}\n"), "denied");
    for (network, other) in
        [(json!({"allowLocalBinding": true}), true), (json!({"expose": [port]}), false)]
    {
        let own = place(Some(&network));
        let answer = shell(&own, &serve(port));
        let is_loopback = answer.out.contains("7F:");
        assert!(answer.out.ends_with(&all) && !is_loopback, "{network}: {answer:?}");
        let answer = shell(&own, &serve(port ^ 1));
        assert_eq!(answer.out.contains(none), !other, "{network}: {answer:?}");
        // A run without a namespace has loopback.
        let shared = in_network(place(Some(&network)), None);
        let answer = shell(&shared, &serve(port));
        let loopback = format!("0100007F:{port:04X}\n");
        assert!(answer.out.ends_with(&loopback), "{network}: {answer:?}");
    }
    let closed = shell(&place(Some(&json!({}))), &serve(port));
    assert!(closed.out.contains(none), "{closed:?}");
    let bare = shell(&place(None), &serve(port));
    assert!(bare.out.ends_with(&all), "the control: {bare:?}");
}

/// Containers of a pod share what the policy of each opens, and no more.
#[test]
fn containers_that_share_a_namespace_have_a_helper_each() {
    if !ready("a shared namespace") {
        return;
    }
    let (port, other) = (answering("hello"), answering("other"));
    let network = json!({"hostPorts": [port], "allowedDomains": ["a.localhost"]});
    let first = place(Some(&network));
    let first = first.waiting();
    let namespace = format!("/proc/{}/ns/net", init(&first));
    let script = format!("{}; echo; echo $HTTP_PROXY", direct("127.0.0.1", port));
    let second = in_network(place(Some(&network)), Some(&namespace));
    let said = [first.sh(&script), shell(&second, &script).good()];
    assert!(said.iter().all(|said| said.contains("hello")), "{said:?}");
    let proxies: Vec<&str> = said.iter().filter_map(|said| said.lines().last()).collect();
    assert!(proxies.iter().all(|proxy| proxy.starts_with("http://127.0.0.1:")), "{said:?}");
    assert_ne!(proxies[0], proxies[1], "{said:?}");
    // One with other lines, and one without any policy, which reaches no other's.
    let third = in_network(place(Some(&json!({"hostPorts": [other]}))), Some(&namespace));
    let answer =
        shell(&third, &format!("{}; {}", direct("127.0.0.1", port), direct("127.0.0.1", other)));
    assert!(answer.out.contains("denied") && answer.out.ends_with("other"), "{answer:?}");
    let bare = in_network(place(None), Some(&namespace));
    let through = format!("http_proxy={}; {}", proxies[0], by_proxy("a.localhost", port));
    let answer = shell(&bare, &format!("{through}; {}", direct("127.0.0.1", port)));
    assert!(!answer.out.contains("hello") && answer.out.contains("refused"), "{answer:?}");
    // The control: by the first container's own program that proxy is one.
    assert!(first.sh(&by_proxy("a.localhost", port)).ends_with("hello"));
}

#[test]
fn the_helper_keeps_nothing_and_outlives_create() {
    if !ready("the helper") {
        return;
    }
    let place = place(Some(&json!({"allowedDomains": ["a.localhost"]})));
    let id = id();
    // Whoever waits for the end of what create writes is not kept waiting.
    let mut create = place.program(&["sleep", "1000"]).command(&["create", "-b", ".", &id]);
    let mut create = create.stderr(Stdio::piped()).stdout(Stdio::null()).spawn().expect("create");
    let init = || place.state(&id)["pid"].as_u64().expect("a pid");
    assert!(create.wait().expect("its end").success());
    place.call(&["start", &id]).good();
    let running = Waiting { place: &place, id: id.clone() };
    let helper = helper(&running);
    let link = |what: &str| std::fs::read_link(format!("/proc/{helper}/{what}")).expect("a link");
    let read = |what: &str| std::fs::read_to_string(format!("/proc/{helper}/{what}")).expect(what);
    for fd in std::fs::read_dir(format!("/proc/{helper}/fd")).expect("descriptors").flatten() {
        let to = std::fs::read_link(fd.path()).expect("a link").to_string_lossy().into_owned();
        let known = ["socket:", "anon_inode:", "pipe:", "/dev/null"];
        assert!(known.iter().any(|known| to.starts_with(known)), "{to}");
    }
    assert_eq!(link("cwd"), Path::new("/"));
    for namespace in ["net", "mnt", "pid", "user", "cgroup"] {
        let own = std::fs::metadata(format!("/proc/self/ns/{namespace}")).expect("ours").ino();
        let its = std::fs::metadata(format!("/proc/{helper}/ns/{namespace}")).expect("its").ino();
        assert_eq!(own, its, "{namespace}");
    }
    let status = read("status");
    assert!(status.contains("CapPrm:\t0000000000000000") && status.contains("NoNewPrivs:\t1"));
    // A session of its own.
    let stat = read("stat");
    let session = stat.rsplit(')').next().expect("fields").split_whitespace().nth(3);
    assert_eq!(session, Some(helper.to_string().as_str()));
    // It is in the caller's cgroups, and not in the container's.
    let cgroups = |pid: &str| std::fs::read_to_string(format!("/proc/{pid}/cgroup")).expect(pid);
    assert_eq!(read("cgroup"), cgroups("self"));
    assert_ne!(read("cgroup"), cgroups(&init().to_string()), "the control");
    place.call(&["delete", "--force", &id]).good();
    assert!(support::ends(helper, PATIENCE), "{helper}");
}

#[test]
fn the_end_of_the_helper_closes_everything() {
    if !ready("the end of the helper") {
        return;
    }
    let port = answering("hello");
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("bind");
    let silent = listener.local_addr().expect("an address").port();
    let place =
        place(Some(&json!({"allowedDomains": ["a.localhost"], "hostPorts": [port, silent]})));
    let running = place.waiting();
    let both = format!("{}; echo; {}", by_proxy("a.localhost", port), direct("127.0.0.1", port));
    assert_eq!(running.sh(&both).matches("hello").count(), 2, "the control");
    let script = format!("busybox nc 127.0.0.1 {silent} < /dev/null; echo over");
    let connected = place.command(&["exec", &running.id, "sh", "-c", &script]);
    let mut connected = { connected }.stdout(Stdio::piped()).spawn().expect("exec");
    let (mut client, _) = listener.accept().expect("a connection");
    let helper = helper(&running);
    kill(helper);
    assert!(support::ends(helper, PATIENCE));
    assert!(!matches!(client.read(&mut [0]), Ok(1..)), "what is on the host's side ends");
    let mut said = String::new();
    connected.stdout.take().expect("a pipe").read_to_string(&mut said).expect("text");
    assert_eq!(said, "over\n");
    assert!(connected.wait().expect("an end").success());
    let answer = running.exec(&[&running.id, "sh", "-c", &both]);
    assert!(!answer.out.contains("hello"), "{answer:?}");
    assert!(
        traps(&place).iter().any(|trap| trap["code"] == "SUPERVISE_FAILED"),
        "{:?}",
        traps(&place)
    );
}

#[test]
fn the_end_of_the_launcher_ends_the_helper() {
    if !ready("the end of the launcher") {
        return;
    }
    let port = answering("hello");
    let place = place(Some(&json!({"hostPorts": [port]})));
    // The end of the program, of the launcher, and of what was never started.
    let script =
        format!("{}; until [ -e /ws/end ]; do sleep 0.05; done", direct("127.0.0.1", port));
    let id = &id();
    let run = place.program(&["sh", "-c", &script]).command(&["run", "-b", ".", id]);
    let mut run = { run }.stdout(Stdio::piped()).spawn().expect("run");
    run.stdout.as_mut().expect("a pipe").read_exact(&mut [0; 40]).expect("an answer");
    let pid = place.state(id)["pid"].as_u64().expect("a pid");
    let found = helpers(pid);
    assert_eq!(found.len(), 1);
    std::fs::write(place.path("rootfs/ws/end"), "").expect("a file");
    assert!(run.wait().expect("an end").success());
    assert!(support::ends(found[0], PATIENCE));

    let running = place.waiting();
    let found = helper(&running);
    kill(u32::try_from(init(&running)).expect("a pid"));
    assert!(support::ends(found, PATIENCE));
    drop(running);
}

#[test]
fn fifty_containers_leave_nothing() {
    if !ready("fifty containers") {
        return;
    }
    let port = answering("hello");
    let one = |_| {
        thread::spawn(move || {
            let network = json!({"hostPorts": [port], "allowedDomains": ["a.localhost"]});
            let place = place(Some(&network));
            let running = place.waiting();
            assert!(running.sh(&direct("127.0.0.1", port)).ends_with("hello"));
            let helper = helper(&running);
            place.call(&["delete", "--force", &running.id]).good();
            helper
        })
    };
    let all: Vec<_> = (0..50).map(one).collect();
    for done in all {
        let helper = done.join().expect("a container");
        assert!(support::ends(helper, PATIENCE), "{helper}");
    }
}

/// The policy of a program's file narrows what the helper was started with.
#[test]
fn a_policy_of_the_program_narrows_the_hosts() {
    if !ready("a policy of the program") || !have("a policy of the program", &["xattr"]) {
        return;
    }
    let port = answering("hello");
    let place = place(Some(&json!({"allowedDomains": ["a.localhost", "b.localhost"]})));
    let attach = |allowed: &str| {
        let file = place.path("rootfs/bin/ash");
        std::fs::copy(BUSYBOX, &file).expect("busybox");
        let policy = json!({"network": {"allowedDomains": [allowed]}}).to_string();
        let flags = rustix::fs::XattrFlags::empty();
        rustix::fs::setxattr(&file, "user.landstrip.policy", policy.as_bytes(), flags)
            .expect("xattr");
    };
    let script =
        format!("{}; echo; {}", by_proxy("a.localhost", port), by_proxy("b.localhost", port));
    assert_eq!(shell(&place, &script).out.matches("hello").count(), 2, "the control");
    attach("a.localhost");
    let held = |answer: Answer| {
        assert_eq!(answer.out.matches("hello").count(), 1, "{answer:?}");
        let last = traps(&place).pop().expect("a trap");
        assert_eq!(last["target"], format!("b.localhost:{port}"));
    };
    held(place.run(&["/bin/ash", "-c", &script]));
    // As a command it has a launcher, and so a helper, of its own; others have what the container has.
    let running = place.waiting();
    held(running.exec(&[&running.id, "/bin/ash", "-c", &script]));
    assert_eq!(running.sh(&script).matches("hello").count(), 2);
    attach("c.example");
    let answer = place.run(&["/bin/ash", "-c", &script]);
    answer.bad("c.example");
}

/// Refusals of the proxy are events, too.
#[test]
fn what_the_proxy_refuses_is_an_event() {
    if !ready("events") {
        return;
    }
    let mut place = place(Some(&json!({"allowedDomains": ["a.localhost"]})));
    let traps = place.options.iter().position(|option| option == "--traps").expect("the option");
    place.options.drain(traps..traps + 2);
    let running = place.waiting();
    let mut events = place.command(&["events", &running.id]);
    let mut events = events.stdout(Stdio::piped()).spawn().expect("events");
    let lines = std::io::BufReader::new(events.stdout.take().expect("a pipe")).lines();
    running.exec(&[&running.id, "sh", "-c", &by_proxy("b.localhost", 80)]);
    let told = lines.map_while(Result::ok).any(|line| {
        let event: Value = serde_json::from_str(&line).expect("JSON");
        event["type"] == "trap" && event["data"]["target"] == "b.localhost:80"
    });
    assert!(told);
    drop(running);
    assert!(events.wait().expect("an end").success());
}

/// The proxy to go out by is the runtime's, and not one that an image names.
#[test]
fn the_image_does_not_say_where_connections_go_out() {
    if !containers("the image's proxy") {
        return;
    }
    let (upstream, evil) = (answering("upstream"), answering("evil"));
    let mut place = place(Some(&json!({"allowedDomains": ["x.example"]})));
    let env = ["http_proxy", "HTTP_PROXY", "ALL_PROXY"];
    let env = env.map(|name| format!("{name}=http://127.0.0.1:{evil}"));
    place.spec["process"]["env"] = json!([&["PATH=/bin".to_owned()][..], &env].concat());
    let id = id();
    place.program(&["sh", "-c", &by_proxy("x.example", 80)]);
    let mut run = place.command(&["run", "-b", ".", &id]);
    let way = format!("http://127.0.0.1:{upstream}");
    run.env("HTTP_PROXY", &way).env("HTTPS_PROXY", &way);
    let run = run.output().expect("run");
    assert!(run.stdout.ends_with(b"upstream"), "{run:?}");
    drop(TcpStream::connect((Ipv4Addr::LOCALHOST, evil)).expect("the control: it is there"));
}

/// Annotations may come from an image: what they ask for opens nothing of the host's.
#[test]
fn an_annotation_opens_no_way_to_the_host() {
    if !containers("annotations") {
        return;
    }
    let port = answering("hello");
    let network = json!({"hostPorts": [port], "allowedDomains": ["a.localhost"]});
    let script = format!("{}; {}", direct("127.0.0.1", port), by_proxy("a.localhost", port));
    assert_eq!(
        shell(&place(Some(&network)), &script).out.matches("hello").count(),
        2,
        "the control"
    );
    let mut asked = place(None);
    let policy = json!({"network": network}).to_string();
    asked.spec["annotations"]["dev.landstrip.policy"] = policy.into();
    let answer = shell(&asked, &script);
    assert!(!answer.out.contains("hello"), "{answer:?}");
    // It may narrow what the operator opens.
    let mut narrowed = place(Some(&json!({"allowedDomains": ["a.localhost", "b.localhost"]})));
    let policy = json!({"network": {"allowedDomains": ["b.localhost"]}}).to_string();
    narrowed.spec["annotations"]["dev.landstrip.policy"] = policy.into();
    let both = format!("{}; {}", by_proxy("a.localhost", port), by_proxy("b.localhost", port));
    assert_eq!(shell(&narrowed, &both).out.matches("hello").count(), 1);
}
