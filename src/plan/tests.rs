use super::*;
use crate::policy::{Format, MemoryTree, Place, merge, parse, resolve};

const HOST: HostSupport = HostSupport {
    landlock_abi: 7,
    nested: false,
    copies_descriptors: true,
    limits: LimitSupport { memory: None, pids: None, cpu: None },
    namespace: NamespaceSupport::Unasked,
};

fn tree() -> MemoryTree {
    let mut tree = MemoryTree::new();
    tree.dir("/repo/src").file("/repo/.env", "").dir("/home/me/.ssh").dir("/usr/bin").dir("/tmp");
    tree
}

fn planned(json: &str) -> Plan {
    planned_on(HOST, json)
}

fn planned_on(host: HostSupport, json: &str) -> Plan {
    let view = tree();
    let policy = merge(vec![parse("p", json.as_bytes(), Format::Json).unwrap()]);
    let place = Place { cwd: "/repo", home: Some("/home/me"), view: &view };
    plan(resolve(&policy, &place).unwrap(), None, &view, host)
}

#[test]
fn a_root_without_denials_is_the_kernels() {
    let plan = planned(r#"{"filesystem":{"allowWrite":["."]}}"#);
    assert!(plan.kernel_write.contains(&"/repo".to_owned()));
    assert_eq!((plan.reads, plan.inner.reading), (false, false));
    assert!(plan.shortfalls.is_empty());
}

#[test]
fn nothing_denied_is_granted() {
    let plan = planned(r#"{"filesystem":{"allowWrite":["."],"denyWrite":[".env","**/*.pem"]}}"#);
    assert!(!plan.kernel_write.iter().any(|path| path.starts_with("/repo")));
    // The broker may write there; the outer domain knows no denials.
    assert!(
        plan.outer.grants.iter().any(|grant| grant.path == "/repo" && grant.write == Writing::All)
    );
}

#[test]
fn reads_are_left_to_the_kernel_only_where_no_new_program_could_be_shut_out() {
    let outside = planned(r#"{"filesystem":{"allowWrite":["."],"denyRead":["~/.ssh"]}}"#);
    assert!(outside.kernel_read.contains(&"/repo".to_owned()));
    let readable = |plan: &Plan, path: &str| {
        plan.inner.grants.iter().any(|grant| grant.read && within(path, &grant.path))
    };
    assert!(!readable(&outside, "/home/me/.ssh/key"));
    // Nothing new can appear in a directory that does not exist and that the run cannot make.
    let absent = planned(r#"{"filesystem":{"allowWrite":["."],"denyRead":["~/.config/gh"]}}"#);
    assert!(absent.kernel_read.contains(&"/repo".to_owned()));
    for policy in [
        r#"{"filesystem":{"allowWrite":["."],"denyRead":[".env", "~/.ssh"]}}"#,
        r#"{"filesystem":{"denyRead":["**/*.pem", "~/.ssh"]}}"#,
    ] {
        let inside = planned(policy);
        assert!(inside.kernel_read.is_empty(), "{policy}");
        assert!(readable(&inside, "/repo/new"), "{policy}");
        assert!(!readable(&inside, "/home/me/.ssh/key"), "{policy}");
    }
}

#[test]
fn a_missing_file_opens_its_directory_to_the_broker_alone() {
    let plan = planned(r#"{"filesystem":{"allowWrite":["/home/me/.cache/x"]}}"#);
    assert!(plan.outer.grants.contains(&grant("/home/me", Writing::All)));
    assert!(!plan.kernel_write.iter().any(|path| path.starts_with("/home")));
}

#[test]
fn shortfalls_name_their_line() {
    let plan = planned("{\"network\":{\n\"deniedDomains\": [\"a.com\"], \"httpProxyPort\": 1}}");
    let shortfall = &plan.shortfalls[0];
    assert_eq!((shortfall.name, shortfall.origin.as_ref().unwrap().line), ("domains", 2));
    let old = HostSupport { landlock_abi: 4, ..HOST };
    assert_eq!(lines::shortfalls(&ResolvedPolicy::default(), old), []);
}

#[test]
fn an_older_landlock_leaves_truncation_and_tcp_to_the_broker() {
    let files = r#"{"filesystem":{"allowWrite":["."],"denyWrite":[".env"]}}"#;
    for landlock_abi in OLDEST_ABI..SCOPED_ABI {
        let plan = planned_on(HostSupport { landlock_abi, ..HOST }, files);
        assert_eq!((plan.inner.truncating, plan.shortfalls), (false, vec![]), "{landlock_abi}");
        for line in [r#""hostPorts": [1]"#, r#""allowLocalBinding": true"#] {
            let policy = format!(r#"{{"network": {{{line}}}}}"#);
            let plan = planned_on(HostSupport { landlock_abi, ..HOST }, &policy);
            let holder = match landlock_abi < TCP_ABI {
                true => Holder::Broker,
                false => Holder::LandlockAndBroker,
            };
            let lines = plan.lines(&Daemons::default());
            let line = lines.iter().find(|line| !line.origin.is_built_in()).unwrap();
            assert_eq!(line.held_by, holder, "{landlock_abi} {policy}");
        }
    }
}

#[test]
fn an_older_landlock_leaves_signals_and_devices_to_the_broker() {
    for landlock_abi in OLDEST_ABI..=SCOPED_ABI {
        let host = HostSupport { landlock_abi, ..HOST };
        let held = |plan: &Plan| (plan.signals, plan.devices);
        let (signals, devices) = (landlock_abi < SCOPED_ABI, landlock_abi < IOCTL_ABI);
        assert_eq!(held(&planned_on(host, "{}")), (signals, devices), "{landlock_abi}");
        let mut contained = planned_on(host, "{}");
        contained.in_own_pids();
        assert_eq!(held(&contained), (false, devices), "{landlock_abi}");
        // Without copies of descriptors, the broker knows no terminal.
        let blind = planned_on(HostSupport { copies_descriptors: false, ..host }, "{}");
        let names: Vec<_> = blind.shortfalls.iter().map(|shortfall| shortfall.name).collect();
        let expected = if devices { vec!["devices"] } else { vec![] };
        assert_eq!((held(&blind), names), ((signals, false), expected), "{landlock_abi}");
    }
}

#[test]
fn an_older_landlock_holds_no_devices_beside_one_that_is_open() {
    let found = |landlock_abi, written: &str| {
        let policy = format!(r#"{{"filesystem":{{"allowWrite":[{written}]}}}}"#);
        let mut plan = planned_on(HostSupport { landlock_abi, ..HOST }, &policy);
        let mounts = b"1 0 8:1 / / rw - ext4 d rw\n2 1 0:6 / /dev rw - devtmpfs d rw\n\
            3 2 0:7 / /dev/hugepages rw - hugetlbfs h rw\n";
        controls::guard(&mut plan.policy.rules, &mounts::parse(mounts), controls::Guarded::All);
        let found = lines::shortfalls(&plan.policy, plan.host);
        found
            .into_iter()
            .map(|shortfall| (shortfall.name, shortfall.origin.unwrap().line))
            .collect::<Vec<_>>()
    };
    for open in [r#""/dev/kvm""#, r#""/dev""#, r#""/dev/dri/*""#, r#"".", "/dev/snd""#] {
        assert_eq!(found(IOCTL_ABI - 1, open), [("devices", 1)], "{open}");
        assert_eq!(found(IOCTL_ABI, open), [], "{open}");
    }
    for closed in [r#"".""#, r#""/""#, r#""/**""#, r#""/dev/shm/x""#, r#""/dev/pts/7""#] {
        assert_eq!(found(IOCTL_ABI - 1, closed), [], "{closed}");
    }
}

#[test]
fn an_older_landlock_does_not_keep_abstract_sockets_from_datagrams() {
    let policy = r#"{"network":{"allowAllUnixSockets":true}}"#;
    for landlock_abi in OLDEST_ABI..=SCOPED_ABI {
        let mut plan = planned_on(HostSupport { landlock_abi, ..HOST }, policy);
        // A pid namespace has nothing to do with it.
        plan.in_own_pids();
        let found: Vec<_> = (plan.shortfalls.iter())
            .map(|shortfall| (shortfall.name, shortfall.origin.as_ref().unwrap().line))
            .collect();
        let expected = if landlock_abi < SCOPED_ABI { vec![("unix-sockets", 1)] } else { vec![] };
        assert_eq!(found, expected, "{landlock_abi}");
    }
}

#[test]
fn an_older_landlock_is_enough_for_signals_in_a_container() {
    let mut plan = planned_on(HostSupport { landlock_abi: OLDEST_ABI, ..HOST }, "{}");
    plan.in_own_pids();
    assert_eq!(plan.shortfalls, []);
    let mut plan = planned_on(HostSupport { landlock_abi: OLDEST_ABI - 1, ..HOST }, "{}");
    plan.in_own_pids();
    assert_eq!(plan.shortfalls[0].name, "landlock");
}

#[test]
fn what_an_older_landlock_leaves_to_the_broker_is_a_shortfall_where_there_is_none() {
    for landlock_abi in OLDEST_ABI..SCOPED_ABI {
        let plan = planned_on(HostSupport { landlock_abi, nested: true, ..HOST }, "{}");
        let names: Vec<_> = plan.shortfalls.iter().map(|shortfall| shortfall.name).collect();
        let expected = match landlock_abi {
            2 => vec!["signals", "devices", "nested", "nested"],
            3 => vec!["signals", "devices", "nested"],
            4 => vec!["signals", "devices"],
            _ => vec!["signals"],
        };
        assert_eq!(names, expected, "{landlock_abi}");
    }
}

#[test]
fn every_line_has_a_holder() {
    let plan = planned(r#"{"filesystem":{"allowWrite":[".","*.log"],"denyWrite":[".env"]}}"#);
    let held: Vec<_> = plan
        .lines(&Daemons::default())
        .into_iter()
        .filter(|line| !line.origin.is_built_in())
        .map(|line| (line.text, line.held_by))
        .collect();
    assert_eq!(
        held,
        [
            (".".to_owned(), Holder::LandlockAndBroker),
            ("*.log".to_owned(), Holder::Broker),
            (".env".to_owned(), Holder::LandlockAndBroker),
        ]
    );
}

#[test]
fn the_outer_domain_opens_the_ports_and_no_more() {
    let outer = |network: &str| {
        let outer = planned(&format!("{{\"network\": {network}}}")).outer;
        (outer.network, outer.ports)
    };
    assert_eq!(outer("{}"), (true, vec![]));
    assert_eq!(outer(r#"{"allowNetwork": true}"#), (false, vec![]));
    assert_eq!(outer(r#"{"allowLocalBinding": true, "httpProxyPort": 1}"#), (false, vec![]));
    let ports = r#"{"httpProxyPort": 3128, "socksProxyPort": 1080}"#;
    assert_eq!(outer(ports), (true, vec![3128, 1080]));
}

#[test]
fn inside_another_run_nothing_but_files_is_granted() {
    let view = tree();
    let network = r#"{"network": {"httpProxyPort": 1, "allowLocalBinding": true,
        "allowUnixSockets": ["/run/x"]}}"#;
    let policy = merge(vec![parse("p", network.as_bytes(), Format::Json).unwrap()]);
    let place = Place { cwd: "/repo", home: None, view: &view };
    let nested = HostSupport { nested: true, ..HOST };
    let plan = plan(resolve(&policy, &place).unwrap(), None, &view, nested);
    let names: Vec<_> = plan.shortfalls.iter().map(|shortfall| shortfall.name).collect();
    assert_eq!(names, ["proxy-port", "local-binding", "unix-sockets"]);
}

#[test]
fn ancestors_end_at_the_root() {
    assert_eq!(ancestors("/a/b/c").collect::<Vec<_>>(), ["/a/b", "/a", "/"]);
    assert_eq!(ancestors("/a").collect::<Vec<_>>(), ["/"]);
    assert_eq!(ancestors("/").count(), 0);
}
