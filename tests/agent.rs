//! `@agent` on what agents do: it keeps what the host reads or runs later as it is, and lets git commit.
#![cfg(target_os = "linux")]

mod support;

use serde_json::{Value, json};
use std::process::Command;
use support::have::have;
use support::{ACCEPT, Bed, LANDSTRIP, Run, finish};

/// Runs a shell script in `in` under a policy that ships with the program; `out` is the home directory.
fn under(bed: &Bed, policy: &str, script: &str) -> Run {
    let mut command = bed.command(LANDSTRIP.as_ref());
    command.args(["run", ACCEPT, "-p", policy, "--", "/bin/sh", "-c", &bed.fill(script)]);
    finish(at_home(bed, command), "no traps".as_ref())
}

/// The same without a sandbox.
fn bare(bed: &Bed, script: &str) -> Run {
    let mut command = bed.command("/bin/sh".as_ref());
    command.args(["-c", &bed.fill(script)]);
    finish(at_home(bed, command), "no traps".as_ref())
}

fn at_home(bed: &Bed, mut command: Command) -> Command {
    for (name, value) in [("AUTHOR_NAME", "n"), ("AUTHOR_EMAIL", "e@x")] {
        command.env(format!("GIT_{name}"), value);
        command.env(format!("GIT_{}", name.replace("AUTHOR", "COMMITTER")), value);
    }
    command.env("HOME", bed.fill("{out}")).env("GIT_CONFIG_NOSYSTEM", "1");
    command
}

/// What the host reads or runs later, there already or not, is not written; the same names elsewhere are free.
#[test]
fn what_the_host_runs_later_is_not_written() {
    const NAMES: &[&str] = &[
        ".git/hooks/pre-commit",
        ".git/config",
        "sub/.git/hooks/post-checkout",
        ".vscode/tasks.json",
        ".idea/workspace.xml",
        "sub/.mcp.json",
        ".envrc",
        ".claude/settings.json",
        ".devcontainer/devcontainer.json",
        ".gitmodules",
        ".husky/pre-commit",
        ".pre-commit-config.yaml",
        "sub/lefthook.yml",
        "x.code-workspace",
        ".exrc",
        ".gemini/settings.json",
        "opencode.json",
        ".kiro/settings/mcp.json",
    ];
    for existing in [false, true] {
        let bed = Bed::new(&[]);
        let directories = "mkdir -p .git sub/.git";
        let all = NAMES.iter().map(|name| format!("mkdir -p $(dirname {name}); : > {name}"));
        let made: Vec<String> = all.filter(|_| existing).collect();
        assert_eq!(
            bare(&bed, &[&[directories.to_owned()], &*made].concat().join("\n")).code,
            Some(0)
        );
        let mut failures = Vec::new();
        for name in NAMES {
            let write = format!("mkdir -p $(dirname {name}) && echo x >> {name}");
            // By another name of its own, where its directory is there.
            let moved = format!("mkdir -p n && echo x > n/f && mv n/f {name}");
            for script in [&write, &moved].into_iter().take(if existing { 2 } else { 1 }) {
                let run = under(&bed, "@agent", script);
                let held = std::fs::read(bed.root().join("in").join(name)).unwrap_or_default();
                if run.code == Some(0) || !held.is_empty() || !run.stderr.contains("_DENIED") {
                    failures.push(format!("{script}: {run:?}"));
                }
            }
        }
        assert!(failures.is_empty(), "{}", failures.join("\n"));
        // Control: without these denials each is written.
        for name in NAMES {
            let run = under(
                &bed,
                "@workspace",
                &format!("mkdir -p $(dirname {name}) && echo x > {name}"),
            );
            assert_eq!(run.code, Some(0), "{name}: {run:?}");
        }
        let run =
            under(&bed, "@agent", "mkdir -p src && echo x > src/tasks.json && echo x > envrc");
        assert_eq!((run.code, run.stderr.as_str()), (Some(0), ""));
    }
}

/// The same of what stands in the home directory, where that is the workspace: of each program whose files run
/// commands, under all the names that it looks for them.
#[test]
fn what_the_host_runs_later_is_not_written_at_home() {
    const NAMES: &[&str] = &[
        ".bashrc",
        ".bash_completion",
        ".cshrc",
        ".config/zsh/.zshrc",
        ".cargo/bin/cargo",
        ".cargo/env",
        ".cargo/config",
        ".rustup/toolchains/stable/bin/cargo",
        ".local/bin/ls",
        ".local/lib/python3/site-packages/x.pth",
        ".nvm/nvm.sh",
        ".config/systemd/user/x.service",
        ".local/share/systemd/user/x.service",
        ".xprofile",
        ".vimrc",
        ".vim/plugin/x.vim",
        ".config/nvim/init.lua",
        ".local/share/nvim/site/plugin/x.vim",
        ".emacs",
        ".config/tmux/tmux.conf",
        ".gdbinit",
        ".docker/cli-plugins/docker-x",
        ".aws/config",
        ".kube/config",
    ];
    let bed = Bed::new(&[]);
    let mut failures = Vec::new();
    for name in NAMES {
        let script = &format!("mkdir -p $(dirname {name}) && echo x > {name}");
        for (policy, succeeds) in [("@agent", false), ("@workspace", true)] {
            let mut command = bed.command(LANDSTRIP.as_ref());
            command.args(["run", "-p", policy, "--", "/bin/sh", "-c", script]);
            command.env("HOME", bed.fill("{in}"));
            let run = finish(command, "no traps".as_ref());
            let written = bed.root().join("in").join(name).exists();
            if [run.code == Some(0), written] != [succeeds; 2] {
                failures.push(format!("{policy}: {name}: {run:?}"));
            }
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

/// Who manages such files by links (stow, home-manager) still starts, and a file is held by both of its names.
#[test]
fn what_the_host_runs_later_is_not_written_through_links() {
    const LINKS: &str = "mkdir -p real/hooks real/modules/m shared dot && : > real/config && : > dot/envrc &&
        ln -s real .git && ln -s ../shared real/linked && ln -s dot/envrc .envrc && ln -s nowhere .vscode &&
        : > dot/mcp && ln dot/mcp .mcp.json && ln -s shared .claude";
    const WRITES: &[&str] = &[
        "echo x > .git/hooks/pre-commit",
        "echo x > real/hooks/pre-commit",
        "echo x >> real/config",
        "mkdir real/modules/m/hooks && echo x > real/modules/m/hooks/pre-commit",
        "mv real/hooks real/other",
        "rm .git && mkdir -p .git/hooks && echo x > .git/hooks/pre-commit",
        "echo x >> .envrc",
        "echo x >> dot/envrc",
        "rm .envrc && echo x > .envrc",
        "mkdir nowhere && echo x > nowhere/tasks.json",
        "echo x >> .mcp.json",
        "echo x >> dot/mcp",
        "echo x > .claude/settings.json",
        "echo x > shared/settings.json",
    ];
    let mut failures = Vec::new();
    for write in WRITES {
        for (policy, succeeds) in [("@agent", false), ("@workspace", true)] {
            let bed = Bed::new(&[]);
            assert_eq!(bare(&bed, LINKS).code, Some(0));
            let run = under(&bed, policy, &format!("echo started; {write}"));
            if run.lines != ["started"] || (run.code == Some(0)) != succeeds {
                failures.push(format!("{policy}: {write}: {run:?}"));
            }
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
    // What lies beside stays free.
    let bed = Bed::new(&[]);
    assert_eq!(bare(&bed, LINKS).code, Some(0));
    let run =
        under(&bed, "@agent", "echo x > real/index && echo x > dot/other && : > real/modules/m/x");
    assert_eq!(run.code, Some(0), "{run:?}");
}

/// A linked worktree: what a commit writes is in the main repository, outside of the start directory.
#[test]
fn git_commits_in_a_linked_worktree() {
    if !have("a linked worktree", &["cmd:git"]) {
        return;
    }
    let bed = Bed::new(&[]);
    let setup = "cd {out} && git init -q main && cd main && git commit -q --allow-empty -m first &&
        git worktree add -q {in}/tree";
    let run = bare(&bed, setup);
    assert_eq!(run.code, Some(0), "{run:?}");
    let commit = "cd tree && echo x > file && git add file && git commit -qm second &&
        git branch other && git stash list && git log --format=%s";
    // The start directory is the worktree itself.
    let inside = |policy: &str, script: &str| {
        let mut command = bed.command(LANDSTRIP.as_ref());
        command.args([
            "run",
            ACCEPT,
            "--cwd",
            &bed.fill("{in}/tree"),
            "-p",
            policy,
            "--",
            "/bin/sh",
            "-c",
        ]);
        command.arg(bed.fill(&script.replace("cd tree && ", "")));
        finish(at_home(&bed, command), "no traps".as_ref())
    };
    let run = inside("@workspace", commit);
    assert!(run.code != Some(0) && run.stderr.contains("gitDir"), "control: {run:?}");
    let run = inside("@agent", commit);
    assert_eq!(
        (run.code, &run.lines[..]),
        (Some(0), &["second".into(), "first".into()][..]),
        "{run:?}"
    );
    let git = bed.fill("{out}/main/.git");
    for name in [
        "hooks/pre-commit",
        "config",
        "config.worktree",
        "worktrees/tree/gitdir",
        "worktrees/tree/commondir",
    ] {
        let run = inside("@agent", &format!("echo x >> {git}/{name}"));
        assert!(run.code != Some(0) && run.stderr.contains("_DENIED"), "{name}: {run:?}");
    }
    let run = bare(&bed, "cd tree && git status --porcelain && git fsck --strict");
    assert_eq!((run.code, run.lines.len()), (Some(0), 0), "{run:?}");
}

/// Children end all the time while a shell opens and closes: no call of it is lost.
#[test]
fn pipelines_of_a_shell_are_what_they_are_bare() {
    let script = "i=0; while [ $i -lt 150 ]; do
        echo $i | cat | cat > p; : & read n < p; : > d$i; rm d$i; s=$((s+n)); i=$((i+1));
        done; wait; echo $s; ls";
    let bed = Bed::new(&[]);
    let expected = bare(&bed, script);
    assert_eq!(expected.lines, ["11175", "p"], "{expected:?}");
    for policy in ["@workspace", "@agent"] {
        let run = under(&bed, policy, script);
        assert_eq!((&run.lines, run.stderr.as_str()), (&expected.lines, ""), "{policy}");
    }
    let policy = json!({"filesystem": {"allowWrite": ["{in}"], "denyWrite": ["**/x"], "denyRead": ["**/y"]}});
    let run = bed.launch(&policy, &[], &["/bin/sh", "-c", script]);
    assert_eq!((&run.lines, run.stderr.as_str()), (&expected.lines, ""));
}

/// A launch looks into no directory that it only grants, however many globs there are.
#[test]
fn a_launch_walks_no_tree() {
    if !have("what a launch looks at", &["cmd:strace"]) {
        return;
    }
    let bed =
        Bed::new(&["mkdirat AT_FDCWD \"{in}/tree 0755", "mkdirat AT_FDCWD \"{in}/tree/deep 0755"]);
    let log = bed.root().join("calls");
    let looks = |program: &[&str]| {
        let mut command = bed.command("strace".as_ref());
        command.args([
            "-f",
            "-qq",
            "-e",
            "trace=open,openat,openat2,stat,lstat,newfstatat,statx",
            "-o",
        ]);
        command.arg(&log).args(program);
        let run = finish(at_home(&bed, command), "no traps".as_ref());
        assert_eq!(run.code, Some(0), "{run:?}");
        std::fs::read_to_string(&log).expect("its log").contains("tree")
    };
    assert!(looks(&["ls", "-R", "."]), "control");
    let policy: Value = json!({"filesystem": {"allowWrite": ["{in}"], "denyWrite": ["**/.env", "**/*.key"],
        "denyRead": ["**/secret/**"]}});
    for policy in ["@workspace", "@agent", bed.policy(&policy).to_str().expect("a path")] {
        assert!(!looks(&[LANDSTRIP, "run", ACCEPT, "-p", policy, "--", "true"]), "{policy}");
    }
}
