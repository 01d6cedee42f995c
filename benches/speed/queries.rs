//! What it costs to ask: an open that is denied, put to a client, and allowed.

use std::fs::{self, File};
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::contender::{Contender, unsuccessful};
use crate::lab::Lab;
use crate::measure::{Goal, Group, Lane, Row, Spec, Unit};

const ASKED: &str = "open+close to write, allowed by an answer, less the client's time";

/// Opens in a loop, each of them a query of its own.
const OPS: u32 = 500;

/// A query and its answer.
pub fn group() -> Group {
    Group {
        rounds: 30,
        rival: Contender::Bare,
        specs: vec![Spec { name: ASKED, beside: None, build: asked }],
    }
}

fn asked(lab: &Lab) -> io::Result<Row> {
    let dir = lab.workspace("asked")?;
    let file = lab.outside().join("asked");
    fs::write(&file, "")?;
    // The program inherits this one, whatever it is by then; the number is on its command line.
    let mut slot: OwnedFd = File::open("/dev/null")?.into();
    let words = ["open-write".into(), file.into_os_string(), OPS.to_string().into()];
    let mut job = lab.inner(&dir, words).without_bubblewrap();
    job.options = vec!["--trap-fd".into(), slot.as_raw_fd().to_string().into()];
    let mut lanes = lab.reported(&job);
    lanes[Contender::Landstrip.index()] = lab
        .tools
        .command(Contender::Landstrip, &job)
        .map(|mut command| Box::new(move || round(&mut command, &mut slot)) as Lane);
    Ok(Row { name: ASKED, unit: Unit::Micros, lanes, goals: vec![Goal::AtMost(100e3)] })
}

/// Runs the load, says yes to all that it asks, and returns what one open took without the time from when
/// the question had been read until the answer had been written.
fn round(command: &mut Command, slot: &mut OwnedFd) -> io::Result<f64> {
    let (client, theirs) = UnixStream::pair()?;
    rustix::io::dup2(&theirs, slot)?;
    drop(theirs);
    let mut child = command.stdout(Stdio::piped()).spawn()?;
    rustix::io::dup2(File::open("/dev/null")?, slot)?;
    let mut records = BufReader::new(&client);
    let (mut own, mut asked, mut line) = (Duration::ZERO, 0, String::new());
    while records.read_line(&mut line)? > 0 {
        let read = Instant::now();
        if line.contains("\"state\":\"query\"") {
            let id = line.split("\"query_id\":\"").nth(1).and_then(|rest| rest.split('"').next());
            let id = id.ok_or_else(|| io::Error::other("a query without a number"))?;
            let answer = format!("{{\"query_id\":\"{id}\",\"action\":\"allow\"}}\n");
            (&client).write_all(answer.as_bytes())?;
            own += read.elapsed();
            asked += 1;
        }
        line.clear();
    }
    let mut text = String::new();
    if let Some(mut stdout) = child.stdout.take() {
        stdout.read_to_string(&mut text)?;
    }
    let status = child.wait()?;
    let Ok(average) = text.trim().parse::<f64>() else { return Err(unsuccessful(status)) };
    if asked < OPS {
        return Err(io::Error::other(format!("{asked} of {OPS} opens were asked about")));
    }
    Ok(average - own.as_nanos() as f64 / f64::from(asked))
}
