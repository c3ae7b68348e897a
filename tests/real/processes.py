"""Processes of this run, and waiting with deadlines."""

import os
import signal
import socket
import subprocess
import time
import urllib.error
import urllib.request

# Seconds that a process has to stop before it is killed.
ENDS = 20


class Late(Exception):
    """A deadline has passed."""


class Process:
    """A program in a separate process group. Signals go only to groups that this run started."""

    started = []

    def __init__(self, command, folder, name, env=None):
        self.command, self.folder, self.name = [str(part) for part in command], folder, name
        self.env = {**os.environ, **(env or {})}
        self.log = folder / f"{name}.log"
        self.start()

    def start(self):
        """Starts the program, or restarts it after it ended, and appends to its log."""
        with open(self.log, "ab") as log:
            self.since = time.time()
            self.child = subprocess.Popen(
                self.command, cwd=self.folder, env=self.env, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True)
        Process.started.append(self)

    def signal(self, number):
        try:
            os.killpg(self.child.pid, number)
        except ProcessLookupError:
            pass

    def kill(self):
        """Kills the program without warning, as a power failure would."""
        self.signal(signal.SIGKILL)
        self.child.wait(ENDS)

    def stop(self):
        if self.child.poll() is None:
            self.signal(signal.SIGTERM)
            try:
                self.child.wait(ENDS)
            except subprocess.TimeoutExpired:
                pass
        # The whole group, so that programs started by this one end too.
        self.signal(signal.SIGKILL)
        self.child.wait(ENDS)

    def said(self):
        return self.log.read_text(errors="replace")

    def answers(self, url, seconds):
        """Waits until the program answers at this address with 200."""
        def answered():
            if self.child.poll() is not None:
                raise Late(f"{self.name} ended: {self.said()[-2000:]}")
            try:
                return urllib.request.urlopen(url, timeout=5).status == 200
            except (urllib.error.URLError, OSError):
                return False
        wait_until(f"{self.name} answers", seconds, answered)


def stop_all():
    for process in reversed(Process.started):
        process.stop()


def wait_until(what, seconds, test, pause=0.05):
    """Waits until the test returns a true value, and returns that."""
    began = time.monotonic()
    while not (found := test()):
        if time.monotonic() - began > seconds:
            raise Late(f"{what}: not within {seconds} s")
        time.sleep(pause)
    return found


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]
