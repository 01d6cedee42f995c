//! Commands that only look: `state`, `ps`, `list`, `events`.

use std::io::{self, Write};
use std::os::fd::OwnedFd;
use std::process::Command;
use std::time::{Duration, Instant};

use serde::Serialize;
use serde_json::{Value, json};

use super::args::{EventsArgs, ListArgs, PsArgs, TableFormat};
use super::log::rfc3339;
use crate::oci::cgroup::oom::{Event, Watch};
use crate::oci::policy::Policy;
use crate::oci::runtime::Runtime;
use crate::oci::state::{Container, Record, Status};
use crate::oci::traps::Follower;
use crate::oci::{Context, Error, Result};

/// Prints a line; a reader that has left is no error.
pub fn print(text: &str) -> Result<()> {
    let mut out = io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            Err(error).context("standard output")
        }
        _ => Ok(()),
    }
}

/// Prints a document.
pub fn json(document: &impl Serialize) -> Result<()> {
    let mut text = serde_json::to_string_pretty(document).context("JSON")?;
    text.push('\n');
    print(&text)
}

/// `state`. The fields that engines rely on, and those that runc prints besides.
///
/// # Errors
///
/// The container does not exist.
pub fn state(runtime: &Runtime<'_>, id: &str) -> Result<()> {
    let container = runtime.root.container(id)?;
    let Some(record) = container.record(id)? else {
        return json(&json!({"ociVersion": "1.0.2", "id": id, "status": Status::Creating,
            "bundle": "", "annotations": {}}));
    };
    let status = container.status(&record);
    let mut document =
        serde_json::to_value(record.view(status, pid(&record, status))).context("state")?;
    if let Some(fields) = document.as_object_mut() {
        fields.insert("rootfs".into(), json!(record.rootfs));
        fields.insert("created".into(), json!(created(&record)));
        fields.insert("owner".into(), json!(record.owner.to_string()));
    }
    json(&document)
}

fn pid(record: &Record, status: Status) -> i32 {
    if status == Status::Stopped { 0 } else { record.pid.unwrap_or(0) }
}

fn created(record: &Record) -> String {
    rfc3339(std::time::UNIX_EPOCH + std::time::Duration::from_secs(record.created))
}

/// `list`.
///
/// # Errors
///
/// As readdir(3).
pub fn list(runtime: &Runtime<'_>, args: ListArgs) -> Result<()> {
    let ids = runtime.root.list()?;
    if args.quiet {
        return print(&ids.iter().map(|id| format!("{id}\n")).collect::<String>());
    }
    let mut rows = Vec::new();
    for id in &ids {
        let container = runtime.root.container(id)?;
        // It may be gone by now, or not there yet.
        let Ok(Some(record)) = container.record(id) else { continue };
        let status = container.status(&record);
        rows.push(json!({
            "ociVersion": record.oci_version, "id": id, "pid": pid(&record, status),
            "status": status, "bundle": record.bundle, "rootfs": record.rootfs,
            "created": created(&record), "annotations": record.annotations,
            "owner": record.owner.to_string(),
        }));
    }
    match args.format {
        TableFormat::Json => json(&rows),
        TableFormat::Table => {
            let columns = ["id", "pid", "status", "bundle", "created", "owner"];
            let cell = |row: &Value, column: &str| match &row[column] {
                Value::String(text) => text.clone(),
                other => other.to_string(),
            };
            let head: Vec<String> = columns.iter().map(|name| name.to_uppercase()).collect();
            let body = rows.iter().map(|row| columns.iter().map(|name| cell(row, name)).collect());
            let rows: Vec<Vec<String>> = std::iter::once(head).chain(body).collect();
            print(&table(&rows))
        }
    }
}

/// Rows with their columns below each other.
fn table(rows: &[Vec<String>]) -> String {
    let columns = rows.first().map_or(0, Vec::len);
    let width = |at: usize| rows.iter().map(|row| row[at].chars().count()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..columns).map(width).collect();
    let mut text = String::new();
    for row in rows {
        let cells = row.iter().zip(&widths).map(|(cell, width)| format!("{cell:width$}"));
        text.push_str(cells.collect::<Vec<_>>().join("   ").trim_end());
        text.push('\n');
    }
    text
}

/// `ps`.
///
/// # Errors
///
/// The container has no cgroup, or ps(1) cannot be run.
pub fn ps(runtime: &Runtime<'_>, args: &PsArgs) -> Result<()> {
    let container = runtime.root.container(&args.id)?;
    let record = container.complete(&args.id)?;
    let cgroup = record.cgroup.as_ref().ok_or_else(|| Error::new("the container has no cgroup"))?;
    let pids: Vec<i32> =
        cgroup.processes()?.into_iter().map(|pid| pid.as_raw_nonzero().get()).collect();
    if args.format == TableFormat::Json {
        return json(&pids);
    }
    let default = ["-ef".to_owned()];
    let options = if args.options.is_empty() { &default[..] } else { &args.options };
    let output = Command::new("ps").args(options).output().context("ps")?;
    if !output.status.success() {
        let text = String::from_utf8_lossy(&output.stderr);
        return Err(Error::new(format!("ps: {}", text.trim())));
    }
    let text = String::from_utf8_lossy(&output.stdout);
    let mut lines = text.lines();
    let head = lines.next().unwrap_or_default();
    let column = head.split_whitespace().position(|name| name == "PID");
    let column = column.ok_or_else(|| Error::new("ps: its output has no column PID"))?;
    let listed = |line: &&str| {
        let pid = line.split_whitespace().nth(column).and_then(|text| text.parse().ok());
        pid.is_some_and(|pid| pids.contains(&pid))
    };
    let rows = lines.filter(listed).map(|line| format!("{line}\n")).collect::<String>();
    print(&format!("{head}\n{rows}"))
}

/// Waits for a while, and tells when the container runs out of memory meanwhile; true when it has ended.
fn ended(id: &str, memory: Option<&mut Watch>, init: &OwnedFd, limit: Duration) -> Result<bool> {
    let Some(memory) = memory else { return crate::oci::attach::ends(init, limit) };
    let until = Instant::now() + limit;
    loop {
        match memory.wait(until, init)? {
            Event::OutOfMemory => print(&format!("{}\n", json!({"type": "oom", "id": id})))?,
            Event::Gone => return Ok(true),
            Event::Late => return Ok(false),
        }
    }
}

/// `events --traps`: what was denied to the container until now, whether it runs or not.
fn traps(id: &str, container: &Container) -> Result<()> {
    let Some(policy) = Policy::of(container)? else { return Ok(()) };
    let file = policy.trap_file(container);
    let nowhere = || Error::new(format!("the traps of container {id:?} are kept in no file"));
    tell(id, &mut Follower::open(&file.ok_or_else(nowhere)?)?)
}

/// `events`: what the container uses, once or again and again until it has ended; then also that it ran out of
/// memory, and what was denied to it under its policy.
///
/// # Errors
///
/// The container does not run, or has no cgroup.
pub fn events(runtime: &Runtime<'_>, args: &EventsArgs) -> Result<()> {
    let container = runtime.root.container(&args.id)?;
    let record = container.complete(&args.id)?;
    if args.traps {
        return traps(&args.id, &container);
    }
    let not_running = || Error::new(format!("container {:?} is not running", args.id));
    if container.status(&record) == Status::Stopped {
        return Err(not_running());
    }
    let init = record.init().ok_or_else(not_running)?;
    let cgroup = record.cgroup.as_ref().ok_or_else(|| Error::new("the container has no cgroup"))?;
    if args.stats {
        return event(&args.id, "stats", cgroup.stats()?);
    }
    let policy = Policy::of(&container)?;
    let traps = policy.and_then(|policy| policy.trap_file(&container));
    let traps = traps.map(|path| Follower::open(&path)).transpose()?;
    std::thread::scope(|scope| {
        let told = scope.spawn(|| traps.map_or(Ok(()), |traps| follow(&args.id, traps, &init)));
        // Without a memory controller nothing is told of it.
        let mut memory = cgroup.watch_memory().ok();
        loop {
            event(&args.id, "stats", cgroup.stats()?)?;
            if ended(&args.id, memory.as_mut(), &init, args.interval)? {
                break;
            }
        }
        told.join().unwrap_or_else(|_| Err(Error::new("the reader of traps ended")))
    })
}

/// Prints one event.
fn event(id: &str, kind: &str, data: Value) -> Result<()> {
    print(&format!("{}\n", json!({"type": kind, "id": id, "data": data})))
}

/// Prints the traps that there are.
fn tell(id: &str, traps: &mut Follower) -> Result<()> {
    while let Some(line) = traps.line()? {
        event(id, "trap", serde_json::from_str(&line).unwrap_or(Value::String(line)))?;
    }
    Ok(())
}

/// Prints traps as they come, until the process has ended.
fn follow(id: &str, mut traps: Follower, init: &OwnedFd) -> Result<()> {
    loop {
        // First: what was written by then is read after it.
        let ended = crate::oci::attach::ends(init, Duration::ZERO)?;
        tell(id, &mut traps)?;
        if ended {
            return Ok(());
        }
        traps.wait(init)?;
    }
}
