#!/usr/bin/env python3
"""Runs `landstrip run` and asks a person on the terminal about what it denies.

    ask.py [--landstrip PROGRAM] [--tty TERMINAL] RUN-OPTIONS... -- PROGRAM ARGS...

The reference client of queries: one socket pair, one JSON object a line each way. Python's standard
library is all it needs. Exits as the run does; 2 when the line is wrong or there is no terminal.
"""

import errno
import json
import os
import selectors
import signal
import socket
import subprocess
import sys
import termios

ANSWERS = {
    "y": {"action": "allow"},
    "a": {"action": "allow", "scope": "run"},
    "n": {"action": "deny"},
    "v": {"action": "deny", "scope": "run"},
}
PROMPT = "  allow? [y/a/n/v] "
HELP = "  y: yes, this once   a: always in this run   n: no   v: never in this run\n"
DENIALS = ("filesystem", "network", "ipc")
# What keeps the program from running: the run says it itself, on standard error.
ERRORS = ("launch", "internal")
# What differs between two callers that ask for the same.
OWN = ("query_id", "process", "ts", "state")


def plain(text):
    """Text that cannot steer the terminal: a program chooses its own file names."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in str(text))


def describe(record):
    """What somebody wants to do, in one line: all that an answer allows."""
    what = record.get("path") or record.get("target") or ""
    parts = [record.get("operation", "use"), plain(what)]
    if record.get("old_path") and record.get("new_path"):
        old, new = plain(record["old_path"]), plain(record["new_path"])
        parts.append(f"({record.get('syscall')} of {old} to {new})")
    asked = [*record.get("flags", [])]
    asked += [f"{name} {plain(value)}" for name, value in record.get("arguments", {}).items()]
    if asked:
        parts.append(f"({', '.join(asked)})")
    rule = record.get("rule")
    if rule:
        parts.append(f"(denied by {plain(rule.get('key'))}: {plain(rule.get('text'))})")
    who = record.get("process")
    if who:
        parts.append(f"by {plain(os.path.basename(who.get('exe', '')))}[{who.get('pid')}]")
    if record.get("message"):
        parts.append(f"- {plain(record['message'])}")
    return " ".join(parts)


def same(record):
    """What two queries have in common that are one question to a person."""
    who = record.get("process", {})
    rest = {key: value for key, value in record.items() if key not in OWN}
    return json.dumps([rest, who.get("exe"), who.get("cwd")], sort_keys=True)


class Terminal:
    """The person's terminal, which may go away at any time."""

    def __init__(self, path):
        self.fd = os.open(path, os.O_RDWR | os.O_NOCTTY | os.O_CLOEXEC)
        termios.tcgetattr(self.fd)
        self.line = b""

    def say(self, text):
        """Writes; whether there is anybody to read it."""
        rest = text.encode("utf-8", "backslashreplace")
        try:
            while rest:
                rest = rest[os.write(self.fd, rest):]
        except OSError:
            return False
        return True

    def forget(self):
        """Drops what was typed: before a question it is no answer to it."""
        self.line = b""
        try:
            termios.tcflush(self.fd, termios.TCIFLUSH)
        except termios.error:
            pass

    def typed(self):
        """The lines typed by now; an end of file (Ctrl-D) is an empty one. None: nobody is there."""
        try:
            chunk = os.read(self.fd, 4096)
        except OSError as error:
            return [] if error.errno == errno.EINTR else None
        if not chunk:
            try:
                termios.tcgetattr(self.fd)
            except termios.error:
                return None
            return ["n"]
        *lines, self.line = (self.line + chunk.replace(b"\r", b"\n")).split(b"\n")
        return [line.decode(errors="replace").strip().lower() for line in lines]


class Client:
    """Both ends: the run's socket and the person's terminal."""

    def __init__(self, link, terminal):
        self.link = link
        self.terminal = terminal
        self.queries = {}
        self.asked = []
        self.bytes = b""

    def say(self, text):
        if self.terminal and not self.terminal.say(text):
            self.leave()

    def leave(self):
        """The person is gone: nobody answers any more, which denies all that is asked."""
        self.terminal = None
        self.asked = []
        try:
            self.link.shutdown(socket.SHUT_WR)
        except OSError:
            pass

    def ask_next(self):
        """Shows the oldest query, and those that ask for the same, unless one is being shown."""
        if self.asked or not self.queries or not self.terminal:
            return
        first = next(iter(self.queries.values()))
        self.asked = [id for id, other in self.queries.items() if same(other) == same(first)]
        count = f" ({len(self.asked)} callers)" if len(self.asked) > 1 else ""
        self.terminal.forget()
        self.say(f"landstrip: {describe(first)}{count}\n{PROMPT}")

    def typed(self):
        """Takes what the person typed."""
        lines = self.terminal.typed()
        if lines is None:
            self.leave()
            return
        for line in lines:
            if not self.asked:
                return
            answer = ANSWERS.get(line)
            if answer is None:
                self.say(f"{HELP}{PROMPT}")
                continue
            for query in self.asked:
                self.queries.pop(query, None)
                self.answer({"query_id": query, **answer})
            self.asked = []

    def answer(self, record):
        try:
            self.link.sendall(json.dumps(record).encode() + b"\n")
        except OSError:
            # The run is over; the end of its records says so.
            pass

    def received(self):
        """Takes what came from the run; whether there can be more."""
        try:
            chunk = self.link.recv(65536)
        except InterruptedError:
            return True
        except OSError:
            chunk = b""
        *lines, self.bytes = (self.bytes + chunk).split(b"\n")
        for line in lines:
            try:
                record = json.loads(line)
            except ValueError:
                continue
            if isinstance(record, dict):
                self.take(record)
        return bool(chunk)

    def take(self, record):
        """Takes one record."""
        query, kind = record.get("query_id", "0"), record.get("kind")
        if kind == "control":
            self.say(f"landstrip: an answer was ignored: {plain(record.get('message'))}\n")
        elif kind in ERRORS:
            pass
        elif kind not in DENIALS:
            self.say(f"landstrip: {plain(record.get('message', kind))}\n")
        elif record.get("state") == "query":
            self.queries[query] = record
        elif query in self.queries:
            # It timed out, its process is gone, or another answer covers it.
            del self.queries[query]
            if query in self.asked:
                self.asked.remove(query)
                if not self.asked:
                    message = plain(record.get("message", "no longer asked"))
                    self.say(f"\nlandstrip: {message}\n")
        elif query == "0":
            self.say(f"landstrip: denied: {describe(record)}\n")

    def serve(self):
        """Runs until the run closes its end."""
        with selectors.DefaultSelector() as selector:
            selector.register(self.link, selectors.EVENT_READ)
            terminal = self.terminal.fd
            selector.register(terminal, selectors.EVENT_READ)
            while True:
                self.ask_next()
                if not self.terminal and terminal is not None:
                    selector.unregister(terminal)
                    terminal = None
                for key, _ in selector.select():
                    if key.fileobj is self.link and not self.received():
                        return
                    if key.fileobj == terminal and self.terminal:
                        self.typed()


def fail(message, status):
    """Ends without a run."""
    print(f"ask.py: {message}", file=sys.stderr)
    return status


def main(args):
    options = {"--landstrip": "landstrip", "--tty": "/dev/tty"}
    while len(args) > 1 and args[0] in options:
        options[args[0]], args = args[1], args[2:]
    if args[:1] in (["-h"], ["--help"]):
        print(__doc__.strip())
        return 0
    if "--" not in args or args[-1] == "--":
        return fail(__doc__.strip(), 2)
    try:
        terminal = Terminal(options["--tty"])
    except (OSError, termios.error) as error:
        return fail(f"{options['--tty']}: {error.args[-1]}", 2)
    ours, theirs = socket.socketpair()
    run = None

    def pass_on(number, _):
        # Who ends us means the run. Ctrl-C reaches it by itself.
        if number != signal.SIGINT and run and run.poll() is None:
            run.send_signal(number)

    # Handlers, which the program does not inherit.
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT):
        signal.signal(number, pass_on)
    command = [options["--landstrip"], "run", "--trap-fd", str(theirs.fileno()), *args]
    try:
        run = subprocess.Popen(command, pass_fds=[theirs.fileno()])
    except FileNotFoundError as error:
        return fail(f"cannot run {error.filename}: {error.strerror}", 127)
    except OSError as error:
        return fail(f"cannot run {error.filename}: {error.strerror}", 126)
    theirs.close()
    Client(ours, terminal).serve()
    status = run.wait()
    return status if status >= 0 else 128 - status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
