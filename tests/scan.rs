//! The pure modules stay pure, and unsafe code stays where it is meant to be.

use std::path::{Path, PathBuf};

fn sources(below: &str) -> Vec<PathBuf> {
    let mut todo = vec![Path::new(env!("CARGO_MANIFEST_DIR")).join("src").join(below)];
    let mut files = Vec::new();
    while let Some(directory) = todo.pop() {
        for entry in std::fs::read_dir(&directory).expect("a source directory").flatten() {
            let path = entry.path();
            if path.is_dir() {
                todo.push(path);
            } else if path.extension().is_some_and(|e| e == "rs") {
                files.push(path);
            }
        }
    }
    files.sort();
    files
}

/// The code of a file, by line: without comments, and without the tests at its end.
fn code(path: &Path) -> Vec<(usize, String)> {
    let text = std::fs::read_to_string(path).expect("a source file");
    let mut lines = Vec::new();
    for (number, line) in text.lines().enumerate() {
        if line.trim() == "#[cfg(test)]" && lines.len() > 1 {
            let rest = text.lines().nth(number + 1).unwrap_or_default().trim_start();
            // Tests in the file itself come last; `mod tests;` is a file of its own.
            if rest.starts_with("mod") && rest.ends_with('{') {
                break;
            }
        }
        let code = line.split("//").next().unwrap_or_default();
        lines.push((number + 1, code.to_owned()));
    }
    lines
}

/// The path below `src`.
fn inside(path: &Path) -> &Path {
    path.strip_prefix(Path::new(env!("CARGO_MANIFEST_DIR")).join("src")).expect("a file below src")
}

fn is_test(path: &Path) -> bool {
    let named =
        |part: &std::ffi::OsStr| part == "tests" || part == "tests.rs" || part == "fixtures.rs";
    inside(path).components().any(|part| named(part.as_os_str()))
}

/// Whether `word` stands in `code` by itself.
fn has_word(code: &str, word: &str) -> bool {
    let boundary = |c: Option<char>| !c.is_some_and(|c| c.is_alphanumeric() || c == '_');
    code.match_indices(word).any(|(at, _)| {
        boundary(code[..at].chars().next_back()) && boundary(code[at + word.len()..].chars().next())
    })
}

#[test]
fn pure_modules_touch_no_host() {
    const FORBIDDEN: &[&str] = &[
        "std::fs",
        "std::env",
        "std::process",
        "TcpStream",
        "TcpListener",
        "UdpSocket",
        "ToSocketAddrs",
        "std::os",
        "std::thread",
        "libc",
        "nix",
        "rustix",
        "landlock::",
        "caps::",
        "unsafe",
        "target_os",
    ];
    let mut found = Vec::new();
    let mut files = 0;
    for module in ["policy", "plan", "lower", "trap", "learn", "oci/seccomp"] {
        for path in sources(module).iter().filter(|path| !is_test(path)) {
            files += 1;
            for (number, code) in code(path) {
                for word in
                    FORBIDDEN.iter().filter(|word| has_word(&code, word.trim_end_matches(':')))
                {
                    // The crate `landlock`, not the word in a name or a message.
                    if word.ends_with("::") && !code.contains(*word) {
                        continue;
                    }
                    // Platforms are named in messages and data; a conditional compilation is not.
                    if !code.contains('"') || code.contains("cfg") {
                        found.push(format!("{}:{number}: {word}: {}", path.display(), code.trim()));
                    }
                }
            }
        }
    }
    assert!(files > 10, "the scan saw {files} files");
    assert!(found.is_empty(), "\n{}", found.join("\n"));
}

#[test]
fn unsafe_code_is_in_the_modules_for_it() {
    let mut found = Vec::new();
    let mut uses = 0;
    for path in sources("") {
        let (path, lines) = (inside(&path).to_owned(), code(&path));
        let system = path.components().any(|c| c.as_os_str() == "sys") || path.ends_with("sys.rs");
        for (number, code) in lines {
            if !has_word(&code, "unsafe") {
                continue;
            }
            uses += 1;
            // The program's entry is what the C library calls, with its kind of strings.
            let entry = path == Path::new("main.rs");
            if !system && !entry {
                found.push(format!("{}:{number}: {}", path.display(), code.trim()));
            }
        }
    }
    assert!(uses > 0, "the scan saw no unsafe code at all");
    assert!(found.is_empty(), "\n{}", found.join("\n"));
}

/// Every unsafe block says what makes it sound.
#[test]
fn unsafe_blocks_say_why() {
    let mut found = Vec::new();
    for path in sources("") {
        let text = std::fs::read_to_string(&path).expect("a source file");
        let lines: Vec<&str> = text.lines().collect();
        for (number, line) in lines.iter().enumerate() {
            let code = line.split("//").next().unwrap_or_default();
            if !code.contains("unsafe {") {
                continue;
            }
            let near = &lines[number.saturating_sub(12)..=number];
            if !near.iter().any(|l| l.contains("SAFETY:")) {
                found.push(format!("{}:{}: {}", path.display(), number + 1, line.trim()));
            }
        }
    }
    assert!(found.is_empty(), "\n{}", found.join("\n"));
}
