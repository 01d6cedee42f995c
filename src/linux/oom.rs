//! Whom the kernel takes when memory runs out: the program, and not the launcher.

use std::fs::File;
use std::io::{Read, Seek, Write};

/// How much sooner the program is taken, in thousandths of the memory there is.
const SOONER: i32 = 300;

/// The launcher's score (`oom_score_adj`, proc_pid_oom_score_adj(5)), raised so that the program
/// inherits that.
///
/// A program can use up memory that counts for no process (memory files); then the launcher would be
/// the largest, and the kernel kills whoever shares its memory with it, the watcher. Where there is no
/// procfs, or the score cannot be higher, nothing changes.
pub struct Score(Option<(File, i32)>);

impl Score {
    /// Raises it, to be called before the outer domain is entered.
    pub fn raise() -> Score {
        Score(raise().ok())
    }

    /// Puts it back for the launcher, and for the watcher, which shares its memory.
    pub fn restore(self) {
        if let Score(Some((mut file, before))) = self {
            let _ = file.rewind().and_then(|()| file.write_all(before.to_string().as_bytes()));
        }
    }
}

fn raise() -> std::io::Result<(File, i32)> {
    let mut file = File::options().read(true).write(true).open("/proc/self/oom_score_adj")?;
    let mut text = String::new();
    file.read_to_string(&mut text)?;
    let before: i32 = text.trim().parse().map_err(std::io::Error::other)?;
    file.rewind()?;
    file.write_all((before + SOONER).min(1000).to_string().as_bytes())?;
    Ok((file, before))
}
