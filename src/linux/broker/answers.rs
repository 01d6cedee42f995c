//! The thread that reads answers to queries. It does nothing that could wait.

use super::pool;
use super::query::Queries;
use super::{Broker, Errno};
use crate::trap::{Lines, Mistake, State, Trap, parse_answer};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::RecvFlags;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant, SystemTime};

/// How often waiting calls are looked at: whether they still wait, or have a signal to take.
const LOOK: Duration = Duration::from_millis(50);
/// Most mistakes of one run that are told.
const MOST_TOLD: u32 = 100;

/// What the thread has in hand.
struct Reader {
    /// Where the last look ended.
    looked_at: u64,
    next_look: Instant,
    /// An answer came since. Who asks once asks again: to be woken for the next question as well would cost
    /// each of them a change of threads.
    is_busy: bool,
    /// Mistakes so far.
    mistakes: u32,
}

/// Starts the thread that reads answers, where there are queries at all. Without it nothing is asked.
pub fn start(broker: &Arc<Broker>) {
    let Some(queries) = &broker.queries else { return };
    let ours = Arc::clone(broker);
    let read = move || {
        if let Some(queries) = &ours.queries {
            let next_look = Instant::now();
            let reader = Reader { looked_at: 0, next_look, is_busy: false, mistakes: 0 };
            reader.run(&ours, queries);
        }
    };
    if thread::Builder::new().stack_size(pool::STACK).spawn(read).is_err() {
        queries.close(broker);
    }
}

impl Reader {
    /// Reads answers until nobody gives any.
    fn run(mut self, broker: &Arc<Broker>, queries: &Queries) {
        let (mut lines, mut buffer) = (Lines::default(), [0; 4096]);
        while !queries.is_closed() {
            // Also while bytes keep coming.
            if self.next_look <= Instant::now() {
                queries.look(broker, &mut self.looked_at);
                self.next_look = Instant::now() + LOOK;
                self.is_busy = false;
            }
            match self.wait(broker, queries) {
                Ok(false) => continue,
                Ok(true) => {}
                Err(_) => queries.close(broker),
            }
            match rustix::net::recv(&queries.socket, &mut buffer, RecvFlags::DONTWAIT) {
                Ok((0, _)) => {
                    if lines.is_half() {
                        self.tell(broker, Mistake::of("the end of the line is missing"));
                    }
                    queries.close(broker);
                }
                Ok((size, _)) => {
                    lines.push(&buffer[..size], |line| self.take(broker, queries, line));
                }
                Err(Errno::AGAIN | Errno::INTR) => {}
                Err(_) => queries.close(broker),
            }
        }
    }

    /// Takes one line; none for one that is too long.
    fn take(&mut self, broker: &Arc<Broker>, queries: &Queries, line: Option<&[u8]>) {
        use crate::trap::{Action, Scope};
        let Some(line) = line else {
            let why = format!("longer than {} bytes", Lines::LONGEST);
            return self.tell(broker, Mistake::of(why));
        };
        match parse_answer(line) {
            Ok(answer) => {
                self.is_busy = true;
                if !queries.answer(broker, answer) {
                    let (id, ..) = answer;
                    let why = format!("query {id} is not asked, or over");
                    self.tell(broker, Mistake { query: Some(id), why });
                }
            }
            Err(mistake) => {
                if let Some(id) = mistake.query {
                    queries.answer(broker, (id, Action::Deny, Scope::Once));
                }
                self.tell(broker, mistake);
            }
        }
    }

    /// Says on the stream what is wrong with a line.
    fn tell(&mut self, broker: &Broker, mistake: Mistake) {
        self.mistakes = self.mistakes.saturating_add(1);
        if self.mistakes > MOST_TOLD {
            return;
        }
        let Mistake { query: query_id, why: mut message } = mistake;
        if self.mistakes == MOST_TOLD {
            message.push_str(" (nothing more is told of lines that are no answers)");
        }
        let trap = Trap::Control { query_id, message };
        broker.reporter.stream(&trap.json_line(SystemTime::now(), State::Info, 0));
    }

    /// Waits until there is something to read, or to do; whether there is something to read.
    fn wait(&self, broker: &Broker, queries: &Queries) -> Result<bool, Errno> {
        let mut wanted = PollFlags::IN;
        // Records that the other end had no room for wait with us.
        let pending = broker.reporter.is_pending();
        if pending {
            wanted |= PollFlags::OUT;
        }
        let limit = queries.watch(self.is_busy).then(|| {
            let left = self.next_look.saturating_duration_since(Instant::now());
            Timespec::try_from(left).expect("a fraction of a second")
        });
        let mut fds =
            [PollFd::new(&queries.socket, wanted), PollFd::new(&queries.wake, PollFlags::IN)];
        match poll(&mut fds, limit.as_ref()) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(errno) => return Err(errno),
        }
        let (socket, wake) = (fds[0].revents(), fds[1].revents());
        if wake.contains(PollFlags::IN) {
            let _ = rustix::io::read(&queries.wake, &mut [0; 8]);
        }
        if pending && socket.contains(PollFlags::OUT) {
            broker.reporter.flush();
        }
        Ok(socket.intersects(PollFlags::IN | PollFlags::HUP | PollFlags::ERR))
    }
}
