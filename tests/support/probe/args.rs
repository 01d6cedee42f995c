//! The arguments of a raw system call.
//!
//! | form | becomes |
//! |---|---|
//! | `12`, `0644`, `0x1f` | a number (a leading 0 is octal) |
//! | `O_RDWR\|O_CREAT` | the constants, or-ed |
//! | `$name` | the value kept under that name |
//! | `"text` | pointer to a NUL-terminated string; `{name}` is replaced by a kept value |
//! | `long:N:text` | pointer to text followed by N letters |
//! | `bytes:text`, `buf:N` | pointer to bytes, to N zero bytes |
//! | `i:N` | pointer to a 64-bit number |
//! | `how:FLAGS,MODE,RESOLVE` | `struct open_how` |
//! | `ts:A,M`, `tv:A,M`, `ut:A,M` | two timespec, two timeval, utimbuf; seconds, `now` or `omit` |
//! | `xa:text` | `struct xattr_args` |
//! | `un:path`, `abs:name`, `in:IP:PORT`, `family:N` | socket addresses |
//! | `#` | the size in bytes of what the previous pointer points to |

use crate::{Vars, table};
use std::ffi::CString;

/// A system call, ready to be made any number of times.
#[derive(Clone, Copy)]
pub struct Call {
    /// The system call number.
    pub number: i64,
    /// Its arguments; missing ones are 0.
    pub args: [i64; 6],
}

impl Call {
    /// Reads `word` as the name of a system call and `rest` as its arguments.
    pub fn parse(word: &str, rest: &str, vars: &Vars) -> Call {
        Call::parse_with(word, rest, vars, None)
    }

    /// Like [`Call::parse`], with the argument `RACE` standing for the pointer `race`.
    pub fn parse_with(word: &str, rest: &str, vars: &Vars, race: Option<i64>) -> Call {
        let number = table::number(word).unwrap_or_else(|| fail(&format!("no such call: {word}")));
        let mut args = [0; 6];
        let mut size = 0;
        for (slot, text) in args.iter_mut().zip(rest.split(' ').filter(|t| !t.is_empty())) {
            *slot = match (text, race) {
                ("RACE", Some(pointer)) => pointer,
                _ => value(text, vars, &mut size),
            };
        }
        Call { number, args }
    }

    /// Makes the call.
    pub fn make(&self) -> Result<i64, i32> {
        let a = self.args;
        // SAFETY: what the test asked for; pointers are leaked allocations or deliberately bad.
        let got = unsafe { libc::syscall(self.number, a[0], a[1], a[2], a[3], a[4], a[5]) };
        if got == -1 { Err(errno()) } else { Ok(got) }
    }
}

/// The errno of the last call.
pub fn errno() -> i32 {
    std::io::Error::last_os_error().raw_os_error().unwrap_or(0)
}

/// Ends the probe: the script itself is wrong.
pub fn fail(message: &str) -> ! {
    println!("probe: {message}");
    std::process::exit(99);
}

/// Replaces `{name}` by kept values.
pub fn fill(text: &str, vars: &Vars) -> String {
    let mut text = text.to_owned();
    for (name, value) in vars {
        text = text.replace(&format!("{{{name}}}"), &value.to_string());
    }
    text
}

/// A number, a kept value or constants joined by `|`.
pub fn number(text: &str, vars: &Vars) -> i64 {
    if let Some(name) = text.strip_prefix('$') {
        return *vars.get(name).unwrap_or_else(|| fail(&format!("nothing kept as {name}")));
    }
    text.split('|').map(one_number).fold(0, |a, b| a | b)
}

fn one_number(text: &str) -> i64 {
    let parsed = if let Some(hex) = text.strip_prefix("0x") {
        u64::from_str_radix(hex, 16).map(|n| n as i64)
    } else if text.len() > 1 && text.starts_with('0') {
        i64::from_str_radix(&text[1..], 8)
    } else {
        text.parse()
    };
    parsed
        .ok()
        .or_else(|| table::constant(text))
        .unwrap_or_else(|| fail(&format!("number: {text}")))
}

/// Keeps bytes for the life of the process and gives their address.
pub fn leak(bytes: Vec<u8>, size: &mut usize) -> i64 {
    *size = bytes.len();
    Box::leak(bytes.into_boxed_slice()).as_mut_ptr() as i64
}

fn words_of(numbers: &[i64], size: &mut usize) -> i64 {
    leak(numbers.iter().flat_map(|n| n.to_ne_bytes()).collect(), size)
}

/// The value of one argument; `size` is the size of the last thing pointed to.
pub fn value(text: &str, vars: &Vars, size: &mut usize) -> i64 {
    if text == "#" {
        return *size as i64;
    }
    if let Some(s) = text.strip_prefix('"') {
        let s = CString::new(fill(s, vars)).unwrap_or_else(|_| fail("NUL in text"));
        return leak(s.into_bytes_with_nul(), size);
    }
    let Some((form, body)) = text.split_once(':') else {
        return number(text, vars);
    };
    let body = fill(body, vars);
    let list = || -> Vec<i64> { body.split(',').map(|n| number(n, vars)).collect() };
    match form {
        "long" => {
            let (count, text) = body.split_once(':').unwrap_or((&body, ""));
            let count = number(count, vars) as usize;
            leak(format!("{text}{}\0", "n".repeat(count)).into_bytes(), size)
        }
        "bytes" => leak(body.into_bytes(), size),
        "buf" => leak(vec![0; number(&body, vars) as usize], size),
        "i" | "how" => words_of(&list(), size),
        "ts" | "tv" => {
            let mut numbers = Vec::new();
            for part in body.split(',') {
                match part {
                    "now" => numbers.extend([0, libc::UTIME_NOW]),
                    "omit" => numbers.extend([0, libc::UTIME_OMIT]),
                    secs => numbers.extend([number(secs, vars), 0]),
                }
            }
            words_of(&numbers, size)
        }
        "ut" => words_of(&list(), size),
        "xa" => {
            let len = body.len() as i64;
            let pointer = leak(body.into_bytes(), size);
            words_of(&[pointer, len], size) // value, then size:32 flags:32
        }
        "un" | "abs" => {
            let mut bytes = (libc::AF_UNIX as u16).to_ne_bytes().to_vec();
            bytes.extend(if form == "abs" { vec![0] } else { vec![] });
            bytes.extend(body.as_bytes());
            bytes.extend(if form == "un" { vec![0] } else { vec![] });
            leak(bytes, size)
        }
        "family" => {
            let mut bytes = vec![0; 28];
            bytes[..2].copy_from_slice(&(number(&body, vars) as u16).to_ne_bytes());
            leak(bytes, size)
        }
        "in" => leak(inet(&body), size),
        _ => number(text, vars),
    }
}

fn inet(text: &str) -> Vec<u8> {
    let address: std::net::SocketAddr = text.parse().unwrap_or_else(|_| fail("address"));
    let mut bytes;
    match address {
        std::net::SocketAddr::V4(a) => {
            bytes = (libc::AF_INET as u16).to_ne_bytes().to_vec();
            bytes.extend(a.port().to_be_bytes());
            bytes.extend(a.ip().octets());
            bytes.extend([0; 8]);
        }
        std::net::SocketAddr::V6(a) => {
            bytes = (libc::AF_INET6 as u16).to_ne_bytes().to_vec();
            bytes.extend(a.port().to_be_bytes());
            bytes.extend([0; 4]);
            bytes.extend(a.ip().octets());
            bytes.extend([0; 4]);
        }
    }
    bytes
}
