"""Runs a program on a separate terminal, and answers its questions.

Takes {"program", "words", "folder", "env", "steps": [[expected, sent]…]} as JSON, and prints {"shown", "status"}.
"""

import json
import os
import pty
import select
import signal
import sys
import time

PATIENCE = 60  # timeout for a question, in seconds

asked = json.loads(sys.argv[1])
child, terminal = pty.fork()
if child == 0:
    os.chdir(asked["folder"])
    os.execve(asked["program"], [asked["program"], *asked["words"]], asked["env"])

shown = b""


def read():
    """Reads available output. Returns false at the end."""
    global shown
    if not select.select([terminal], [], [], PATIENCE)[0]:
        return False
    try:
        more = os.read(terminal, 65536)
    except OSError:  # how Linux ends a terminal whose last program has ended
        return False
    shown += more
    return bool(more)


answered = 0
deadline = time.monotonic() + PATIENCE
for expected, sent in asked["steps"]:
    while expected.encode() not in shown[answered:]:
        if not read() or time.monotonic() > deadline:
            os.kill(child, signal.SIGKILL)
            sys.exit(f"{expected!r} was not shown after {shown[answered:].decode()}")
    answered = shown.index(expected.encode(), answered) + len(expected.encode())
    os.write(terminal, sent.encode())
while read():
    pass
_, status = os.waitpid(child, 0)
print(json.dumps({"shown": shown.decode(), "status": os.waitstatus_to_exitcode(status)}))
