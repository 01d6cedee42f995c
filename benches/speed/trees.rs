//! Directories full of files, and the sources that the workloads read.

use std::fmt::Write as _;
use std::fs::{self, File};
use std::io;
use std::path::Path;
use std::time::{Duration, SystemTime};

/// Makes `count` empty files in `dir`.
///
/// # Errors
///
/// When a file cannot be made.
pub fn files(dir: &Path, count: usize) -> io::Result<()> {
    for number in 0..count {
        File::create(dir.join(format!("f{number:06}")))?;
    }
    Ok(())
}

/// Makes `outer` directories of `inner` directories of `count` empty files below `dir`.
///
/// # Errors
///
/// When a file or directory cannot be made.
pub fn nested(dir: &Path, outer: usize, inner: usize, count: usize) -> io::Result<()> {
    for first in 0..outer {
        for second in 0..inner {
            let leaf = dir.join(format!("d{first:03}/d{second:03}"));
            fs::create_dir_all(&leaf)?;
            files(&leaf, count)?;
        }
    }
    Ok(())
}

/// Makes `count` text files of about `lines` lines below `dir`, a hundred in a directory, last
/// changed an hour ago (git reads a file again that is as young as its index).
///
/// # Errors
///
/// When a file cannot be written.
pub fn sources(dir: &Path, count: usize, lines: usize) -> io::Result<()> {
    let age = SystemTime::now() - Duration::from_secs(3600);
    for number in 0..count {
        let folder = dir.join(format!("module{:03}", number / 100));
        fs::create_dir_all(&folder)?;
        let mut text = String::new();
        for line in 0..lines {
            let _ = writeln!(
                text,
                "static int value_{number}_{line}(int x) {{ return x * {line} + {number}; }}"
            );
        }
        let path = folder.join(format!("file{number:05}.c"));
        fs::write(&path, text)?;
        File::options().write(true).open(&path)?.set_modified(age)?;
    }
    Ok(())
}

/// Writes a C file that includes the common headers and takes a compiler some real work.
///
/// # Errors
///
/// When it cannot be written.
pub fn c_file(path: &Path) -> io::Result<()> {
    let mut text = String::from(
        "#include <errno.h>\n#include <stdio.h>\n#include <stdlib.h>\n#include <string.h>\n\
         #include <sys/stat.h>\n#include <time.h>\n#include <unistd.h>\n",
    );
    for number in 0..20 {
        let _ = writeln!(
            text,
            "int step{number}(const char *text, size_t length) {{\n\
             \tint sum = {number};\n\
             \tfor (size_t i = 0; i < length; i++) sum = sum * 31 + text[i];\n\
             \tif (sum == 0) fprintf(stderr, \"%s: %s\\n\", text, strerror(errno));\n\
             \treturn sum;\n}}"
        );
    }
    fs::write(path, text)
}

/// Writes a crate without dependencies: a build script, `modules` modules, a program.
///
/// # Errors
///
/// When a file cannot be written.
pub fn rust_crate(dir: &Path, modules: usize) -> io::Result<()> {
    fs::create_dir_all(dir.join("src"))?;
    fs::write(
        dir.join("Cargo.toml"),
        "[package]\nname = \"small\"\nversion = \"0.1.0\"\nedition = \"2021\"\n[workspace]\n",
    )?;
    fs::write(
        dir.join("build.rs"),
        "use std::{env, fs, path::Path};\n\
         fn main() {\n    let out = env::var(\"OUT_DIR\").unwrap();\n    \
         fs::write(Path::new(&out).join(\"seed.rs\"), \"pub const SEED: u64 = 7;\").unwrap();\n}\n",
    )?;
    let mut root = String::from("include!(concat!(env!(\"OUT_DIR\"), \"/seed.rs\"));\n");
    let mut sum = String::from("0");
    for number in 0..modules {
        let mut text = String::from("use std::collections::BTreeMap;\n");
        for step in 0..10 {
            let _ = writeln!(
                text,
                "pub fn step{step}(words: &[String]) -> BTreeMap<String, u64> {{\n    \
                 let mut map = BTreeMap::new();\n    \
                 for word in words {{ *map.entry(word.to_uppercase()).or_insert({step}) += {number}; }}\n    \
                 map\n}}"
            );
        }
        fs::write(dir.join(format!("src/part{number}.rs")), text)?;
        let _ = writeln!(root, "mod part{number};");
        for step in 0..10 {
            let _ = write!(sum, " + part{number}::step{step}(&words).len()");
        }
    }
    let _ = writeln!(
        root,
        "fn main() {{\n    let words: Vec<String> = std::env::args().collect();\n    \
         println!(\"{{}} {{}}\", SEED, {sum});\n}}"
    );
    fs::write(dir.join("src/main.rs"), root)
}
