//! Operations that run elsewhere: in children, in threads, over and over, between signals.

use crate::args::{errno, fail, fill, leak, number};
use crate::{Outcome, Vars, run, show};
use std::collections::{BTreeMap, HashMap};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU64, Ordering};
use std::thread::JoinHandle;

/// A result, and what was kept.
type Running = JoinHandle<(Outcome, Vars)>;

static BACKGROUND: Mutex<Option<HashMap<String, Running>>> = Mutex::new(None);
static TICKS: AtomicU64 = AtomicU64::new(0);
/// Where each tick writes a byte; -1 for nowhere.
static TICK_TO: AtomicI32 = AtomicI32::new(-1);

/// Runs `word` if it is one of these.
pub fn word(word: &str, rest: &str, vars: &mut Vars, keep: Option<&str>) -> Option<Outcome> {
    Some(match word {
        "do" => sequence(rest, vars),
        "retry" => loop {
            match run(&named(rest, keep), vars) {
                Err(libc::EINTR) => {}
                outcome => break outcome,
            }
        },
        "child" => in_child(rest, vars, false),
        "vchild" => in_child(rest, vars, true),
        "thread" => {
            let (mut theirs, op) = (vars.clone(), rest.to_owned());
            std::thread::spawn(move || run(&op, &mut theirs)).join().unwrap_or(Ok("panic".into()))
        }
        "clone" | "clone3" => clone(word, number(rest, vars)),
        "loop" => {
            let (count, op) = rest.split_once(' ').unwrap_or((rest, ""));
            Ok(total(&repeat(number(count, vars), op, vars)))
        }
        "threads" => threads(rest, vars),
        "bg" => background(rest, vars),
        "join" => join(&fill(rest, vars), vars),
        "timer" => timer(&fill(rest, vars), vars),
        "ticked" => Ok(if TICKS.load(Ordering::Relaxed) > 0 { "yes" } else { "no" }.into()),
        _ => return None,
    })
}

/// The operation, its result kept under `name`.
fn named(op: &str, name: Option<&str>) -> String {
    name.map_or(op.to_owned(), |name| format!("{name}={op}"))
}

/// One operation after another, up to the first that fails.
fn sequence(ops: &str, vars: &mut Vars) -> Outcome {
    ops.split(" ; ").try_fold(String::new(), |_, op| run(op, vars))
}

fn in_child(op: &str, vars: &mut Vars, vfork: bool) -> Outcome {
    let mut ends = [0; 2];
    // SAFETY: plain calls. The child of vfork shares our memory while we wait, so it may use the
    // heap; both children leave through _exit. vfork's own return into a frame that goes on is
    // avoided by cloning onto a separate stack.
    unsafe {
        libc::pipe2(ends.as_mut_ptr(), libc::O_CLOEXEC);
        let mut job = (op, vars, ends[1]);
        let pid = if vfork {
            let stack = leak(vec![0; 1 << 20], &mut 0) + (1 << 20);
            let flags = libc::CLONE_VM | libc::CLONE_VFORK | libc::SIGCHLD;
            libc::clone(child, stack as *mut _, flags, (&raw mut job).cast())
        } else {
            libc::fork()
        };
        match pid {
            -1 => return Err(errno()),
            0 => _ = child((&raw mut job).cast()),
            _ => _ = libc::close(ends[1]),
        }
        let mut line = vec![0_u8; 4096];
        let size = libc::read(ends[0], line.as_mut_ptr().cast(), line.len());
        libc::close(ends[0]);
        let mut status = 0;
        libc::waitpid(pid, &raw mut status, 0);
        if libc::WIFSIGNALED(status) {
            return Ok(format!("killed by {}", libc::WTERMSIG(status)));
        }
        Ok(format!("child {}", String::from_utf8_lossy(&line[..size.max(0) as usize])))
    }
}

extern "C" fn child(job: *mut libc::c_void) -> i32 {
    // SAFETY: `in_child` passes a pointer to this very type, alive until the child has gone.
    unsafe {
        let job = &mut *job.cast::<(&str, &mut Vars, i32)>();
        let line = show(&run(job.0, job.1));
        libc::write(job.2, line.as_ptr().cast(), line.len());
        libc::_exit(0);
    }
}

fn clone(word: &str, flags: i64) -> Outcome {
    // SAFETY: without CLONE_VM the child has its own memory; it leaves at once.
    unsafe {
        let pid = if word == "clone" {
            libc::syscall(libc::SYS_clone, flags | i64::from(libc::SIGCHLD), 0, 0, 0, 0)
        } else {
            let mut args = [0_u64; 11]; // struct clone_args: flags first, exit_signal fifth
            args[0] = flags as u64;
            args[4] = libc::SIGCHLD as u64;
            libc::syscall(libc::SYS_clone3, args.as_ptr(), std::mem::size_of_val(&args))
        };
        match pid {
            -1 => Err(errno()),
            0 => libc::_exit(0),
            _ => {
                libc::waitpid(pid as i32, std::ptr::null_mut(), libc::__WALL);
                Ok(String::new())
            }
        }
    }
}

fn repeat(count: i64, op: &str, vars: &Vars) -> BTreeMap<String, u64> {
    let mut seen = BTreeMap::new();
    let mut vars = vars.clone();
    for turn in 0..count {
        vars.insert("i".into(), turn);
        *seen.entry(show(&run(op, &mut vars))).or_insert(0) += 1;
    }
    seen
}

fn total(seen: &BTreeMap<String, u64>) -> String {
    seen.iter().map(|(line, n)| format!("{line}*{n}")).collect::<Vec<_>>().join(" ")
}

fn threads(rest: &str, vars: &Vars) -> Outcome {
    let mut words = rest.splitn(3, ' ');
    let [count, turns, op] =
        [(); 3].map(|()| words.next().unwrap_or_else(|| fail("threads T N OP")));
    let turns = number(turns, vars);
    let mut all = BTreeMap::new();
    std::thread::scope(|scope| {
        let spawn = |thread| {
            let mut vars = vars.clone();
            vars.insert("t".into(), thread);
            scope.spawn(move || repeat(turns, op, &vars))
        };
        let running: Vec<_> = (0..number(count, vars)).map(spawn).collect();
        for one in running {
            for (line, n) in one.join().unwrap_or_default() {
                *all.entry(line).or_insert(0) += n;
            }
        }
    });
    Ok(total(&all))
}

fn background(rest: &str, vars: &Vars) -> Outcome {
    let (name, op) = rest.split_once(' ').unwrap_or((rest, ""));
    let (op, mut theirs) = (op.to_owned(), vars.clone());
    let thread = std::thread::spawn(move || {
        let outcome = run(&op, &mut theirs);
        // What it kept, and nothing that may have changed here meanwhile.
        let kept = op.split(' ').next().and_then(|word| word.split_once('='));
        theirs.retain(|name, _| kept.is_some_and(|(kept, _)| kept == name));
        (outcome, theirs)
    });
    let mut all = BACKGROUND.lock().map_err(|_| -1)?;
    all.get_or_insert_default().insert(name.into(), thread);
    Ok(String::new())
}

fn join(name: &str, vars: &mut Vars) -> Outcome {
    let thread = BACKGROUND.lock().map_err(|_| -1)?.get_or_insert_default().remove(name);
    let thread = thread.unwrap_or_else(|| fail(&format!("nothing runs as {name}")));
    let (outcome, theirs) = thread.join().map_err(|_| -1)?;
    vars.extend(theirs);
    outcome
}

extern "C" fn tick(_: i32) {
    TICKS.fetch_add(1, Ordering::Relaxed);
    let to = TICK_TO.load(Ordering::Relaxed);
    if to >= 0 {
        // SAFETY: async-signal-safe, of a byte that is there; errno is put back.
        unsafe {
            let before = *libc::__errno_location();
            libc::write(to, c"t".as_ptr().cast(), 1);
            *libc::__errno_location() = before;
        }
    }
}

fn timer(text: &str, vars: &Vars) -> Outcome {
    let mut words = text.split(' ');
    let every = words.next().unwrap_or_default();
    let mode = words.next().unwrap_or_default();
    TICK_TO.store(words.next().map_or(-1, |fd| number(fd, vars) as i32), Ordering::Relaxed);
    let every = libc::timeval { tv_sec: 0, tv_usec: number(every, vars) };
    let value = libc::itimerval { it_interval: every, it_value: every };
    // SAFETY: a handler that only adds to an atomic; structs of the right type.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = tick as *const () as usize;
        action.sa_flags = if mode == "norestart" { 0 } else { libc::SA_RESTART };
        libc::sigaction(libc::SIGALRM, &raw const action, std::ptr::null_mut());
        if mode.starts_with("posix") || POSIX_TIMER.load(Ordering::Relaxed) {
            posix_timer(mode == "posix-thread", every);
        } else {
            libc::setitimer(libc::ITIMER_REAL, &raw const value, std::ptr::null_mut());
        }
    }
    Ok(String::new())
}

/// Whether there is a timer of timer_create(2), which is the first one: its number is 0.
static POSIX_TIMER: AtomicBool = AtomicBool::new(false);

/// The same by timer_create(2), for the process or for this thread.
fn posix_timer(thread: bool, every: libc::timeval) {
    let every = libc::timespec { tv_sec: 0, tv_nsec: every.tv_usec * 1000 };
    let value = libc::itimerspec { it_interval: every, it_value: every };
    let mut id: libc::timer_t = std::ptr::null_mut();
    // SAFETY: structs of the right type, zeroed before; the timer is the one that was made first.
    let result = unsafe {
        let mut event: libc::sigevent = std::mem::zeroed();
        event.sigev_signo = libc::SIGALRM;
        event.sigev_notify = if thread { libc::SIGEV_THREAD_ID } else { libc::SIGEV_SIGNAL };
        event.sigev_notify_thread_id = libc::gettid();
        if !POSIX_TIMER.swap(true, Ordering::Relaxed) {
            assert_eq!(libc::timer_create(libc::CLOCK_MONOTONIC, &raw mut event, &raw mut id), 0);
            assert!(id.is_null(), "another timer was made before");
        }
        libc::timer_settime(id, 0, &raw const value, std::ptr::null_mut())
    };
    assert_eq!(result, 0, "timer_settime");
}
