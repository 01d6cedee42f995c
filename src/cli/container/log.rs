//! The log of the runtime: the file of `--log`, and standard error.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::time::{SystemTime, UNIX_EPOCH};

use serde_json::json;

use super::args::{GlobalArgs, LogFormat};
use crate::trap::printable;

/// Where messages go.
pub struct Log {
    file: Option<File>,
    format: LogFormat,
    name: String,
}

impl Log {
    /// Opens the log that the command line names.
    ///
    /// # Errors
    ///
    /// As open(2).
    pub fn open(global: &GlobalArgs, name: &str) -> Result<Log, String> {
        let file = global.log.as_ref().filter(|path| !path.as_os_str().is_empty()).map(|path| {
            let mut options = OpenOptions::new();
            options.append(true).create(true).mode(0o600);
            options.open(path).map_err(|error| format!("--log {}: {error}", path.display()))
        });
        let format = global.log_format.unwrap_or_default();
        Ok(Log { file: file.transpose()?, format, name: name.to_owned() })
    }

    /// A message that ends the command.
    pub fn error(&self, message: &str) {
        self.say("error", message);
        self.line("error", message);
    }

    /// A message that does not. It goes to the file alone where there is one: standard error may be the
    /// container's.
    pub fn warning(&self, message: &str) {
        if self.file.is_none() {
            self.say("warning", message);
        }
        self.line("warning", message);
    }

    fn say(&self, level: &str, message: &str) {
        let text = format!("{}: {level}: {}\n", self.name, printable(message));
        let _nowhere_to_report = io::stderr().write_all(text.as_bytes());
    }

    fn line(&self, level: &str, message: &str) {
        let Some(mut file) = self.file.as_ref() else { return };
        let time = rfc3339(SystemTime::now());
        let line = match self.format {
            LogFormat::Json => {
                format!("{}\n", json!({"level": level, "msg": message, "time": time}))
            }
            LogFormat::Text => format!("time={time:?} level={level} msg={message:?}\n"),
        };
        let _nowhere_to_report = file.write_all(line.as_bytes());
    }
}

/// A time as RFC 3339 has it, in UTC.
pub fn rfc3339(time: SystemTime) -> String {
    let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
    let seconds = since.as_secs();
    let (days, second) = (seconds / 86_400, seconds % 86_400);
    let (year, month, day) = date(days);
    let (hour, minute, second) = (second / 3600, second / 60 % 60, second % 60);
    let nanos = since.subsec_nanos();
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{nanos:09}Z")
}

/// The date of a day, counted from 1970-01-01: years that begin in March put the leap day last.
fn date(days: u64) -> (u64, u64, u64) {
    let days = days + 719_468; // from 0000-03-01
    let (era, day) = (days / 146_097, days % 146_097);
    let year = (day - day / 1460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day + 2) / 153;
    let day = day - (153 * month + 2) / 5 + 1;
    let (year, month) = (era * 400 + year, month + 3);
    if month > 12 { (year + 1, month - 12, day) } else { (year, month, day) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn times() {
        for (seconds, expected) in [
            (0, "1970-01-01T00:00:00.000000000Z"),
            (951_827_696, "2000-02-29T12:34:56.000000000Z"),
            (1_709_251_199, "2024-02-29T23:59:59.000000000Z"),
            (4_107_542_400, "2100-03-01T00:00:00.000000000Z"),
        ] {
            assert_eq!(rfc3339(UNIX_EPOCH + Duration::from_secs(seconds)), expected);
        }
    }
}
