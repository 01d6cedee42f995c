//! The other end of a trap descriptor that is a socket: reads records and answers queries.

use super::{Bed, PATIENCE, Run, finish};
use serde_json::{Value, json};
use std::io::{Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::time::Instant;

/// The writing end of a FIFO that somebody has opened for reading, or is about to.
pub fn writer(bed: &Bed, fifo: &str) -> std::os::fd::OwnedFd {
    use rustix::fs::{Mode, OFlags};
    let until = Instant::now() + PATIENCE;
    // With O_NONBLOCK this fails while nobody reads, see fifo(7).
    let flags = OFlags::WRONLY | OFlags::NONBLOCK;
    loop {
        match rustix::fs::open(bed.fill(fifo), flags, Mode::empty()) {
            Ok(fifo) => return fifo,
            Err(error) => assert!(Instant::now() < until, "nobody waits: {error}"),
        }
        std::thread::yield_now();
    }
}

/// Lets on whoever opened the FIFO for reading, or is about to. Each is good for one time: whoever opens
/// it again could meet the same writer.
pub fn go(bed: &Bed, fifo: &str) {
    meanwhile(bed, fifo, || ());
}

/// The same, after doing `this` while it waits.
pub fn meanwhile(bed: &Bed, fifo: &str, this: impl FnOnce()) {
    let fifo = writer(bed, fifo);
    this();
    assert_eq!(rustix::io::write(&fifo, b"go\n"), Ok(3));
}

/// The client of one run.
pub struct Client {
    stream: UnixStream,
    bytes: Vec<u8>,
    /// Every record so far.
    pub seen: Vec<Value>,
}

impl Client {
    /// The next record, none when the run has closed the socket.
    pub fn record(&mut self) -> Option<Value> {
        let mut chunk = [0; 65536];
        loop {
            if let Some(end) = self.bytes.iter().position(|&byte| byte == b'\n') {
                let line: Vec<u8> = self.bytes.drain(..=end).collect();
                let record: Value = serde_json::from_slice(&line).expect("a record");
                self.seen.push(record.clone());
                return Some(record);
            }
            match self.stream.read(&mut chunk) {
                Ok(0) => return None,
                Ok(size) => self.bytes.extend_from_slice(&chunk[..size]),
                // A read with a time-out is not started again after a signal.
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
                // It closed the socket before it had read all that was sent.
                Err(error) if error.kind() == std::io::ErrorKind::ConnectionReset => return None,
                Err(error) => panic!("no record in time: {error}"),
            }
        }
    }

    /// The next query.
    pub fn query(&mut self) -> Value {
        loop {
            let record = self.record().expect("a query");
            if record["state"] == "query" {
                return record;
            }
        }
    }

    /// The next record that is no query.
    pub fn info(&mut self) -> Value {
        loop {
            let record = self.record().expect("a record");
            if record["state"] == "info" {
                return record;
            }
        }
    }

    /// Sends an answer to a query.
    pub fn answer(&mut self, query: &Value, action: &str) {
        self.send(&json!({"query_id": query["query_id"], "action": action}).to_string());
    }

    /// Sends an answer for the rest of the run.
    pub fn answer_for_the_run(&mut self, query: &Value, action: &str) {
        let answer = json!({"query_id": query["query_id"], "action": action, "scope": "run"});
        self.send(&answer.to_string());
    }

    /// Sends a line. The run may be over.
    pub fn send(&mut self, line: &str) {
        self.raw(format!("{line}\n").as_bytes());
    }

    /// Sends bytes. The run may be over.
    pub fn raw(&mut self, bytes: &[u8]) {
        let _ = self.stream.write_all(bytes);
    }

    /// Says that nothing more will be sent; what comes is still read.
    pub fn stop_writing(&self) {
        let _ = self.stream.shutdown(std::net::Shutdown::Write);
    }

    /// Answers every query alike until the run is over; the queries.
    pub fn answer_all(&mut self, action: &str) -> Vec<Value> {
        let mut queries = Vec::new();
        while let Some(record) = self.record() {
            if record["state"] == "query" {
                self.answer(&record, action);
                queries.push(record);
            }
        }
        queries
    }
}

impl Bed {
    /// Runs a program in a sandbox whose trap descriptor is a socket, and `client` on the other end.
    pub fn asked<T>(
        &self,
        policy: &Value,
        options: &[&str],
        program: &[&str],
        client: impl FnOnce(Client) -> T,
    ) -> (Run, T) {
        let path = self.root().join("socket");
        let _ = std::fs::remove_file(&path);
        let listener = UnixListener::bind(&path).expect("a socket");
        let mut all = vec!["3@{root}/socket"];
        all.extend(options);
        let command = self.sandboxed(policy, &all, program);
        let running = std::thread::spawn(move || finish(command, "no traps".as_ref()));
        listener.set_nonblocking(true).expect("not to wait");
        let until = Instant::now() + PATIENCE;
        let stream = loop {
            match listener.accept() {
                Ok((stream, _)) => break stream,
                Err(error) => assert!(Instant::now() < until, "nobody connects: {error}"),
            }
            std::thread::yield_now();
        };
        stream.set_nonblocking(false).expect("to wait");
        stream.set_read_timeout(Some(PATIENCE)).expect("a limit");
        let told = client(Client { stream, bytes: Vec::new(), seen: Vec::new() });
        (running.join().expect("the run"), told)
    }

    /// The probe in a sandbox, and `client` on the other end of the trap descriptor.
    pub fn asked_probe<T>(
        &self,
        policy: &Value,
        options: &[&str],
        ops: &[&str],
        client: impl FnOnce(Client) -> T,
    ) -> (Run, T) {
        let probe = super::probe().display().to_string();
        let mut program = vec![probe.as_str()];
        program.extend(ops);
        self.asked(policy, options, &program, client)
    }
}
