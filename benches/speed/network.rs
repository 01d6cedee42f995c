//! What goes to the host's loopback and back: by the relay and by the domain proxy, beside a direct connection.

use std::io::{self, BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::rc::Rc;

use serde_json::json;

use crate::contender::Contender;
use crate::lab::Lab;
use crate::measure::{Build, Goal, Group, Lane, Row, Spec, Unit};

const BULK_RELAY: &str = "256 MiB from the host, by the relay";
const BULK_CONNECT: &str = "256 MiB from the host, by CONNECT";
const BYTE_RELAY: &str = "a byte to the host and back, by the relay";
const BYTE_CONNECT: &str = "a byte to the host and back, by CONNECT";

const MEBIBYTES: &str = "256";
const BYTES: &str = "2000";
const MICROSECOND: f64 = 1e3;

/// A server outside, and a client inside that times itself. The least is a relay of a few lines between the two.
pub fn group() -> Group {
    let specs: [(&'static str, Build); 4] = [
        (BULK_RELAY, |lab| {
            row(
                lab,
                BULK_RELAY,
                Unit::Millis,
                ["receive", MEBIBYTES],
                Way::Relay,
                Goal::TimesBare(1.10),
            )
        }),
        (BULK_CONNECT, |lab| {
            row(
                lab,
                BULK_CONNECT,
                Unit::Millis,
                ["receive", MEBIBYTES],
                Way::Connect,
                Goal::TimesBare(1.15),
            )
        }),
        (BYTE_RELAY, |lab| {
            row(lab, BYTE_RELAY, Unit::Micros, ["echo", BYTES], Way::Relay, LATENCY)
        }),
        (BYTE_CONNECT, |lab| {
            row(lab, BYTE_CONNECT, Unit::Micros, ["echo", BYTES], Way::Connect, LATENCY)
        }),
    ];
    Group {
        rounds: 20,
        rival: Contender::Bare,
        specs: specs.into_iter().map(|(name, build)| Spec { name, beside: None, build }).collect(),
    }
}

const LATENCY: Goal = Goal::OverBare(50.0 * MICROSECOND);

/// How a client inside gets to the server.
#[derive(Clone, Copy, PartialEq)]
enum Way {
    Relay,
    Connect,
}

fn row(
    lab: &Lab,
    name: &'static str,
    unit: Unit,
    [what, count]: [&str; 2],
    way: Way,
    goal: Goal,
) -> io::Result<Row> {
    let server = Server::start(&lab.speed, &["serve"])?;
    let port = server.port;
    let relay = Server::start(&lab.speed, &["relay", &port.to_string()])?;
    let least = relay.port;
    let servers = Rc::new([server, relay]);
    let label = name.replace([' ', ','], "-");
    let dir = lab.workspace(&label)?;
    let network = match way {
        Way::Relay => json!({"hostPorts": [port]}),
        Way::Connect => json!({"allowedDomains": [format!("127.0.0.1:{port}")]}),
    };
    let policy = lab.policy(&label, &json!({"network": network}))?;
    let job = |way: &str, port: u16| {
        lab.inner(&dir, [what, way, &port.to_string(), count])
            .under([policy.clone()])
            .without_bubblewrap()
    };
    // Without a sandbox, there is no proxy either.
    let mut lanes = lab.reported(&job("direct", port));
    if way == Way::Connect {
        let mut by_proxy = lab.reported(&job("connect", port));
        let ours = Contender::Landstrip.index();
        lanes[ours] = by_proxy[ours].take();
    }
    let mut by_relay = lab.reported(&job("direct", least));
    lanes[Contender::Least.index()] = by_relay[Contender::Bare.index()].take();
    let lanes = lanes.map(|lane| lane.map(|lane| with(Rc::clone(&servers), lane)));
    Ok(Row { name, unit, lanes, goals: vec![goal] })
}

/// The lane, for which the servers stay.
fn with(servers: Rc<[Server; 2]>, mut lane: Lane) -> Lane {
    Box::new(move || {
        let _servers = &servers;
        lane()
    })
}

/// A load that serves connections, which ends with this.
struct Server {
    process: Child,
    port: u16,
}

impl Server {
    fn start(speed: &Path, load: &[&str]) -> io::Result<Server> {
        let mut command = Command::new(speed);
        command.arg("--inner").args(load).stdin(Stdio::null()).stdout(Stdio::piped());
        let mut process = command.spawn()?;
        let mut line = String::new();
        if let Some(stdout) = process.stdout.take() {
            BufReader::new(stdout).read_line(&mut line)?;
        }
        let port = line.trim().parse().map_err(io::Error::other)?;
        Ok(Server { process, port })
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // It does nothing but wait, and has nobody by now.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
