#!/usr/bin/env python3
"""Runs `landstrip run` and asks a person on the terminal about what it denies.

    ask.py [--landstrip PROGRAM] [--tty TERMINAL] RUN-OPTIONS... -- PROGRAM ARGS...

The reference client of queries: one socket pair, one JSON object a line each way. Python's standard
library is all it needs. Exits as the run does.
"""

import collections
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
HELP = "y: yes, this once   a: always in this run   n: no   v: never in this run"


def plain(text):
    """Text that cannot steer the terminal: a program chooses its own file names."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in str(text))


def describe(record):
    """A record in one line."""
    what = record.get("path") or record.get("target") or record.get("message") or ""
    who = record.get("process", {})
    parts = [record.get("operation", record["kind"]), plain(what)]
    if record.get("rule"):
        parts.append(f"(denied by {plain(record['rule']['key'])}: {plain(record['rule']['text'])})")
    if who:
        parts.append(f"by {plain(os.path.basename(who['exe']))}[{who['pid']}]")
    return " ".join(parts)


class Client:
    """Both ends: the run's socket and the person's terminal."""

    def __init__(self, link, terminal):
        self.link = link
        self.terminal = terminal
        self.queries = collections.OrderedDict()
        self.asked = None
        self.bytes = b""

    def say(self, text):
        os.write(self.terminal, text.encode("utf-8", "backslashreplace"))

    def ask_next(self):
        """Shows the oldest query, unless one is being shown."""
        if self.asked is None and self.queries:
            self.asked, record = next(iter(self.queries.items()))
            # What was typed before the question is no answer to it.
            termios.tcflush(self.terminal, termios.TCIFLUSH)
            self.say(f"landstrip: {describe(record)}\n  allow? [y/a/n/v] ")

    def typed(self):
        """Takes one line that the person typed."""
        line = os.read(self.terminal, 4096).decode(errors="replace").strip().lower()
        if self.asked is None:
            return
        answer = ANSWERS.get(line)
        if answer is None:
            self.say(f"  {HELP}\n  allow? [y/a/n/v] ")
            return
        record = {"query_id": self.asked, **answer}
        del self.queries[self.asked]
        self.asked = None
        self.link.sendall(json.dumps(record).encode() + b"\n")

    def received(self):
        """Takes what came from the run; whether there can be more."""
        chunk = self.link.recv(65536)
        *lines, self.bytes = (self.bytes + chunk).split(b"\n")
        for line in lines:
            self.take(json.loads(line))
        return bool(chunk)

    def take(self, record):
        """Takes one record."""
        query = record.get("query_id", "0")
        if record.get("state") == "query":
            self.queries[query] = record
        elif query in self.queries:
            # It timed out, its process is gone, or another answer covers it.
            del self.queries[query]
            if self.asked == query:
                self.asked = None
                self.say(f"\nlandstrip: {plain(record.get('message', 'no longer asked'))}\n")
        elif query == "0":
            self.say(f"landstrip: denied: {describe(record)}\n")

    def serve(self):
        """Runs until the run closes its end."""
        with selectors.DefaultSelector() as selector:
            selector.register(self.link, selectors.EVENT_READ, self.received)
            selector.register(self.terminal, selectors.EVENT_READ, self.typed)
            more = True
            while more:
                self.ask_next()
                for key, _ in selector.select():
                    if key.data() is False:
                        more = False


def main(args):
    options = {"--landstrip": "landstrip", "--tty": "/dev/tty"}
    while len(args) > 1 and args[0] in options:
        options[args[0]], args = args[1], args[2:]
    if "--" not in args:
        sys.exit(__doc__)
    terminal = os.open(options["--tty"], os.O_RDWR | os.O_NOCTTY | os.O_CLOEXEC)
    ours, theirs = socket.socketpair()
    # A handler, which the program does not inherit: Ctrl-C is for the program.
    signal.signal(signal.SIGINT, lambda *_: None)
    trap = ["--trap-fd", str(theirs.fileno())]
    command = [options["--landstrip"], "run", *trap, *args]
    run = subprocess.Popen(command, pass_fds=[theirs.fileno()])
    theirs.close()
    try:
        Client(ours, terminal).serve()
    except ConnectionError:
        pass
    status = run.wait()
    return status if status >= 0 else 128 - status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
