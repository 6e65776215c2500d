"""Threads that use a device at interpreter exit end first, without messages."""

from __future__ import annotations

import subprocess
import sys

import pytest

_PROGRAM = """
import threading
from polyhal.backends.opencl import threads_at_exit

WORK = '''
released = threading.Event()
state = {"first": True}  # asking the event would take a function of `threading`, in which threads count as waiting

class Released:
    def __del__(self):
        if state["first"]:
            state["first"] = False
            released.set()
            while True:  # SystemExit meets the thread here first
                pass

def work():
    while True:
        Released()
'''
names = {"__name__": "polyhal.work", "threading": threading}
exec(WORK, names)
thread = threading.Thread(target=names["work"], daemon=True)
thread.start()
names["released"].wait()
threads_at_exit._PATIENCE = 60.0
threads_at_exit._end_threads()
thread.join(10)
print(thread.is_alive())
"""


def test_a_thread_in_a_destructor_ends_without_a_message() -> None:
    """Python would print a SystemExit in the destructor and continue the thread."""
    done = subprocess.run([sys.executable, "-c", _PROGRAM], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout, done.stderr) == (0, "False\n", "")


@pytest.mark.usefixtures("any_device")
def test_reads_that_are_awaited_are_delivered_before_threads_end() -> None:
    """A device of another backend is opened first, so that its own wait for reads is registered first and runs last."""
    program = """
import polyhal as ph
x = ph.ones((1024, 1024), device="sim")

def tell():
    (x @ x).numpy_async().add_done_callback(lambda f: print(f.result()[0, 0], flush=True))

tell()
device = ph.Device("opencl")
tell()
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout, done.stderr) == (0, "1024.0\n" * 2, "")
