#!/usr/bin/env python3
"""Runs commands as a harness of a coding agent does: one OCI bundle a command, under a policy.

    loop.py [--landstrip PROGRAM] [-p POLICY]... < COMMANDS

Each line of standard input is a command for sh(1). For each, one JSON object is written to standard output: what
the command was, how it ended, what it wrote, and what it was denied, with the entry of the policy that would
have allowed it, or which limit it reached. What else stands on the command line goes to `landstrip spec`.
"""

import json
import os
import subprocess
import sys
import tempfile
import threading

KINDS = ("filesystem", "network", "ipc", "limit")


def bundle(landstrip, options, command, directory):
    """Writes the bundle of a command. What `spec` says of other OCI runtimes is no matter: ours runs it."""
    words = [landstrip, "spec", *options, "-b", directory, "--", "sh", "-c", command]
    try:
        made = subprocess.run(words, stdin=subprocess.DEVNULL, capture_output=True, text=True)
    except OSError as error:
        sys.exit(f"loop.py: cannot run {error.filename}: {error.strerror}")
    if made.returncode != 0:
        sys.exit(f"loop.py: {made.stderr.strip()}")


def run(landstrip, directory):
    """Runs a bundle, and returns how it ended, what it wrote, and its traps."""
    reader, writer = os.pipe()
    # A pipe, so that nothing is asked. It is read while the command runs: a full one loses records.
    traps = []
    read = threading.Thread(target=lambda: traps.extend(map(json.loads, open(reader))))
    words = [landstrip, "run", "--quiet", "--trap-fd", str(writer), directory]
    with subprocess.Popen(
        words,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        pass_fds=[writer],
        text=True,
        errors="replace",
    ) as process:
        os.close(writer)
        read.start()
        out, err = process.communicate()
    # Everything that the command started has ended with it, and so does the pipe.
    read.join()
    return process.returncode, out, err, traps


def denied(traps):
    """What an agent can tell its person: each denial and limit once, in the order of the first."""
    shown = {}
    for trap in traps:
        # What else went wrong is an error, and stands on the command's standard error.
        if trap["kind"] not in KINDS:
            continue
        what = {
            "kind": trap["kind"],
            "operation": trap.get("operation"),
            "target": trap.get("path") or trap.get("target"),
            "resource": trap.get("resource"),
            "value": trap.get("value"),
            "grant": trap.get("suggested_grant"),
        }
        shown.setdefault(json.dumps(what), {key: value for key, value in what.items() if value})
    return list(shown.values())


def main(options):
    landstrip = "landstrip"
    if options[:1] == ["--landstrip"] and len(options) > 1:
        landstrip, options = options[1], options[2:]
    if options[:1] in (["-h"], ["--help"]):
        print(__doc__.strip())
        return
    for line in sys.stdin:
        command = line.rstrip("\n")
        # One that is not writable from inside: the next command must not find it.
        with tempfile.TemporaryDirectory(prefix="bundle-") as directory:
            bundle(landstrip, options, command, directory)
            status, out, err, traps = run(landstrip, directory)
        result = {"command": command, "status": status, "stdout": out, "stderr": err}
        result["denied"] = denied(traps)
        print(json.dumps(result), flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
