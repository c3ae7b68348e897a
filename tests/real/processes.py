"""Processes that this run starts, and how it waits for them."""

import os
import signal
import socket
import subprocess
import time
import urllib.error
import urllib.request

# Time for a process to end when it is asked to.
ENDS = 20


class Late(Exception):
    """What was waited for did not come within its deadline."""


class Process:
    """A program in a process group of its own: only groups that this run started are ever signalled."""

    started = []

    def __init__(self, command, folder, name, env=None):
        self.command, self.folder, self.name = [str(part) for part in command], folder, name
        self.env = {**os.environ, **(env or {})}
        self.log = folder / f"{name}.log"
        self.start()

    def start(self):
        """Starts the program, once more after it ended. Its log goes on."""
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
        """Ends the program as a power failure would."""
        self.signal(signal.SIGKILL)
        self.child.wait(ENDS)

    def stop(self):
        if self.child.poll() is None:
            self.signal(signal.SIGTERM)
            try:
                self.child.wait(ENDS)
            except subprocess.TimeoutExpired:
                pass
        # What the program had started ends with it.
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
