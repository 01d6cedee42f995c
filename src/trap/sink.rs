//! A stream of records to a descriptor that may be slow, stalled or gone.

use std::io::{ErrorKind, Write};

/// What became of a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sent {
    /// Written, or accepted and waiting for the reader.
    Yes,
    /// Dropped: the reader does not keep up.
    Dropped,
    /// Dropped: the reader is gone, now and for good.
    Closed,
}

/// Sends whole lines, best effort, and never more than it was given.
///
/// With a non-blocking writer no call waits. A line that was written in part is completed before
/// any other, so that a reader sees whole records or nothing; what cannot be taken is dropped and
/// counted. At most [`Sink::PENDING`] bytes, and one line, wait in memory.
#[derive(Debug)]
pub struct Sink<W> {
    writer: Option<W>,
    pending: Vec<u8>,
    dropped: u64,
}

impl<W: Write> Sink<W> {
    /// The bytes that may wait for a slow reader before lines are dropped.
    pub const PENDING: usize = 64 * 1024;

    /// A sink over `writer`.
    pub fn new(writer: W) -> Self {
        Sink { writer: Some(writer), pending: Vec::new(), dropped: 0 }
    }

    /// Sends `line`, which ends in a newline.
    pub fn send(&mut self, line: &str) -> Sent {
        if self.writer.is_some() && self.pending.len() >= Self::PENDING {
            self.flush();
        }
        if self.writer.is_none() {
            self.dropped += 1;
            return Sent::Closed;
        }
        if self.pending.len() >= Self::PENDING {
            self.dropped += 1;
            return Sent::Dropped;
        }
        self.pending.extend_from_slice(line.as_bytes());
        self.flush();
        if self.writer.is_none() { Sent::Closed } else { Sent::Yes }
    }

    /// Writes what waits, as far as the writer takes it.
    pub fn flush(&mut self) {
        let Some(writer) = &mut self.writer else {
            return;
        };
        let mut done = 0;
        while done < self.pending.len() {
            match writer.write(&self.pending[done..]) {
                Ok(0) => return self.close(),
                Ok(written) => done += written,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(_) => return self.close(),
            }
        }
        self.pending.drain(..done);
    }

    /// The writer, unless it failed.
    pub fn writer(&self) -> Option<&W> {
        self.writer.as_ref()
    }

    /// Whether something waits for the reader.
    pub fn is_pending(&self) -> bool {
        !self.pending.is_empty()
    }

    /// How many lines were dropped so far.
    pub fn dropped(&self) -> u64 {
        self.dropped
    }

    fn close(&mut self) {
        self.writer = None;
        self.pending = Vec::new();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io;

    /// A reader that takes `room` bytes and then would block; `gone` fails every write.
    #[derive(Debug)]
    struct Pipe {
        room: usize,
        gone: bool,
        taken: Vec<u8>,
    }

    impl Write for &mut Pipe {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            if self.gone {
                return Err(ErrorKind::BrokenPipe.into());
            }
            if self.room == 0 {
                return Err(ErrorKind::WouldBlock.into());
            }
            let taken = bytes.len().min(self.room).min(7);
            self.room -= taken;
            self.taken.extend_from_slice(&bytes[..taken]);
            Ok(taken)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_slow_reader_sees_whole_lines_and_bounded_memory() {
        let mut pipe = Pipe { room: 10, gone: false, taken: Vec::new() };
        let mut sink = Sink::new(&mut pipe);
        let line = format!("{}\n", "x".repeat(99));
        let sent = (0..10_000).filter(|_| sink.send(&line) == Sent::Yes).count();
        assert!(sink.is_pending());
        assert!(sink.pending.len() < Sink::<&mut Pipe>::PENDING + line.len());
        assert_eq!(sink.dropped(), 10_000 - sent as u64);
        sink.writer.as_mut().unwrap().room = usize::MAX;
        sink.flush();
        assert!(!sink.is_pending());
        assert_eq!(sink.send("end\n"), Sent::Yes);
        drop(sink);
        let text = String::from_utf8(pipe.taken).unwrap();
        let lines: Vec<_> = text.lines().collect();
        assert_eq!(lines.len(), sent + 1);
        assert!(lines[..sent].iter().all(|l| l.len() == 99));
    }

    #[test]
    fn a_reader_that_left_is_not_asked_again() {
        let mut pipe = Pipe { room: 100, gone: true, taken: Vec::new() };
        let mut sink = Sink::new(&mut pipe);
        assert_eq!(sink.send("a\n"), Sent::Closed);
        assert_eq!(sink.send("b\n"), Sent::Closed);
        assert!(sink.writer().is_none() && !sink.is_pending());
    }
}
